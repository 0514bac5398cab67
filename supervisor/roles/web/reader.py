"""Takes the look at Redis that pages and scrapes show."""

from __future__ import annotations

from typing import Self

from supervisor.core.model import Kind
from supervisor.roles.seat import Seat
from supervisor.roles.web.overview import WAIT_S, Leader, Overview, QueueDepth
from supervisor.store.client import AsyncStore
from supervisor.store.keys import Keys
from supervisor.store.leases import Leases
from supervisor.store.queues import Queues

QUEUES_MAX = 100
"""Queues beyond this many, by name, are not shown."""

DUE_SHOWN = 10


class StoreReader:
    """Looks through a connection of its own."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self.store = store
        self._keys = keys
        self._queues = Queues(keys)
        self._leases = Leases(keys)

    @classmethod
    def connect(cls, seat: Seat) -> Self:
        """Return a reader for this child. Connects when first used."""
        store = AsyncStore.connect(
            seat.redis_url,
            settings=seat.settings.redis,
            name=f"{seat.settings.cluster}:web",
            timeout_s=WAIT_S,
            clock=seat.clock,
            follow=seat.board,
        )
        return cls(store, Keys(seat.settings.cluster))

    async def read(self) -> Overview:
        """Return what Redis holds now.

        Raises:
            StoreUnavailableError: it does not answer.
            StoreRefusedError: it answers no.
        """
        names = await self.store.run(self._queues.names())
        depths = [await self._depth(name) for name in sorted(names)[:QUEUES_MAX]]
        lease = await self.store.run(self._leases.view())
        leader = Leader(lease.holder, lease.epoch, lease.host) if lease.holder else None
        due = await self.store.command("ZRANGE", self._keys.schedule_next, 0, DUE_SHOWN - 1, "WITHSCORES")
        pairs = zip(due[::2], due[1::2], strict=True)
        due_next = tuple((name.decode(), int(float(at))) for name, at in pairs)
        return Overview(tuple(depths), leader, due_next, await self._unserved())

    async def _unserved(self) -> tuple[tuple[str, Kind, int], ...]:
        page = await self.store.run(self._queues.unserved())
        return tuple((each.queue, each.kind, each.waiting) for each in sorted(page.items, key=str)[:QUEUES_MAX])

    async def _depth(self, queue: str) -> QueueDepth:
        counts = await self.store.run(self._queues.counts(queue))
        return QueueDepth(
            queue=queue,
            ready=counts.ready,
            running=counts.running,
            later=counts.later,
            dead=counts.dead,
            is_paused=counts.paused is not None,
            blocked=counts.blocked,
        )

    async def close(self) -> None:
        """Drop the connection."""
        await self.store.close()
