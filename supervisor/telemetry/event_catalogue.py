"""Event catalogue: the decisions that are published as events, and their names.

A decision is logged under a name of its own; here is its reason as an event, its subject, and how
bad it is. docs/events.md is this list, kept true by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.telemetry import events


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """A decision as an event."""

    reason: str
    level: str
    subject: str = ""  # the field that names what it is about; empty: the replica
    note: str = ""  # a format over the fields


DECISIONS: Mapping[str, DecisionEvent] = {
    "leader_acquired": DecisionEvent("became_leader", "info", note="epoch {epoch}, {reason}"),
    "leader_promoted": DecisionEvent("scheduler_promoted", "warning", note="epoch {epoch}: the scheduler had died"),
    "leader_lapsed": DecisionEvent(
        "stopped_leading", "warning", note="epoch {epoch}: its trust ended before a renewal came"
    ),
    "leader_lost": DecisionEvent("stopped_leading", "warning", note="epoch {epoch}, {reason}: {holder} leads"),
    "leader_released": DecisionEvent("stopped_leading", "info", note="epoch {epoch} was given back: {reason}"),
    "resign_refused": DecisionEvent("resign_refused", "warning", note="{by} asked for a hand-over: {reason}"),
    "resign_requested": DecisionEvent(
        "resign_requested", "info", note="{by} asks the leader of epoch {epoch} to hand over"
    ),
    "clock_skew_resigned": DecisionEvent(
        "resigned_for_clock", "warning", note="the clock is {skew_s} s off; {to} follows"
    ),
    "refusals_resigned": DecisionEvent("resigned_for_refusals", "warning", note="Redis refused its scheduler's calls"),
    "ineligible": DecisionEvent("became_ineligible", "error", note="{reason}; for {seconds} s"),
    "redis_lost_data": DecisionEvent("redis_lost_data", "error", note="{kind}, at epoch {epoch}"),
    "fires_held": DecisionEvent("fires_held", "error", note="{reason}"),
    "duty_refused": DecisionEvent("duty_refused", "error", "duty", "{error}"),
    "queue_refused": DecisionEvent("queue_refused", "error", "queue", "{error}"),
    "session_reclaimed": DecisionEvent(
        "session_reclaimed", "warning", note="runs of session {session} were given back"
    ),
    "schedules_declared": DecisionEvent(
        "schedules_registered", "info", note="{added_count} added, {changed_count} changed, {removed_count} gone"
    ),
    "schedules_refused": DecisionEvent("schedules_refused", "error", note="{count} clash with dynamic ones"),
    "schedule_invalid": DecisionEvent("schedule_invalid", "error", "schedule", "{reason}"),
    "schedules_put_off": DecisionEvent("schedules_put_off", "error", note="Redis refuses {count}: {reason}"),
    "schedule_paused": DecisionEvent("schedule_suspended", "warning", "schedule", "{reason}"),
    "schedule_pause": DecisionEvent("schedule_paused", "info", "schedule", "somebody asked for it"),
    "schedule_resume": DecisionEvent("schedule_resumed", "info", "schedule", "somebody asked for it"),
    "schedule_dropped": DecisionEvent("fire_dropped", "warning", "schedule", "its buffer is full"),
    "schedule_skewed": DecisionEvent("fire_refused", "warning", "schedule", "this machine's clock is ahead of Redis'"),
    "schedule_missed": DecisionEvent("fires_missed", "warning", "schedule", "{missed} due times passed: {reason}"),
    "fire_rejected": DecisionEvent("fire_rejected", "warning", "of", "{point} {hook}: {reason}"),
    "run_deferred": DecisionEvent("run_deferred", "info", "of", "{point} {hook}: {reason}; again in {again_s} s"),
    "child_exited": DecisionEvent("child_died", "warning", "slot", "pid {child_pid}"),
    "slot_given_up": DecisionEvent("slot_given_up", "error", "slot", "{last}; {next}"),
    "reload_done": DecisionEvent("reloaded", "info", note="reload {number}: {outcome}"),
    "reload_refused": DecisionEvent("reload_refused", "error", note="reload {number}: {outcome}, {problems} problems"),
    "tree_ready": DecisionEvent("replica_started", "info", note="ready after {took_s} s"),
    "tree_stopping": DecisionEvent("replica_stopping", "info", note="{reason}"),
}


class _Gaps(dict[str, Any]):
    """Fields of a decision; one that is not there is a question mark, since the log has it."""

    def __missing__(self, key: str) -> str:
        return "?"


def tell(decision: str, fields: Mapping[str, Any], *, level: str = "") -> None:
    """Record the event of ``decision``, if it is one; ``level``: that of the log line, where that differs."""
    told = DECISIONS.get(decision)
    if told is None or (decision == "child_exited" and level == "info"):  # one that was to end is no event
        return
    known = _Gaps(fields)
    subject = str(fields.get(told.subject, "")) if told.subject else ""
    taken = {"reason", "note", "subject", "level", "is_logged", told.subject}
    plain = {name: value for name, value in fields.items() if name not in taken}
    is_worse = level in {"warning", "error"} and told.level == "info"
    events.record(
        told.reason,
        told.note.format_map(known),
        subject=subject,
        level=level if is_worse else told.level,
        is_logged=True,
        **plain,
    )
