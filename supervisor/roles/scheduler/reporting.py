"""Turns what the scheduler decides into log lines and metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import structlog

from supervisor.telemetry.metrics import (
    ELECTION_FENCED,
    ENQUEUED,
    FIRES,
    MISSED,
    REDIS_ERRORS,
    SCHEDULE_LATENESS_SECONDS,
    SCHEDULES,
)

_DECIDED = {"fired", "skipped"}
_LEVELS = {"fenced": "warning", "schedule_invalid": "error", "clock_ahead_of_redis": "warning"}


class SchedulerReport:
    """Log and metrics of the scheduler."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()

    def __call__(self, event: str, **fields: Any) -> None:
        """Tell one decision."""
        if event == "fire":
            self._fire(**fields)
            return
        if event == "scheduler_unanswered":
            REDIS_ERRORS.labels(op=fields["script"]).inc()
            if fields["failures"] > 1:
                return  # one line for each outage
        elif event == "fenced":
            ELECTION_FENCED.inc()
        elif event == "term_served":
            SCHEDULES.set(fields["schedules"])
        elif event == "schedule_planned":
            next_ms = fields.pop("next_ms")
            fields["next"] = None if next_ms is None else datetime.fromtimestamp(next_ms / 1000, UTC).isoformat()
        getattr(self._log, _LEVELS.get(event, "info"))(event, **fields)

    def _fire(
        self, *, schedule: str, nominal_ms: int, code: str, missed: int, late_ms: int, run: str, queue: str, job: str
    ) -> None:
        FIRES.labels(code=code).inc()
        if code == "fired":
            ENQUEUED.labels(queue=queue, job=job).inc()
            SCHEDULE_LATENESS_SECONDS.observe(max(0, late_ms) / 1000)
        if code in _DECIDED and missed:
            MISSED.inc(missed)
            self._log.warning("schedule_missed", schedule=schedule, missed=missed)
        tell = self._log.info if code in _DECIDED else self._log.warning
        tell(f"schedule_{code}", schedule=schedule, run=run, nominal_ms=nominal_ms, late_ms=late_ms)
