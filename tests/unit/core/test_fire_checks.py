"""The checks that the leader asks about due times: blackout, weekdays, quota, closed."""

from __future__ import annotations

from datetime import datetime

import pytest

from supervisor.core.model import Check, Exclusion
from supervisor.core.schedules.checks import LETTERS, FireRefusal, checks_of, sentences
from supervisor.core.schedules.trigger_kinds import Every

HOUR = 3_600_000
HOURLY = Every(HOUR)


def ms(text: str) -> int:
    """Return an instant in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def refusal(*checks: Check, at: str, now: str = "2026-06-01T00:00+00:00", timezone: str = "UTC") -> FireRefusal | None:
    """Return what ``checks`` have against a due time."""
    compiled = checks_of(checks, timezone, "nightly")
    assert compiled is not None
    return compiled.refusal(ms(at), ms(now), HOURLY)


def test_nothing_is_asked_of_a_schedule_without_checks() -> None:
    """Not even an object is made for it."""
    assert checks_of((), "UTC", "nightly") is None


def test_a_blackout_keeps_back_what_lies_in_its_windows() -> None:
    """Expressions in the schedule's zone, and ranges."""
    night = Check(hook="blackout", exclude=(Exclusion(cron="* 22-23,0-5 * * *"),), reason="freeze")

    assert refusal(night, at="2026-06-01T22:00+02:00", timezone="Europe/Berlin") == FireRefusal(
        "blackout", "b", "freeze"
    )
    assert refusal(night, at="2026-06-01T21:00+02:00", timezone="Europe/Berlin") is None
    day = Check(
        hook="blackout", exclude=(Exclusion(from_ms=ms("2026-12-25T00:00Z"), until_ms=ms("2026-12-26T00:00Z")),)
    )
    assert refusal(day, at="2026-12-25T23:00+00:00") is not None
    assert refusal(day, at="2026-12-26T00:00+00:00") is None


def test_a_blackout_without_an_end_is_one() -> None:
    """A window that covers everything keeps everything back, and does not set the schedule aside."""
    assert refusal(Check(hook="blackout", exclude=(Exclusion(cron="* * * * *"),)), at="2026-06-01T12:00Z") is not None


@pytest.mark.parametrize(("at", "is_admitted"), [("2026-06-05T23:00Z", False), ("2026-06-05T21:00Z", True)])
def test_weekdays_are_those_of_the_zone(at: str, is_admitted: bool) -> None:  # noqa: FBT001 - a table
    """Friday 23:00 in London is Saturday in Berlin."""
    found = refusal(Check(hook="weekdays", days=(0, 1, 2, 3, 4), timezone="Europe/Berlin"), at=at)

    assert (found is None) is is_admitted


def test_a_quota_admits_the_first_due_times_of_each_period() -> None:
    """By the plan alone, so that a restart or another leader counts the same."""
    daily = Check(hook="quota", count=3, per_ms=24 * HOUR)
    admitted = [refusal(daily, at=f"2026-06-01T{hour:02}:00Z") is None for hour in range(24)]

    assert admitted == [True] * 3 + [False] * 21
    assert refusal(daily, at="2026-06-02T00:00Z") is None


def test_closed_is_a_gate_that_is_asked_first_and_may_end() -> None:
    """Whatever the order of the list: gates come before filters."""
    closed = Check(hook="closed", reason="migration", until_ms=ms("2026-06-01T12:00Z"))
    day = Check(hook="weekdays", days=(6,))

    found = refusal(day, closed, at="2026-06-01T11:00Z", now="2026-06-01T11:00Z")
    assert found is not None
    assert (found.hook, found.point, found.reason) == ("closed", "gate", "migration until 2026-06-01T12:00:00+00:00")
    assert refusal(closed, at="2026-06-01T11:00Z", now="2026-06-01T12:00Z") is None


def test_a_check_of_a_newer_version_asks_nothing() -> None:
    """In a rolling update the older leader goes on."""
    assert checks_of((Check(hook="tides"),), "UTC", "nightly") is None


def test_every_check_has_a_letter_and_a_sentence() -> None:
    """For the history, and for ``tenure schedule explain``."""
    checks = [Check(hook=hook, days=(0,), count=1, per_ms=1000) for hook in LETTERS]

    assert len(set(LETTERS.values())) == len(LETTERS)
    assert len(set(sentences(checks))) == len(LETTERS)
