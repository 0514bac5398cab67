"""Passes events on: from the tree's mailbox to the stream in Redis, and to the webhook.

Guarantees
    Whoever recorded an event never waits for this. At most ``PENDING_MAX`` events wait for each sink; when more
    come, the oldest are dropped and counted.
    A batch that Redis may have or not is sent again with the same number, so that nothing is stored twice.
    An event that was taken from the mailbox is sent or counted as dropped, also where this process is asked to end.

Does not guarantee
    That an event outlives an outage of Redis that is longer than its place in the queue; the log has it.
    That events in memory are sent or counted where this process is killed, as one that hangs is.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import aiohttp
import msgspec
import structlog
from pydantic import SecretStr

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.events import LEVELS, Event
from supervisor.core.json_values import json_reader
from supervisor.core.signing import WEBHOOK_HEADER, signature
from supervisor.core.supervision.states import Phase
from supervisor.roles.child import ChildContext
from supervisor.roles.web.events.followers import Followers
from supervisor.roles.web.events.handlers import EventPages
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.event_log import BATCH_MAX, EventLog
from supervisor.store.keys import Keys
from supervisor.telemetry.metrics import EVENTS_DROPPED, EVENTS_SENT
from supervisor.version import __version__

TRIES = 4
PAUSE_S = 1.0
"""Before the second request; each further pause is twice as long. A quarter either way, so that replicas part."""


class EventWebhook:
    """One address.

    Guarantees
        Each request has a time limit, each batch ``TRIES`` requests; then it is given up. No redirect is followed, and
        of an answer nothing but its status is read. Neither address nor token is logged.

    Does not guarantee
        That a batch arrives once: a request whose answer was lost is made again, with a signature of its own.
        ``X-Tenure-Batch``, and ``batch`` in the body, which the signature covers, show it.
    """

    def __init__(self, url: SecretStr, child: ChildContext, writer: str) -> None:
        settings = child.settings.events
        self._url = url.get_secret_value()
        self._headers = {"Content-Type": "application/json", "User-Agent": f"tenure/{__version__}"}
        if settings.webhook_token is not None:
            self._headers["Authorization"] = f"Bearer {settings.webhook_token.get_secret_value()}"
        self._secret = None if settings.webhook_secret is None else settings.webhook_secret.get_secret_value()
        self._clock = child.clock
        self._timeout = aiohttp.ClientTimeout(total=settings.webhook_timeout_s)
        self._cluster = child.settings.cluster
        self._writer = writer
        self._batch = 0
        self._is_failing = False

    async def send(self, events: Sequence[Event], pause: Callable[[float], Awaitable[bool]]) -> bool:
        """Send one batch; return False when it was given up, or ``pause`` says that there is no other request."""
        self._batch += 1
        batch = f"{self._writer}/{self._batch}"
        body = msgspec.json.encode({"cluster": self._cluster, "batch": batch, "events": list(events)})
        headers = self._headers | {"X-Tenure-Batch": batch}
        reason = ""
        for number in range(TRIES):
            spread = random.uniform(0.75, 1.25)  # noqa: S311 - it spreads load
            if number and not await pause(PAUSE_S * 2 ** (number - 1) * spread):
                break
            reason, is_final = await self._request(body, headers)
            if not reason:
                self._is_failing = False
                return True
            if is_final:
                break
        if not self._is_failing:  # one line for each outage
            self._is_failing = True
            log.warning("webhook_failing", reason=reason, dropped=len(events))
        return False

    async def _request(self, body: bytes, headers: dict[str, str]) -> tuple[str, bool]:
        """Make one request; return why it did not do, and whether another one would not either."""
        if self._secret is not None:
            headers = headers | {WEBHOOK_HEADER: signature(self._secret, body, wall_ms=self._clock.wall_ms())}
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                status = answer.status
        except TimeoutError:
            return "no answer in time", False
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__, False  # its text may hold the address
        if 200 <= status < 300:
            return "", False
        is_final = 300 <= status < 500 and status not in {408, 425, 429}
        return f"status {status}", is_final


PENDING_MAX = 1000
READ_BYTES = 1 << 16
READS_MAX = 16
"""Reads of the mailbox before other tasks of the loop have their turn."""

RETRY_S = 1.0
LEVEL_INDEX = {level: index for index, level in enumerate(LEVELS)}
_decode = json_reader(Event)
log = structlog.get_logger()


class Queue:
    """Queue of events for one sink, and the batch of them that is being sent."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._events: deque[Event] = deque()
        self._in_hand = 0
        self._filled = asyncio.Event()
        self._closed = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add one, at the cost of the oldest when there are too many."""
        if len(self._events) >= PENDING_MAX:
            self._events.popleft()
            EVENTS_DROPPED.labels(sink=self._sink).inc()
        self._events.append(event)
        self._filled.set()

    async def take(self) -> list[Event]:
        """Wait for events; return at most a batch of them, and none once the queue is closed and empty."""
        await self._filled.wait()
        batch = [self._events.popleft() for _ in range(min(BATCH_MAX, len(self._events)))]
        if not (self._events or self._closed.is_set()):
            self._filled.clear()
        self._in_hand = len(batch)
        return batch

    def settle(self, *, is_sent: bool) -> None:
        """Count the batch that was taken."""
        (EVENTS_SENT if is_sent else EVENTS_DROPPED).labels(sink=self._sink).inc(self._in_hand)
        self._in_hand = 0

    async def pause(self, wait_s: float) -> bool:
        """Wait before the next request for a batch; return False if there is none: the queue was closed before.

        A closing ends the wait, so that one more request is made.
        """
        if self._closed.is_set():
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), wait_s)
        return True

    def close(self) -> None:
        """Let whoever takes come to an end: one request for each batch."""
        self._closed.set()
        self._filled.set()

    def drop(self) -> None:
        """Count what was not sent. The batch in hand is, too: whether it arrived is not known."""
        left = self._in_hand + len(self._events)
        if left:
            log.warning("events_dropped", sink=self._sink, count=left)
            EVENTS_DROPPED.labels(sink=self._sink).inc(left)


class EventDispatcher:
    """Empties the mailbox, and the queues of the sinks."""

    def __init__(self, child: ChildContext, store: AsyncStore, events: EventLog, read_fd: int) -> None:
        settings = child.settings.events
        self._header = child.board.header
        self._read_fd = read_fd
        self._store = store
        self._events = events
        self._writer = f"{child.replica}/{child.name}/{child.generation}"  # used by no other process
        self._kept = settings.kept
        url = settings.webhook_url
        self._webhook = None if url is None else EventWebhook(url, child, self._writer)
        self._webhook_level = LEVELS.index(settings.webhook_level)
        self._tail = b""
        self._stream = Queue("stream")
        self._posts = Queue("webhook")
        self._batch = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; in the loop."""
        asyncio.get_running_loop().add_reader(self._read_fd, self.collect)
        self._tasks.append(asyncio.create_task(self._write()))
        if self._webhook is not None:
            self._tasks.append(asyncio.create_task(self._post(self._webhook)))

    async def close(self, wait_s: float) -> None:
        """End: send what was taken from the mailbox, for at most ``wait_s``, and count the rest as dropped.

        When the tree stops nobody follows, and all who write but the parent have gone: what they left in the mailbox is
        taken too. Otherwise that is the successor's, which has all its time for it. The parent starts it when this
        process is gone, so that of two generations only one reads. Nothing goes back into the mailbox: the batch in
        hand may have arrived, and the successor would add it to the stream again under a number of its own.
        """
        asyncio.get_running_loop().remove_reader(self._read_fd)
        if self._header.phase in {Phase.DRAINING, Phase.KILLING}:
            self.collect()
        queues = (self._stream, self._posts)
        for queue in queues:
            queue.close()
        await asyncio.wait(self._tasks, timeout=wait_s)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        for queue in queues:
            queue.drop()

    def collect(self) -> None:
        """Read the events in the mailbox."""
        for _ in range(READS_MAX):
            try:
                found = os.read(self._read_fd, READ_BYTES)
            except BlockingIOError:
                return
            *lines, self._tail = (self._tail + found).split(b"\n")
            for line in lines:
                self._sort(line)
            if len(found) < READ_BYTES:
                return

    def _sort(self, line: bytes) -> None:
        try:
            event = _decode(line)
        except msgspec.DecodeError:  # the rest of a line whose beginning a predecessor took with it
            EVENTS_DROPPED.labels(sink="recorder").inc()
            return
        self._stream.put(event)
        if self._webhook is not None and LEVEL_INDEX.get(event.level, 0) >= self._webhook_level:
            self._posts.put(event)

    async def _write(self) -> None:
        while batch := await self._stream.take():
            self._batch += 1
            call = self._events.add(batch, writer=self._writer, batch=self._batch, kept=self._kept)
            is_sent = await self._sent(call, len(batch))
            while is_sent is None and await self._stream.pause(RETRY_S):  # nobody announces that Redis is back
                is_sent = await self._sent(call, len(batch))
            self._stream.settle(is_sent=bool(is_sent))

    async def _sent(self, call: Call[int], count: int) -> bool | None:
        """Return whether a batch was stored; None: Redis is away."""
        try:
            await self._store.run(call)
        except StoreUnavailableError:
            return None
        except StoreRefusedError as error:  # the same again would be refused again
            log.warning("events_refused", reason=str(error), count=count)
            return False
        return True

    async def _post(self, webhook: EventWebhook) -> None:
        while batch := await self._posts.take():
            self._posts.settle(is_sent=await webhook.send(batch, self._posts.pause))


class EventOffice:
    """The parts, started and ended together."""

    def __init__(self, child: ChildContext, store: AsyncStore) -> None:
        events = EventLog(Keys(child.settings.cluster))
        self._followers = Followers(store, events)
        self.pages = EventPages(store, events, self._followers, child.clock)
        self._eventing = None if child.mailbox is None else EventDispatcher(child, store, events, child.mailbox.read_fd)

    def start(self) -> None:
        """Begin; in the loop."""
        if self._eventing is not None:
            self._eventing.start()

    async def close(self, wait_s: float) -> None:
        """Send followers away, and end; sinks have ``wait_s`` for what is left."""
        await self._followers.close()
        if self._eventing is not None:
            await self._eventing.close(wait_s)
