"""Turns what the election and the reaper decide into log lines and metrics."""

from __future__ import annotations

from typing import Any

import structlog

from supervisor.telemetry.metrics import (
    ELECTION_CANDIDATES,
    ELECTION_RENEW_SECONDS,
    ELECTION_RENEWALS,
    ELECTION_TRANSITIONS,
    REDIS_ERRORS,
    RUNS_RECLAIMED,
)

_LEVELS = {
    "leader_lapsed": "warning",
    "release_unanswered": "warning",
    "ineligible": "warning",
    "session_lost": "warning",
    "session_reclaimed": "warning",
    "elector_crashed": "error",
}
_RENEWED = {"renewed", "reclaimed"}


class AgentReport:
    """Log and metrics of the agent."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._is_away = False  # one line when Redis goes away, one when it is back

    def __call__(self, event: str, **fields: Any) -> None:
        """Tell one decision."""
        if event == "election_answer":
            self._answer(**fields)
        elif event == "election_unanswered":
            self._unanswered(**fields)
        elif event == "candidates":
            ELECTION_CANDIDATES.set(fields["count"])
        else:
            self._count(event, fields)
            getattr(self._log, _LEVELS.get(event, "info"))(event, **fields)

    def _answer(self, *, operation: str, result: str, seconds: float) -> None:
        if self._is_away:
            self._is_away = False
            self._log.info("redis_answers_again", operation=operation)
        if operation == "renew":
            ELECTION_RENEWALS.labels(result="ok" if result in _RENEWED else "lost").inc()
            ELECTION_RENEW_SECONDS.observe(seconds)

    def _unanswered(self, *, operation: str, failures: int, error: str) -> None:
        REDIS_ERRORS.labels(op=operation).inc()
        if operation == "renew":
            ELECTION_RENEWALS.labels(result="timeout").inc()
        if not self._is_away:
            self._is_away = True
            self._log.warning("redis_unanswered", operation=operation, failures=failures, error=error)

    def _count(self, event: str, fields: dict[str, Any]) -> None:
        if event == "leader_acquired":
            ELECTION_TRANSITIONS.labels(reason=fields["reason"]).inc()
        elif event in {"leader_lost", "leader_released"}:
            ELECTION_TRANSITIONS.labels(reason=f"lost_{fields['reason']}").inc()
        elif event == "session_reclaimed":
            for reason, count in fields["reasons"].items():
                RUNS_RECLAIMED.labels(reason=reason).inc(count)
