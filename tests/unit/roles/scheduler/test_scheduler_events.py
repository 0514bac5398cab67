"""What the scheduler decides and hears, as events."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from supervisor.core.events import Event
from supervisor.roles.scheduler.main import SchedulerReport
from supervisor.telemetry import events
from supervisor.telemetry.events import Mailbox
from tests.kit.tables import table


@table(
    ("decision", "fields", "expected"),
    [
        ("schedule_paused", {"schedule": "s"}, ("schedule_paused", "info", "s")),
        ("schedule_resumed", {"schedule": "s"}, ("schedule_resumed", "info", "s")),
        ("schedule_auto_paused", {"schedule": "s", "reason": "fails"}, ("schedule_auto_paused", "warning", "s")),
        (
            "schedule_late",
            {"schedule": "s", "promise": "finish_within", "why": "x", "count": 1},
            ("schedule_late", "warning", "s"),
        ),
        ("schedule_recovered", {"schedule": "s"}, ("schedule_recovered", "info", "s")),
        ("schedule_invalid", {"schedule": "s", "reason": "bad"}, ("schedule_invalid", "error", "s")),
        ("schedules_refused", {"clashes": ["a"], "count": 1}, ("schedules_refused", "error", "")),
        ("schedules_declared", {"is_refused": False, "added_count": 2}, ("schedules_declared", "info", "")),
    ],
)
def test_a_schedule_that_changes_is_an_event(
    decision: str, fields: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    """Registered, paused by a person, suspended by itself: whoever owns the schedule wants to know."""
    mailbox = Mailbox()
    events.attach(mailbox.write_fd, replica="r1", role="scheduler")
    try:
        SchedulerReport()(decision, **fields)
        event = msgspec.json.decode(os.read(mailbox.read_fd, 1 << 16), type=Event)
    finally:
        events.attach(None, replica="", role="")
        for descriptor in mailbox.descriptors:
            os.close(descriptor)

    assert (event.reason, event.level, event.subject) == expected
