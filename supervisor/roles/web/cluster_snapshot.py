"""Snapshot of the cluster for pages and scrapes: queue depths, the leader, the schedules due next.

Guarantees
    Redis is asked at most once in 5 s, however many clients ask here, by one connection
    and within 2 s. A request waits at most 1 s for it.
    Data older than 15 s are not shown: an old number looks like a true one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

import structlog

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Kind
from supervisor.core.units import SECOND_NS
from supervisor.operations.leader import differing_schedules
from supervisor.roles.child import ChildContext
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.leases import Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.queues.reads import QueueCounts, ServedKinds
from supervisor.store.queues.runs import Queues
from supervisor.store.schedules.reads import LATE_MS
from supervisor.store.wire.codec import foreign_moment, text

FRESH_S = 5.0
SHOWN_S = 15.0
WAIT_S = 1.0
READ_S = 2.0
LATE_SHOWN = 100
QUEUES_MAX = 100
"""Queues beyond this many are not shown: those that this replica serves come first, then by name."""

DUE_SHOWN = 10
T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Overview:
    """One look at Redis."""

    queues: tuple[QueueCounts, ...]
    leader: LeaseView | None
    next_due: tuple[tuple[str, int], ...]  # schedule, wall clock in ms
    served: ServedKinds | None = None  # kinds of runs that live workers of any replica take, by queue; None: not known
    unserved: tuple[tuple[str, Kind, int], ...] = ()  # queues whose runs no live worker takes: kind, how many wait
    late: tuple[str, ...] = ()  # schedules that break what they promise about their runs
    differing: str = ""  # which replicas have other static schedules than the rest


class Overviews:
    """The newest look, shared by all who ask."""

    def __init__(self, reader: StoreReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._newest: Overview | None = None
        self._newest_ns = 0
        self._asked_ns: int | None = None
        self._refresh: asyncio.Task[None] | None = None
        self.is_up = False
        """Whether Redis answered the last question that ended."""

    async def get(self) -> Overview | None:
        """Return a look that is fresh enough to show, or None."""
        if self._refresh is None and self._age_s(self._asked_ns) >= FRESH_S:
            self._asked_ns = self._clock.elapsed_ns()
            self._refresh = asyncio.create_task(self._read())
        if self._refresh is not None:
            done, _ = await asyncio.wait({self._refresh}, timeout=WAIT_S)
            for look in done:
                look.result()  # raises what only a mistake of ours can have raised
        return self.newest

    @property
    def newest(self) -> Overview | None:
        """The last look, if it is fresh enough to show; asks nothing."""
        return self._newest if self._newest is not None and self._age_s(self._newest_ns) < SHOWN_S else None

    async def close(self) -> None:
        """Stop asking."""
        if self._refresh is not None:
            self._refresh.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresh
        await self._reader.close()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(READ_S):
                newest = await self._reader.read()
        except (StoreUnavailableError, StoreRefusedError, TimeoutError) as error:
            if self.is_up or self._newest_ns == 0:
                log.info("overview_unavailable", reason=str(error) or "no answer in time")
            self.is_up, self._newest = False, None
        else:
            self.is_up, self._newest, self._newest_ns = True, newest, self._clock.elapsed_ns()
        finally:
            self._refresh = None

    def _age_s(self, at_ns: int | None) -> float:
        return float("inf") if at_ns is None else (self._clock.elapsed_ns() - at_ns) / SECOND_NS


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
        queues: list[QueueCounts] = []
        for name in self._shown(names):
            counts = await self._part(name, self.store.run(self._queues.counts(name)))
            queues += [] if counts is None else [counts]
        lease = await self.store.run(self._leases.view())
        candidates = await self._part("candidates", self.store.run(self._leases.candidates())) or []
        plan = self.store.command("ZRANGE", self._keys.schedule_next, 0, DUE_SHOWN - 1, "WITHSCORES")
        due = await self._part("the plan", plan) or []
        pairs = zip(due[::2], due[1::2], strict=True)
        due_next = tuple((text(name), at_ms) for name, at in pairs if (at_ms := foreign_moment(at)) is not None)
        return Overview(
            queues=tuple(queues),
            leader=lease if lease.holder else None,
            next_due=due_next,
            served=served,
            unserved=await self._unserved(),
            late=await self._late(),
            differing=differing_schedules(candidates, lease),
        )

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
        return tuple(sorted({text(member).removeprefix("!") for member in found}))

    async def _unserved(self) -> tuple[tuple[str, Kind, int], ...]:
        page = await self._part("unserved queues", self.store.run(self._queues.unserved()))
        items = [] if page is None else sorted(page.items, key=str)[:QUEUES_MAX]
        return tuple((each.queue, each.kind, each.waiting) for each in items)

    async def close(self) -> None:
        """Drop the connection."""
        await self.store.close()
