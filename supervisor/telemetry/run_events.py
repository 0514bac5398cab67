"""Ends of runs: the name and level of each in log and events, whichever process tells it.

docs/events.md has the same list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from supervisor.core.model import Outcome
from supervisor.telemetry import events


class EndEvent(NamedTuple):
    """Event of one outcome, also the name of its line in the log."""

    event: str
    level: str = "info"
    audience: frozenset[str] = frozenset({"all"})  # values of ``events.runs`` with which it is an event


_ALWAYS = frozenset({"failures", "all"})
RUN_ENDS = {
    Outcome.OK: EndEvent("run_succeeded"),
    Outcome.REPLACED: EndEvent("run_replaced"),
    Outcome.CANCELLED: EndEvent("run_cancelled"),
    Outcome.AGAIN: EndEvent("run_again"),
    Outcome.RETRY: EndEvent("run_failed", "warning", _ALWAYS),
    Outcome.DEAD: EndEvent("run_dead", "error", _ALWAYS),
}
"""Outcomes that are absent are told by their cause, and are no ends of runs among the events."""


def record_end(outcome: Outcome, note: str, *, job: str, facts: dict[str, Any]) -> None:
    """Record the event of a run's end, if the settings ask for it."""
    end = RUN_ENDS.get(outcome)
    if end is not None and events.run_events() in end.audience:
        events.record(end.event, note, subject=job, level=end.level, is_logged=True, **facts)
