"""A schedule in words, and what to watch out for."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules.lints import lints, sentences
from tests.kit.tables import table

NOW = 1_793_491_200_000  # 2026-11-01T00:00Z
USES_INTERVAL = Template(job="j", kind=Kind.SYNC, args={"a": ["{{ interval_start }} {{ next | utc }}", "{{ date }}"]})


def make(**fields: Any) -> ScheduleDef:
    return ScheduleDef(**{"id": "s", "template": Template(job="j", kind=Kind.SYNC)} | fields)


def test_each_trigger_of_a_union_is_a_sentence() -> None:
    """With what bounds and excludes it."""
    found = sentences(
        make(cron="30 2 * * *", when=(When(every_ms=60_000),), exclude=(Exclusion(cron="* * 25 12 *"),), end_at_ms=NOW)
    )
    assert found[0].startswith("At 02:30, in UTC.")
    assert found[1:] == ["Every 1m.", "Except 1 exclusion(s).", "Not after 2026-11-01T00:00:00+00:00."]


@pytest.mark.parametrize(
    ("cron", "is_warned"),
    [
        ("0 3 1 * MON", True),
        ("0 0 3 1 * MON", True),
        ("0 3 * * MON", False),
        ("0 3 */2 * MON", False),
        ("0 3 1 * ?", False),
        ("@daily", False),
    ],
)
def test_two_restricted_day_fields_are_warned_of(cron: str, is_warned: bool) -> None:  # noqa: FBT001 - a table
    """Cron takes either day, which surprises most people once."""
    assert any(" OR " in note for note in lints(make(cron=cron), now_ms=NOW)) is is_warned


@table(
    ("fields", "note"),
    [
        ({"cron": "0 9 ? * 2-6"}, "here 1 is Monday"),
        ({"cron": "0 0 9 * * 1"}, "here 1 is Monday"),
        ({"cron": "0 9 ? * MON-FRI"}, None),
        ({"cron": "0 9 ? * MON#1"}, None),
        ({"cron": "0 9 * * 1-5"}, None),
        ({"cron": "*/45 * * * *"}, "for an even interval, write every: 45m"),
        ({"cron": "*/15 * * * *"}, None),
        ({"every_ms": 86_400_000, "timezone": "Europe/Berlin"}, "in UTC; use cron or calendar_interval"),
        ({"every_ms": 86_400_000}, None),
        ({"every_ms": 60_000, "overlap": "allow", "max_running": 3}, "max_running has no effect on overlap: allow"),
        ({"every_ms": 60_000, "missed": "skip", "on_resume": "catchup"}, "on_resume: catchup has no effect"),
        ({"at_ms": NOW + 1, "template": USES_INTERVAL}, "interval_start, next in args: null"),
        ({"after_completion_ms": 1000, "template": USES_INTERVAL}, "interval_start, next in args: null"),
        ({"every_ms": 60_000, "template": USES_INTERVAL}, None),
        ({"at_ms": NOW + 1, "when": (When(cron="0 0 * * *"),), "template": USES_INTERVAL}, None),
        ({"every_ms": 60_000, "jitter_ms": 60_001}, "jitter is longer than every"),
    ],
)
def test_what_reads_otherwise_elsewhere_or_has_no_effect_is_noted(fields: dict[str, Any], note: str | None) -> None:
    """Accepted, and most likely meant otherwise."""
    found = " ".join(lints(make(**fields), now_ms=NOW))
    assert note in found if note else not found


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({}, "falls into a gap of the clock on 2027-03-28 in Europe/Berlin: dst_gap run, so it runs as the gap ends"),
        (
            {"dst_gap": "skip"},
            "falls into a gap of the clock on 2027-03-28 in Europe/Berlin: dst_gap skip, so it does not run",
        ),
        ({}, "comes twice on 2027-10-31 in Europe/Berlin: dst_overlap first, so it runs on the first pass"),
        (
            {"dst_overlap": "both"},
            "comes twice on 2027-10-31 in Europe/Berlin: dst_overlap both, so it runs on both passes",
        ),
    ],
)
def test_changes_of_the_clock_are_told_with_their_date(policy: dict[str, str], told: str) -> None:
    """Within two years."""
    notes = lints(make(cron="30 2 * * *", timezone="Europe/Berlin", **policy), now_ms=NOW)
    assert any(note.endswith(told) for note in notes), notes


@pytest.mark.parametrize("timing", [{"cron": "30 5 * * *"}, {"cron": "*/15 * * * *"}, {"every_ms": 60_000}])
def test_what_no_change_of_the_clock_meets_is_not_warned_of(timing: dict[str, Any]) -> None:
    """A warning that is not true teaches people to read none."""
    assert lints(make(timezone="Europe/Berlin", **timing), now_ms=NOW) == []


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({"at_ms": NOW - 1}, True),
        ({"at_ms": NOW + 1}, False),
        ({"when": (When(at_ms=NOW - 2), When(at_ms=NOW - 1))}, True),
        ({"when": (When(at_ms=NOW - 2), When(every_ms=60_000))}, False),
        ({"every_ms": 60_000, "end_at_ms": NOW - 1}, True),
        ({"when": (When(at_ms=NOW - 2), When(after_completion_ms=60_000))}, False),
        ({"after_completion_ms": 60_000, "end_at_ms": NOW - 1}, True),
    ],
)
def test_what_lies_in_the_past_only_is_told(fields: dict[str, Any], is_told: bool) -> None:  # noqa: FBT001 - a table
    """It never runs, and nothing else says so."""
    told = "is not due any more: every time that it names has passed"
    assert (told in lints(make(**fields), now_ms=NOW)) is is_told


@pytest.mark.parametrize(
    ("fields", "used", "told"),
    [
        ({"cancel_grace_ms": 1}, {"overlap": "cancel_other"}, "cancel_grace has no effect on overlap: skip"),
        ({"max_catchup": 5}, {"missed": "all"}, "max_catchup has no effect on missed: latest"),
        ({"pause_reason": "x"}, {"paused": True}, "pause_reason has no effect without paused"),
        ({"dst_gap": "skip"}, {"cron": "0 5 * * *"}, "dst_gap has no effect without cron"),
        ({"dst_overlap": "both"}, {"cron": "0 5 * * *"}, "dst_overlap has no effect without cron"),
    ],
)
def test_a_setting_without_effect_is_told(fields: dict[str, Any], used: dict[str, Any], told: str) -> None:
    """Its author believes that it does something; where it does, nothing is said."""
    (note,) = lints(make(every_ms=60_000, **fields), now_ms=NOW)
    assert note.startswith(told)
    assert lints(make(**{"every_ms": None if "cron" in used else 60_000} | used | fields), now_ms=NOW) == []
