"""A collection at chosen hours of the day: what inventories ask of a scheduler."""

from __future__ import annotations

from datetime import UTC, datetime

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.schedules.triggers import trigger_of

DAY_MS = 86_400_000
MIDNIGHT_MS = round(datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1000)


def test_chosen_hours_of_a_day_are_a_list_in_a_cron() -> None:
    """Within 24 hours it is due at each of them once, and at no other."""
    template = Template(job="collect", kind=Kind.ASYNC)
    trigger = trigger_of(ScheduleDef(id="hourly", template=template, cron="0 0,6,12 * * *", timezone="UTC"))
    at_ms, hours = MIDNIGHT_MS - 1, []
    while (due_ms := trigger.next_ms(at_ms)) is not None and due_ms < MIDNIGHT_MS + DAY_MS:
        hours.append((due_ms - MIDNIGHT_MS) / 3_600_000)
        at_ms = due_ms
    assert hours == [0, 6, 12]
