"""Turns decisions of the election and the reaper into log lines and metrics."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.election.lease import Loss
from supervisor.core.jobs.registry import registry
from supervisor.store.election.leases import RENEWALS
from supervisor.store.queues.runs import EndedRun
from supervisor.telemetry import event_catalogue
from supervisor.telemetry.metrics import (
    ELECTION_CAMPAIGNS,
    ELECTION_CANDIDATES,
    ELECTION_HANDOFF_SECONDS,
    ELECTION_LAPSES,
    ELECTION_LEADERLESS_SECONDS,
    ELECTION_PROMOTIONS,
    ELECTION_RECLAIMS,
    ELECTION_REGRESSIONS,
    ELECTION_RENEW_SECONDS,
    ELECTION_RENEWALS,
    ELECTION_SUSPICIONS,
    ELECTION_TERMS,
    ELECTION_TRANSITIONS,
    ELECTION_TWINS,
    REDIS_ERRORS,
    REDIS_LOST_DATA,
    RUNS_FINISHED,
    RUNS_RECLAIMED,
    UNKNOWN_JOB,
    job_label,
)
from supervisor.telemetry.run_events import RUN_ENDS, record_end
from supervisor.telemetry.run_lines import Fold

_LEVELS = {
    "leader_lapsed": "warning",
    "release_unanswered": "warning",
    "ineligible": "warning",
    "session_lost": "warning",
    "session_reclaimed": "warning",
    "elector_crashed": "error",
    "elector_stuck": "error",
    "redis_lost_data": "error",
    "lease_unreadable": "warning",
    "fires_held": "error",
    "trust_deferred": "warning",
    "leader_promoted": "warning",
    "leader_suspected": "warning",
    "renewal_withheld": "warning",
    "name_used_twice": "warning",
    "schedules_differ": "warning",
    "clock_skewed": "warning",
    "ingest_refused": "warning",
    "messages_set_aside": "warning",
    "clock_skew_resigned": "warning",
    "refusals_resigned": "warning",
    "duty_refused": "error",
    "queue_refused": "error",
}
_RENEWED = {code.value.lower() for code in RENEWALS}
ENDED_LINES_MAX = 50  # a second
NOT_RESTORED = "pauses, counts of max_runs, buffers"
"""What nobody writes back after a loss of data: of the state of schedules replicas remember watermarks alone."""


class AgentReport:
    """Log and metrics of the agent."""

    def __init__(self, clock: Clock | None = None, jobs: Container[str] = registry) -> None:
        self._clock = clock or SystemClock()
        self.jobs = jobs
        """Names of the jobs of this replica; any other may be invented by whoever enqueues."""

        self._ended_lines = Fold(ENDED_LINES_MAX)
        self._log = structlog.get_logger()
        self._is_away = False  # one line when Redis goes away, one when it is back
        for kind in (Loss.DATA, Loss.ROLLED_BACK):
            REDIS_LOST_DATA.labels(kind=kind.value)  # from 0 on: an alarm sees growth alone

    def __call__(self, event: str, **fields: Any) -> None:
        """Report one decision."""
        if event == "election_answer":
            self._answer(**fields)
        elif event == "election_unanswered":
            self._unanswered(**fields)
        elif event in {"duty_refused", "queue_refused"}:
            self._refused(event, **fields)
        elif event == "runs_ended":
            self._ended(**fields)
        elif event == "candidates":
            ELECTION_CANDIDATES.set(fields["count"])
        elif event == "twins":
            ELECTION_TWINS.set(fields["count"])
        else:
            if event == "redis_lost_data":
                fields["not_restored"] = NOT_RESTORED
            self._count(event, fields)
            event_catalogue.log(event, fields, level=_LEVELS.get(event, "info"))

    def _answer(self, *, operation: str, result: str, seconds: float, mode: str) -> None:
        if self._is_away:
            self._is_away = False
            self._log.info("redis_answers_again", operation=operation)
        if operation == "renew":
            ELECTION_RENEWALS.labels(result="ok" if result in _RENEWED else "lost").inc()
            ELECTION_RENEW_SECONDS.observe(seconds)
        if operation == "renew" and result == "reclaimed":
            ELECTION_RECLAIMS.inc()
        if operation == "campaign":
            ELECTION_CAMPAIGNS.labels(mode=mode, result=result).inc()

    def _unanswered(self, *, operation: str, failures: int, error: str) -> None:
        REDIS_ERRORS.labels(op=operation).inc()
        if operation == "renew":
            ELECTION_RENEWALS.labels(result="timeout").inc()
        if not self._is_away:
            self._is_away = True
            self._log.warning("redis_unanswered", operation=operation, failures=failures, error=error)

    def _refused(self, event: str, *, is_new: bool, **fields: Any) -> None:
        REDIS_ERRORS.labels(op=fields.get("duty", "reclaim")).inc()
        if is_new:
            event_catalogue.log(event, fields, level="error")

    def _ended(self, *, runs: Sequence[EndedRun], how: str) -> None:
        """Report runs that ended with their worker, as that reports ends; of many most lines are folded."""
        for run in runs:
            self._end(run, f"{run.reason}: {how}" if how else run.reason)
        self.flush()

    def flush(self, *, is_last: bool = False) -> None:
        """Write the folded lines of a second that is over; of any with ``is_last``."""
        for folded in self._ended_lines.take(self._clock.elapsed_ns(), is_last=is_last):
            self._log.warning("failures_folded", **folded.fields(), last_error=folded.note)

    def _end(self, run: EndedRun, error: str) -> None:
        job, label = run.job or UNKNOWN_JOB, job_label(run.job, self.jobs)
        facts = {"run": run.run_id, "attempt": run.attempt, "queue": run.queue}
        if run.schedule:
            facts["schedule"] = run.schedule
        RUNS_FINISHED.labels(run.queue, label, run.outcome.value).inc()
        if self._ended_lines.admits(self._clock.elapsed_ns()):
            event, level, _ = RUN_ENDS[run.outcome]
            getattr(self._log, level)(event, job=job, outcome=run.outcome.value, error=error, **facts)
        else:
            self._ended_lines.add(job, run.outcome.value, 0.0, error)
        record_end(run.outcome, error, job=label, facts=facts)

    def _count(self, event: str, fields: dict[str, Any]) -> None:
        if event == "leader_acquired":
            if fields["reason"] != "reclaimed":  # the same term goes on
                ELECTION_TERMS.labels(event=event, reason=fields["reason"]).inc()
                ELECTION_TRANSITIONS.labels(reason=fields["reason"]).inc()
            _count_gap(**fields)
        elif event == "leader_promoted":
            ELECTION_PROMOTIONS.inc()
        elif event == "leader_lapsed":
            ELECTION_LAPSES.inc()
        elif event == "leader_suspected":
            ELECTION_SUSPICIONS.labels(confirmed="yes" if fields["confirmed"] else "no").inc()
        elif event == "redis_lost_data":
            REDIS_LOST_DATA.labels(kind=fields["kind"]).inc()
            ELECTION_REGRESSIONS.labels(kind=fields["kind"]).inc()
        elif event in {"leader_lost", "leader_released"}:
            ELECTION_TERMS.labels(event=event, reason=fields["reason"]).inc()
            ELECTION_TRANSITIONS.labels(reason=f"lost_{fields['reason']}").inc()
        elif event == "session_reclaimed":
            for reason, count in fields["reasons"].items():
                RUNS_RECLAIMED.labels(reason=reason).inc(count)


def _count_gap(*, gap_ms: int, mode: str, **_: Any) -> None:
    """Count how long nobody held the lease; -1: this was no grant, or the first."""
    if gap_ms < 0:
        return
    ELECTION_LEADERLESS_SECONDS.inc(gap_ms / 1000)
    if mode == "free":
        ELECTION_HANDOFF_SECONDS.observe(gap_ms / 1000)
