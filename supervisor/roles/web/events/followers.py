"""Followers of events over HTTP: one reader of the stream for all, a bounded queue for each.

Guarantees
    One blocking read at a time, whatever the number of followers; none without any.
    A follower that reads too slowly is cut off and counted; it comes back with the id of its last event.
    At most ``FOLLOWERS_MAX`` at a time, and of one asker ``PER_TOKEN_MAX``, or ``PER_ADDRESS_MAX`` without a token: one
    more ends the oldest of that asker, which comes back with the id of its last event and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.roles.web.responses import unavailable
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.event_log import EventLog, KeptEvent, listened
from supervisor.telemetry.metrics import EVENTS_DROPPED

FOLLOWERS_MAX = 16
PER_TOKEN_MAX = 4
PER_ADDRESS_MAX = 2
QUEUED_MAX = 256
BLOCK_S = 1.0
RETRY_S = 1.0
Item = KeptEvent | None  # None: the end


class Followers:
    """Everybody who follows events of this web process."""

    def __init__(self, store: AsyncStore, events: EventLog) -> None:
        self._store = store
        self._events = events
        self._queues: dict[asyncio.Queue[Item], str] = {}  # with who asked, the oldest first
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def follow(self, token: str, address: str) -> AsyncIterator[asyncio.Queue[Item]]:
        """Return a queue of events added from now on, for the token of that name, or for an address without one.

        Raises:
            web.HTTPServiceUnavailable: there are as many as may be.
            StoreUnavailableError: Redis does not answer.
            StoreRefusedError: it refuses.
        """
        asker, limit = (f"token {token}", PER_TOKEN_MAX) if token else (f"address {address}", PER_ADDRESS_MAX)
        own = [queue for queue, each in self._queues.items() if each == asker]
        if len(own) >= limit:
            self._dismiss(own[0])
        if len(self._queues) >= FOLLOWERS_MAX or self._is_closed:
            raise unavailable("as many clients follow events as may; come back later")
        queue: asyncio.Queue[Item] = asyncio.Queue(QUEUED_MAX + 1)
        self._queues[queue] = asker
        try:
            if self._reading is None:
                last_id = await self._newest()
                if self._reading is None:  # another one may have come meanwhile
                    self._reading = asyncio.create_task(self._read(last_id))
            yield queue
        finally:
            self._queues.pop(queue, None)
            if not self._queues:
                await self._stop()

    async def close(self) -> None:
        """Send everybody away."""
        self._is_closed = True
        for queue in self._queues:
            _end(queue)
        await self._stop()

    async def _stop(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self, last_id: str) -> None:
        while True:
            try:
                entries = await self._store.listen(self._events.key, last_id, BLOCK_S)
            except (StoreUnavailableError, StoreRefusedError):
                await asyncio.sleep(RETRY_S)
                continue
            if entries:
                last_id = entries[-1][0]
                self._spread(listened(entries))

    async def _newest(self) -> str:
        return (await self._store.run(self._events.read(count=1))).last_id

    def _spread(self, events: list[KeptEvent]) -> None:
        for queue in list(self._queues):
            if queue.qsize() + len(events) > QUEUED_MAX:
                EVENTS_DROPPED.labels(sink="follower").inc(queue.qsize() + len(events))
                self._dismiss(queue)
                continue
            for event in events:
                queue.put_nowait(event)

    def _dismiss(self, queue: asyncio.Queue[Item]) -> None:
        self._queues.pop(queue, None)
        _end(queue)


def _end(queue: asyncio.Queue[Item]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
