"""Drops records that queues have kept for long enough: `queues.history_age` and `queues.dead_age`.

Guarantees
    Each run makes at most ``SLICE`` calls, one for each queue, which drops up to 500 entries of each kind: a store
    that was never trimmed is brought down little by little, and other duties go on in between. Every agent may do it:
    a second removal finds nothing. A queue that Redis refuses is counted and left out.

Does not guarantee
    That an entry goes at the second: each queue is looked at once a minute, or as often as their number allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor.core.errors import StoreRefusedError
from supervisor.core.units import MILLISECOND_NS
from supervisor.settings.sections.queues import QueueSettings
from supervisor.store.queues.runs import Queues
from supervisor.store.scripts import Call
from supervisor.telemetry.metrics import REDIS_ERRORS

PERIOD_NS = 60_000 * MILLISECOND_NS
SLICE, SLICE_PERIOD_NS = 50, 500 * MILLISECOND_NS


class Retention:
    """The task of one agent. There is none where no age is set."""

    name = "retention"

    def __init__(self, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> None:
        self._run = run
        self._queues = queues
        self._limits = limits
        self._left: list[str] = []  # queues of this round

    @property
    def period_ns(self) -> int:
        """Time until the next run."""
        return SLICE_PERIOD_NS if self._left else PERIOD_NS

    @classmethod
    def of(cls, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> Retention | None:
        """Return the duty; None if nothing goes by its age."""
        if limits.history_age_s is None and limits.dead_age_s is None:
            return None
        return cls(run=run, queues=queues, limits=limits)

    def run(self, _now_ns: int) -> None:
        """Drop records that are too old, up to a bound for each queue."""
        self._left = self._left or self._run(self._queues.names())
        queues, self._left = self._left[:SLICE], self._left[SLICE:]
        for name in queues:
            try:
                self._trim(name)
            except StoreRefusedError as error:
                if error.concerns_client:
                    raise
                REDIS_ERRORS.labels(op="queue_trim").inc()

    def _trim(self, name: str) -> None:
        limits = self._limits
        self._run(
            self._queues.trim(
                name,
                history=limits.history,
                dead_cap=limits.dead,
                dead_age_ms=round(1000 * (limits.dead_age_s or 0)),
                history_age_ms=round(1000 * (limits.history_age_s or 0)),
            )
        )
