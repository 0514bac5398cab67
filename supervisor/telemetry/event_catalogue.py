"""Event catalogue: the decisions that are published as events, under the name that the log gives them.

One decision has one name: of its line in the log, of its event, and, where it is counted, in the metric that counts
it. docs/events.md is this list, kept true by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from supervisor.telemetry import events

_FIRES = "tenure_fires_total"
_TERMS = "tenure_election_terms_total"


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """A decision as an event."""

    level: str
    subject: str = ""  # the field that names the object; empty: the replica
    note: str = ""  # a format over the fields
    metric: str = ""  # the counter of this decision, if it has one


DECISIONS: Mapping[str, DecisionEvent] = {
    "leader_acquired": DecisionEvent("info", note="epoch {epoch}, {reason}", metric=_TERMS),
    "leader_promoted": DecisionEvent(
        "warning", note="epoch {epoch}: the scheduler had died", metric="tenure_election_promotions_total"
    ),
    "leader_lapsed": DecisionEvent(
        "warning", note="epoch {epoch}: its trust ended before a renewal came", metric="tenure_election_lapses_total"
    ),
    "leader_lost": DecisionEvent("warning", note="epoch {epoch}, {reason}: {holder} leads", metric=_TERMS),
    "leader_released": DecisionEvent("info", note="epoch {epoch} was given back: {reason}", metric=_TERMS),
    "resign_refused": DecisionEvent("warning", note="{by} asked for a hand-over: {reason}"),
    "resign_requested": DecisionEvent("info", note="{by} asks the leader of epoch {epoch} to hand over"),
    "clock_skew_resigned": DecisionEvent("warning", note="the clock is {skew_s} s off; {to} follows"),
    "refusals_resigned": DecisionEvent("warning", note="Redis refused its scheduler's calls, or answered none"),
    "ineligible": DecisionEvent("error", note="{reason}; for {seconds} s"),
    "redis_lost_data": DecisionEvent(
        "error",
        note="{kind}, at epoch {epoch}; not restored: {not_restored}",
        metric="tenure_redis_lost_data_total",
    ),
    "fires_held": DecisionEvent("error", note="{reason}"),
    "duty_refused": DecisionEvent("error", "duty", "{error}"),
    "queue_refused": DecisionEvent("error", "queue", "{error}"),
    "session_reclaimed": DecisionEvent("warning", note="runs of session {session} were taken back"),
    "schedules_declared": DecisionEvent(
        "info", note="{added_count} added, {changed_count} changed, {removed_count} gone"
    ),
    "schedules_differ": DecisionEvent("warning", note="another set is in place: {remedy}"),
    "schedules_refused": DecisionEvent("error", note="{count} clash with dynamic ones"),
    "schedule_invalid": DecisionEvent("error", "schedule", "{reason}"),
    "schedules_put_off": DecisionEvent("error", note="Redis refuses {count}: {reason}"),
    "schedule_auto_paused": DecisionEvent("warning", "schedule", "{reason}"),
    "schedule_paused": DecisionEvent("info", "schedule", "requested"),
    "schedule_resumed": DecisionEvent("info", "schedule", "requested"),
    "schedule_dropped": DecisionEvent("warning", "schedule", "its buffer is full", _FIRES),
    "schedule_skewed": DecisionEvent("warning", "schedule", "this machine's clock is ahead of Redis'", _FIRES),
    "schedule_missed": DecisionEvent(
        "warning", "schedule", "{missed} due times passed: {reason}", "tenure_schedule_missed_total"
    ),
    "schedule_late": DecisionEvent("warning", "schedule", "{promise}: {why}", "tenure_schedule_late_total"),
    "schedule_recovered": DecisionEvent("info", "schedule", "it keeps what it promises again"),
    "fire_rejected": DecisionEvent("warning", "of", "{point} {hook}: {reason}"),
    "run_deferred": DecisionEvent("info", "of", "{point} {hook}: {reason}; again in {again_s} s"),
    "child_exited": DecisionEvent("warning", "slot", "pid {child_pid}"),
    "slot_given_up": DecisionEvent("error", "slot", "{last}; {next}"),
    "reload_done": DecisionEvent("info", note="reload {number}: {outcome}"),
    "reload_refused": DecisionEvent("error", note="reload {number}: {outcome}, {problems} problems"),
    "tree_ready": DecisionEvent("info", note="ready after {took_s} s"),
    "tree_stopping": DecisionEvent("info", note="{reason}"),
}


class _Gaps(dict[str, Any]):
    """Fields of a decision; one that is not there is a question mark, since the log has it."""

    def __missing__(self, key: str) -> str:
        return "?"


def log(decision: str, fields: Mapping[str, Any], *, level: str = "info") -> None:
    """Write the line of ``decision`` to the log, and record its event, if it is one."""
    getattr(structlog.get_logger(), level)(decision, **fields)
    record(decision, fields, level=level)


def record(decision: str, fields: Mapping[str, Any], *, level: str = "") -> None:
    """Record the event of ``decision``, if it is one; ``level``: that of the log line, where that differs."""
    event = DECISIONS.get(decision)
    if event is None or (decision == "child_exited" and level == "info"):  # one that was to end is no event
        return
    subject = str(fields.get(event.subject, "")) if event.subject else ""
    taken = {"reason", "note", "subject", "level", "is_logged", event.subject}
    is_worse = level in {"warning", "error"} and event.level == "info"
    events.record(
        decision,
        event.note.format_map(_Gaps(fields)),
        subject=subject,
        level=level if is_worse else event.level,
        is_logged=True,
        **{name: value for name, value in fields.items() if name not in taken},
    )
