"""Recycling of a worker process: it asks to be replaced after so many runs, so much growth, or at an age."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from supervisor.clock import Clock
from supervisor.core.supervision.states import Verb
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import resident_kib
from supervisor.roles.worker.process.heartbeat import WorkerHeartbeat
from supervisor.settings.sections.models import PoolSettings

log = structlog.get_logger("tenure.worker")

LOOK_NS = 5_000_000_000
ASK_NS = 60_000_000_000
"""An unanswered request is forgotten by the parent when no successor came up; then it is made again."""

SETTLED_RUNS = 100
SETTLED_NS = 60_000_000_000
_JITTER = 0.1


class RecyclingLimits:
    """The limits of one worker process.

    Growth counts from the need of the process once it had settled in, not from nothing: with a limit on the whole a
    process that is born above it would be replaced for ever. Each limit is moved by up to a tenth, drawn for each
    process, so that those that started together are not replaced together.

    It asks, and goes on working: the parent starts the successor first, and ends this process when that one is ready.
    """

    def __init__(
        self,
        pool: PoolSettings,
        *,
        presence: WorkerHeartbeat,
        clock: Clock,
        uniform: Callable[[], float],
        resident: Callable[[], int] = resident_kib,
    ) -> None:
        """Build it when the process starts.

        Args:
            pool: whose limits these are.
            presence: where memory is noted, and the request made.
            clock: of this machine.
            uniform: draws the jitter, from [0, 1).
            resident: returns the resident memory in KiB.
        """

        def about(limit: float | None) -> float:
            return float("inf") if limit is None else limit * (1 - _JITTER + 2 * _JITTER * uniform())

        self._runs_max = about(pool.recycle_runs)
        self._growth_kib_max = about(pool.recycle_growth_mib) * 1024
        self._age_ns_max = about(pool.recycle_age_s) * SECOND_NS
        self._presence = presence
        self._clock = clock
        self._resident = resident
        self._born_ns = clock.elapsed_ns()
        self._look_at_ns = 0
        self._ask_at_ns = 0
        self._baseline_kib = 0

    def tick(self, now_ns: int) -> None:
        """Ask to be replaced if it is time. Cheap: memory is looked at every few seconds only."""
        runs = self._presence.row.done
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + LOOK_NS
            self._measure(runs, now_ns)
        reason = self._reason(runs, now_ns)
        if reason is not None and now_ns >= self._ask_at_ns and self._presence.request(Verb.RECYCLE):
            if self._ask_at_ns == 0:
                log.info("worker_recycles", **reason)
            self._ask_at_ns = now_ns + ASK_NS

    def _measure(self, runs: int, now_ns: int) -> None:
        kib = self._presence.row.rss_kib = self._resident()
        if self._baseline_kib == 0 and (runs >= SETTLED_RUNS or now_ns - self._born_ns >= SETTLED_NS):
            self._baseline_kib = kib

    def _reason(self, runs: int, now_ns: int) -> dict[str, str | int] | None:
        if runs >= self._runs_max:
            return {"reason": "runs", "runs": runs}
        growth_kib = self._presence.row.rss_kib - self._baseline_kib
        if self._baseline_kib and growth_kib >= self._growth_kib_max:
            return {"reason": "growth", "growth_mib": growth_kib // 1024, "from_mib": self._baseline_kib // 1024}
        if now_ns - self._born_ns >= self._age_ns_max:
            return {"reason": "age", "age_s": (now_ns - self._born_ns) // SECOND_NS}
        return None
