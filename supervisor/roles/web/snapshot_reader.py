"""Takes the look at Redis that pages and scrapes show."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Self, TypeVar

import structlog

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Kind
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import WAIT_S, Leader, Overview, QueueDepth
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.pages import ServedKinds
from supervisor.store.queues.runs import Queues
from supervisor.store.schedules.state import LATE_MS
from supervisor.store.wire.codec import foreign_moment, text

LATE_SHOWN = 100
QUEUES_MAX = 100
"""Queues beyond this many are not shown: those that this replica serves come first, then by name."""

DUE_SHOWN = 10
T = TypeVar("T")
log = structlog.get_logger()


class StoreReader:
    """Looks through a connection of its own."""

    def __init__(self, store: AsyncStore, keys: Keys, *, first: Collection[str] = ()) -> None:
        """Build it; ``first``: the queues that are shown whatever others there are."""
        self.store = store
        self._first = frozenset(first)
        self._refused: set[str] = set()  # parts of the latest look
        self._refused_before: set[str] = set()
        self._keys = keys
        self._queues = Queues(keys)
        self._leases = Leases(keys)

    @classmethod
    def connect(cls, child: ChildContext) -> Self:
        """Return a reader for this child. Connects when first used."""
        store = AsyncStore.connect(
            child.redis_url,
            settings=child.settings.redis,
            name=f"{child.settings.cluster}:web",
            timeout_s=WAIT_S,
            clock=child.clock,
            follow=child.board,
        )
        served = {queue for pool in child.settings.workers.values() for queue in pool.queues}
        return cls(store, Keys(child.settings.cluster), first=served)

    async def read(self) -> Overview:
        """Return a snapshot of Redis.

        Raises:
            StoreUnavailableError: it does not answer.
            StoreRefusedError: it refuses a call that the rest depends on. A queue that it refuses is left out.
        """
        names = await self.store.run(self._queues.names())
        self._refused, self._refused_before = set(), self._refused
        served = await self._part("served queues", self.store.run(self._queues.served_kinds()))
        depths = [depth for name in self._shown(names) if (depth := await self._depth(name, served)) is not None]
        lease = await self.store.run(self._leases.view())
        leader = Leader(lease.holder, lease.epoch, lease.host) if lease.holder else None
        plan = self.store.command("ZRANGE", self._keys.schedule_next, 0, DUE_SHOWN - 1, "WITHSCORES")
        due = await self._part("the plan", plan) or []
        pairs = zip(due[::2], due[1::2], strict=True)
        due_next = tuple((text(name), at_ms) for name, at in pairs if (at_ms := foreign_moment(at)) is not None)
        return Overview(tuple(depths), leader, due_next, await self._unserved(), await self._late())

    def _shown(self, names: Collection[str]) -> list[str]:
        return sorted(names, key=lambda name: (name not in self._first, name))[:QUEUES_MAX]

    async def _part(self, name: str, asked: Awaitable[T]) -> T | None:
        """Return one part of the look; None if Redis refuses it alone, such as for a key of another type."""
        try:
            return await asked
        except StoreRefusedError as error:
            self._refused.add(name)
            if name not in self._refused_before:
                log.warning("overview_part_refused", part=name, reason=str(error))
            return None

    async def _late(self) -> tuple[str, ...]:
        asked = self.store.command(
            "ZRANGEBYSCORE", self._keys.schedule_promised, LATE_MS, LATE_MS, "LIMIT", 0, LATE_SHOWN
        )
        found = await self._part("late schedules", asked) or []
        return tuple(sorted({member.decode().removeprefix("!") for member in found}))

    async def _unserved(self) -> tuple[tuple[str, Kind, int], ...]:
        page = await self._part("unserved queues", self.store.run(self._queues.unserved()))
        items = [] if page is None else sorted(page.items, key=str)[:QUEUES_MAX]
        return tuple((each.queue, each.kind, each.waiting) for each in items)

    async def _depth(self, queue: str, served: ServedKinds | None) -> QueueDepth | None:
        """Return where the runs of a queue are; None if Redis refuses it, such as for a key of another type."""
        counts = await self._part(queue, self.store.run(self._queues.counts(queue)))
        if counts is None:
            return None
        return QueueDepth(
            queue=queue,
            ready=counts.ready,
            running=counts.running,
            later=counts.later,
            dead=counts.dead,
            is_paused=counts.paused is not None,
            blocked=counts.blocked,
            served=None if served is None else served.get(queue, ()),
        )

    async def close(self) -> None:
        """Drop the connection."""
        await self.store.close()
