"""Start-up log of the declared schedules: one event for each, with its trigger and next due time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import trigger_of

TOLD_MAX = 100
"""At most so many schedules are told of one by one; the rest by their number."""

Log = Callable[..., None]


def announce_schedules(definitions: Sequence[ScheduleDef], now_ms: int, log: Log) -> None:
    """Log one event for each of the first schedules, and how many more there are."""
    for definition in definitions[:TOLD_MAX]:
        try:
            trigger = trigger_of(definition)
            told = {"trigger": trigger.describe(), "next_fire": _moment(trigger.next_ms(now_ms))}
        except TenureError as error:
            told = {"trigger": f"cannot be used: {error}", "next_fire": None}
        if definition.paused:
            told |= {"next_fire": None, "paused": definition.pause_reason or "paused"}
        log(
            "schedule_registered",
            name=definition.id,
            job=definition.template.job,
            timezone=definition.timezone,
            **told,
        )
    if len(definitions) > TOLD_MAX:
        log("schedules_registered", told=TOLD_MAX, more=len(definitions) - TOLD_MAX)


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
