"""Grids that begin when the cluster first sees their schedule."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.schedules.diff import settled
from supervisor.core.schedules.triggers import trigger_of

HOUR_MS = 3_600_000
SEEN = datetime(2025, 1, 1, 10, 20, 7, tzinfo=UTC)
SEEN_MS = int(SEEN.timestamp() * 1000)


def definition(anchor: str, every_ms: int, *, phase_ms: int = 0, timezone: str = "UTC") -> ScheduleDef:
    template = Template(job="demo", kind=Kind.SYNC)
    return ScheduleDef(
        id="s", template=template, anchor=anchor, every_ms=every_ms, phase_ms=phase_ms, timezone=timezone
    )


@pytest.mark.parametrize(
    ("declared", "first"),
    [
        (definition("first_seen", 30_000), "2025-01-01T10:20:37"),
        (definition("first_seen", HOUR_MS), "2025-01-01T11:20:07"),
        (definition("first_seen_hour", 2 * HOUR_MS), "2025-01-01T12:00:00"),
        (definition("first_seen_hour", 6 * HOUR_MS), "2025-01-01T16:00:00"),
        (definition("first_seen_hour", 24 * HOUR_MS, phase_ms=HOUR_MS // 2), "2025-01-02T10:30:00"),
        (definition("first_seen_hour", 3600 * HOUR_MS), "2025-05-31T10:00:00"),
        (definition("first_seen_hour", 2 * HOUR_MS, timezone="Asia/Kolkata"), "2025-01-01T11:30:00"),
    ],
)
def test_the_first_due_time_is_that_of_a_process_started_then(declared: ScheduleDef, first: str) -> None:
    """As measured of the original: one interval later, or one after the full hour of the schedule's zone."""
    found = settled(declared, None, SEEN_MS)
    trigger = trigger_of(found)
    due_ms = trigger.next_ms(SEEN_MS)
    assert due_ms is not None
    assert datetime.fromtimestamp(due_ms / 1000, UTC).replace(tzinfo=None).isoformat() == first
    assert trigger.next_ms(due_ms) == due_ms + (declared.every_ms or 0)


@pytest.mark.parametrize(
    ("seen", "first"), [("2025-01-01T10:20:07", "2025-01-01T12:00:00"), ("2025-07-01T10:20:07", "2025-07-01T11:30:00")]
)
def test_the_full_hour_is_that_of_the_zone_at_that_time_of_the_year(seen: str, first: str) -> None:
    """Lord Howe Island is half an hour nearer to UTC in July than in January."""
    seen_ms = int(datetime.fromisoformat(f"{seen}+00:00").timestamp() * 1000)
    declared = definition("first_seen_hour", 2 * HOUR_MS, timezone="Australia/Lord_Howe")
    due_ms = trigger_of(settled(declared, None, seen_ms)).next_ms(seen_ms)
    assert due_ms is not None
    assert datetime.fromtimestamp(due_ms / 1000, UTC).replace(tzinfo=None).isoformat() == first


def test_what_redis_holds_decides_later_unless_the_timing_changed() -> None:
    """A restart, another leader and new arguments move nothing; a new interval begins anew."""
    declared = definition("first_seen", 60_000)
    stored = settled(declared, None, SEEN_MS)
    later_ms = SEEN_MS + 12_345
    assert settled(declared, stored, later_ms) == stored
    described = msgspec.structs.replace(declared, description="another")
    assert settled(described, stored, later_ms).start_at_ms == stored.start_at_ms
    changed = definition("first_seen", 90_000)
    assert settled(changed, stored, later_ms).start_at_ms == later_ms + 90_000
    assert settled(definition("epoch", 60_000), stored, later_ms) == definition("epoch", 60_000)
