"""Snapshot of the cluster for pages and scrapes: queue depths, the leader, the schedules due next.

Guarantees
    Redis is asked at most once in 5 s, however many clients ask here, by one connection
    and within 2 s. A request waits at most 1 s for it.
    Data older than 15 s are not shown: an old number looks like a true one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Kind
from supervisor.core.units import SECOND_NS

if TYPE_CHECKING:
    from supervisor.roles.web.snapshot_reader import StoreReader

FRESH_S = 5.0
SHOWN_S = 15.0
WAIT_S = 1.0
READ_S = 2.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Depth of one queue: its numbers of runs by place."""

    queue: str
    ready: Mapping[tuple[Kind, int], int]
    running: int
    later: int
    dead: int
    is_paused: bool
    blocked: int = 0
    served: tuple[Kind, ...] | None = None  # kinds of runs that live workers of any replica take; None: not known

    @property
    def served_names(self) -> list[str] | None:
        """The kinds as texts, for JSON."""
        return None if self.served is None else [kind.value for kind in self.served]


@dataclass(frozen=True, slots=True)
class Leader:
    """Holder of the lease, as Redis has it."""

    replica: str
    epoch: int
    host: str


@dataclass(frozen=True, slots=True)
class Overview:
    """One look at Redis."""

    queues: tuple[QueueDepth, ...]
    leader: Leader | None
    next_due: tuple[tuple[str, int], ...]  # schedule, wall clock in ms
    unserved: tuple[tuple[str, Kind, int], ...] = ()  # queues whose runs no live worker takes: kind, how many wait
    late: tuple[str, ...] = ()  # schedules that break what they promise about their runs


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
