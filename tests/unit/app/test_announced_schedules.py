"""What a start tells of its schedules."""

from __future__ import annotations

from typing import Any

from supervisor.app.announce import SCHEDULES_LISTED_MAX, announce_schedules
from supervisor.core.model import Kind, ScheduleDef, Template

NOW_MS = 1_735_726_800_000  # 2025-01-01T10:20:00Z


def told(*definitions: ScheduleDef) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    announce_schedules(definitions, NOW_MS, lambda event, **fields: lines.append({"event": event, **fields}))
    return lines


def definition(name: str, **fields: Any) -> ScheduleDef:
    return ScheduleDef(id=name, template=Template(job="demo", kind=Kind.SYNC), **fields)


def test_each_schedule_is_told_once_with_its_trigger_zone_and_next_time() -> None:
    """What a person wants to see after a start: that it is there, and when it comes."""
    domain, seoul, paused = told(
        definition("DomainScheduler", every_ms=3_600_000),
        definition("report", cron="30 2 * * *", timezone="Asia/Seoul"),
        definition("waiting", every_ms=60_000, paused=True, pause_reason="TOKEN is empty"),
    )
    assert domain == {
        "event": "schedule_registered", "name": "DomainScheduler", "job": "demo", "timezone": "UTC",
        "trigger": "every 1h", "next_fire": "2025-01-01T11:00:00+00:00",
    }  # fmt: skip
    assert (seoul["timezone"], seoul["next_fire"]) == ("Asia/Seoul", "2025-01-01T17:30:00+00:00")
    assert (paused["next_fire"], paused["paused"]) == (None, "TOKEN is empty")


def test_of_very_many_schedules_the_first_are_told_and_the_rest_counted() -> None:
    """A start with 100,000 schedules does not flood the log."""
    lines = told(*(definition(f"s{number}", every_ms=60_000) for number in range(SCHEDULES_LISTED_MAX + 7)))
    assert len(lines) == SCHEDULES_LISTED_MAX + 1
    assert lines[-1] == {"event": "schedules_registered", "listed": SCHEDULES_LISTED_MAX, "more": 7}
