"""What an edit means: which fields differ, and which due time is kept that waits for its jitter."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template, When
from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.core.schedules.diff import FieldChange, field_changes, kept_mark_ms

HOUR = 3_600_000


def make(**fields: Any) -> ScheduleDef:
    template = fields.pop("template", Template(job="j", kind=Kind.SYNC))
    return ScheduleDef(**{"id": "s", "template": template, "every_ms": HOUR, "jitter_ms": HOUR} | fields)


OLD = make()
NOMINAL = 500_000 * HOUR
FIRE = fire_at_ms(OLD, NOMINAL, NOMINAL + HOUR)
BEFORE_FIRE = FIRE - 1


def kept(new: ScheduleDef, *, now_ms: int = BEFORE_FIRE, mark_ms: int = NOMINAL - HOUR) -> int | None:
    return kept_mark_ms(OLD, new, mark_ms=mark_ms, now_ms=now_ms)


def test_the_due_time_that_waits_for_its_jitter_is_kept() -> None:
    """Temporal #4866: an edit between the due time and its fire lost the run."""
    assert FIRE > NOMINAL + 1000, "the id must have an offset for this test"
    one_more = (When(at_ms=NOMINAL - 1000),)  # older, and of the new timing only: it is not made up for
    assert kept(make(when=one_more)) == NOMINAL - 1
    assert kept(make(when=one_more, jitter_ms=0)) == NOMINAL - 1
    assert kept(make(end_at_ms=NOMINAL + 10**10)) == NOMINAL - HOUR


@pytest.mark.parametrize(
    ("new", "now_ms", "mark_ms"),
    [
        (make(phase_ms=7), BEFORE_FIRE, NOMINAL - HOUR),  # the new timing does not have it
        (make(every_ms=HOUR * 7), BEFORE_FIRE, NOMINAL - HOUR),
        (make(phase_ms=0), NOMINAL - 1, NOMINAL - HOUR),  # it is not due yet: the new timing brings it by itself
        (make(when=(When(at_ms=NOMINAL - 1000),)), FIRE, NOMINAL - HOUR),  # its fire has passed: nothing is made up for
        (make(phase_ms=0), BEFORE_FIRE, NOMINAL),  # it was decided
        (make(every_ms=1), BEFORE_FIRE, NOMINAL - HOUR),  # another one lies between it and now
        (make(every_ms=None, cron="61 * * * *"), BEFORE_FIRE, NOMINAL - HOUR),  # nothing that could be due
    ],
)
def test_otherwise_the_new_timing_counts_from_now(new: ScheduleDef, now_ms: int, mark_ms: int) -> None:
    """An edit is never retroactive."""
    assert kept(new, now_ms=now_ms, mark_ms=mark_ms) is None


def test_another_spelling_of_the_same_times_keeps_what_is_owed() -> None:
    """Nobody led while an hourly job was due, and the next deploy says @hourly: it still runs."""
    old, mark_ms, now_ms = make(jitter_ms=0), NOMINAL - 3 * HOUR, NOMINAL + 1

    def kept_by(**timing: Any) -> int | None:
        return kept_mark_ms(old, make(jitter_ms=0, every_ms=None, **timing), mark_ms=mark_ms, now_ms=now_ms)

    assert kept_by(cron="@hourly") == kept_by(cron="0 * * * *", timezone="Europe/Berlin") == mark_ms
    assert kept_by(cron="30 * * * *") is kept_by(cron="0 */2 * * *") is kept_by(at_ms=now_ms + 1) is None


def test_more_than_can_be_compared_is_not_kept() -> None:
    """A tenth of a second over a day would be 864,000 times, for each schedule of a deploy."""
    old, new = make(jitter_ms=0, every_ms=100), make(jitter_ms=0, every_ms=100, end_at_ms=10**15)
    assert kept_mark_ms(old, new, mark_ms=NOMINAL, now_ms=NOMINAL + 100_000) == NOMINAL
    assert kept_mark_ms(old, new, mark_ms=NOMINAL, now_ms=NOMINAL + 100_100) is None


def test_differences_name_the_field_down_to_an_argument() -> None:
    """So that a dry run can be read."""
    old = make(template=Template(job="j", kind=Kind.SYNC, args={"a": 1, "b": [1]}), labels={"team": "x"})
    new = make(template=Template(job="j", kind=Kind.SYNC, args={"a": 2, "b": [1]}), jitter_ms=0, owner="kim")
    assert sorted(field_changes(old, new), key=lambda each: each.field) == [
        FieldChange("jitter_ms", HOUR, None),
        FieldChange("labels", {"team": "x"}, None),
        FieldChange("owner", None, "kim"),
        FieldChange("template.args.a", 1, 2),
    ]
    assert field_changes(old, old) == []
