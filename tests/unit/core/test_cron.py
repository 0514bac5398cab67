"""Fire times: against the published vectors, two independent oracles, and the laws they keep."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, reject
from hypothesis import strategies as st

from supervisor.core.cron.expression import CronError, compile_cron
from tests.cron_oracle import Calendar, instant, local_minutes, walk
from tests.kit.tables import table

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "cron-dst-vectors.json").read_text())["vectors"]
TRANSITIONS = sorted({(vector["timezone"], vector["after"], vector["until"]) for vector in VECTORS})


# --- vectors ------------------------------------------------------------------------------------------------


@table(("timezone", "after", "until"), TRANSITIONS)
def test_fires_around_a_transition_are_those_of_debian_cron(timezone: str, after: str, until: str) -> None:
    """Gaps, overlaps, half-hour and negative changes: next, prev and count give the same fires."""
    begin, end = instant(after), instant(until)
    vectors = [vector for vector in VECTORS if (vector["timezone"], vector["after"]) == (timezone, after)]
    assert len(vectors) == 28
    for vector in vectors:
        cron = compile_cron(vector["expression"], timezone)
        expected = [instant(fire) for fire in vector["fires"]]
        assert list(cron.fires(begin, end)) == expected, vector["expression"]
        assert backwards(cron, begin, end) == expected, vector["expression"]
        assert cron.count(begin, end, 1_000_000) == len(expected), vector["expression"]


def backwards(cron: Any, begin: int, end: int) -> list[int]:
    found = []
    at = cron.prev(end)
    while at is not None and at > begin:
        found.append(at)
        at = cron.prev(at - 1)
    return found[::-1]


# --- an oracle that goes minute by minute ---------------------------------------------------------------------

ORACLE_ZONES = (
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Casey", "2020-10-03T16:01Z"),  # a gap of exactly three hours, at one minute past
    ("America/Recife", "2000-10-08T03:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # a day that was skipped
    ("Pacific/Kwajalein", "1969-09-30T13:00Z"),  # a day that came twice
    ("Asia/Kathmandu", "1985-12-31T18:30Z"),
    ("UTC", "2026-01-01T00:00Z"),
)

minutes = st.sampled_from(["0", "30", "59", "*", "*/15", "*/7", "0,30", "10-20/5", "1"])
hours = st.sampled_from(["*", "*/2", "*/6", "0", "1", "2", "3", "23", "0-23", "1-3", "2,14", "0-4/2"])
dates = st.sampled_from(["*", "*", "*/2", "1", "29-31", "*/10", "30,31", "1-7"])
months = st.sampled_from(["*", "*", "*", "1-12/2", "mar-OCT", "2"])
weekdays = st.sampled_from(["*", "*", "0", "7", "1-5", "SUN", "*/2", "FRI,SAT", "5-7"])
expressions = st.tuples(minutes, hours, dates, months, weekdays).map(" ".join)


@given(
    expression=expressions, place=st.sampled_from(ORACLE_ZONES), begin=st.integers(-30, -1), hours=st.integers(1, 40)
)
@example(expression="30 2 * * *", place=ORACLE_ZONES[0], begin=-10, hours=30)
@example(expression="0 0 * * *", place=ORACLE_ZONES[8], begin=-30, hours=40)
@example(expression="0 0-23 * * *", place=ORACLE_ZONES[9], begin=-30, hours=40)
def test_fires_are_those_of_a_walk_through_every_minute(
    expression: str, place: tuple[str, str], begin: int, hours: int
) -> None:
    """The engine computes what cron's loop finds by waiting, in any zone with any expression."""
    timezone, transition = place
    after = instant(transition) + begin * 3600
    until = after + hours * 3600
    cron = compilable(expression, timezone)
    expected = walk(Calendar(expression), local_minutes(timezone, after, until), after, until)

    assert list(cron.fires(after, until)) == expected
    assert backwards(cron, after, until) == expected
    assert cron.count(after, until, 1_000_000) == len(expected)


def compilable(expression: str, timezone: str) -> Any:
    try:
        return compile_cron(expression, timezone)
    except CronError:
        reject()  # never matches, which has a test of its own


# --- cronsim --------------------------------------------------------------------------------------------------

# Nor zones that change at midnight: there cronsim 2.8 lets "* 0 * * *" fire at 01:00 on a day that has no 00:00.
WHOLE_HOUR_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Denver", "Asia/Tokyo", "Europe/Athens")
instants = st.integers(instant("1996-01-01T00:00Z"), instant("2060-01-01T00:00Z"))


@given(expression=expressions, timezone=st.sampled_from(WHOLE_HOUR_ZONES), after=instants)
def test_fires_agree_with_cronsim_in_zones_of_whole_hours(expression: str, timezone: str, after: int) -> None:
    """A second implementation with Debian's rules, written by others."""
    cron = compilable(expression, timezone)
    start = datetime.fromtimestamp(after - after % 60, ZoneInfo(timezone))
    theirs: list[int] = []
    for fire in islice(CronSim(expression, start), 8):
        at = int(fire.timestamp())
        if not theirs or at != theirs[-1]:  # it lists each of several fires in one gap
            theirs.append(at)

    assert list(islice(cron.fires(after - after % 60, after + 80 * 366 * 86_400), len(theirs))) == theirs


# --- laws -----------------------------------------------------------------------------------------------------

ANY_ZONE = st.sampled_from([*(name for name, _ in ORACLE_ZONES), "America/St_Johns", "Asia/Gaza", "Africa/Monrovia"])
any_instant = st.one_of(
    st.integers(-3_000_000_000, 6_000_000_000),
    st.builds(lambda place, shift: instant(place[1]) + shift, st.sampled_from(ORACLE_ZONES), st.integers(-9000, 9000)),
)


@given(expression=expressions, timezone=ANY_ZONE, at=any_instant)
def test_prev_and_next_enclose_every_instant(expression: str, timezone: str, at: int) -> None:
    """prev(t) <= t < next(t), nothing lies between them, and each finds the other."""
    cron = compilable(expression, timezone)
    following = cron.next(at)
    assert following is not None
    assert at < following
    before = cron.prev(at)
    assert before is not None
    assert before <= at
    assert cron.next(before) == following
    assert cron.prev(following) == following
    assert cron.prev(following - 1) == before


@given(
    expression=expressions, timezone=ANY_ZONE, at=any_instant, span=st.integers(0, 400 * 86_400), cap=st.integers(0, 50)
)
def test_count_agrees_with_next(expression: str, timezone: str, at: int, span: int, cap: int) -> None:
    """What is counted as missed is what would have fired."""
    cron = compilable(expression, timezone)
    walked = len(list(islice(cron.fires(at, at + span), 50)))

    assert cron.count(at, at + span, 50) == walked
    assert cron.count(at, at + span, cap) == min(walked, cap)


def test_counting_a_year_of_minutes_is_exact() -> None:
    """Long outages are counted by arithmetic, not by walking."""
    begin = instant("2027-01-01T00:00Z")
    assert compile_cron("* * * * *", "Europe/Berlin").count(begin, begin + 365 * 86_400, 10**9) == 365 * 1440
    assert compile_cron("*/5 9 * * 1-5").count(begin, begin + 365 * 86_400, 10**9) == 261 * 12


# --- single rules ---------------------------------------------------------------------------------------------


def fires(expression: str, after: str, count: int, timezone: str = "UTC") -> list[str]:
    cron = compile_cron(expression, timezone)
    found = islice(cron.fires(instant(after), instant(after) + 41 * 366 * 86_400), count)
    return [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ") for at in found]


def test_the_next_fire_lies_after_the_instant_that_is_given() -> None:
    """A fire at the watermark itself must not come again."""
    assert fires("0 * * * *", "2026-01-01T00:00Z", 1) == ["2026-01-01T01:00Z"]


def test_two_restricted_day_fields_match_either() -> None:
    """Debian's rule: the 13th, and every Friday."""
    assert fires("0 0 13 * 5", "2026-02-05T12:00Z", 3) == [
        "2026-02-06T00:00Z",
        "2026-02-13T00:00Z",
        "2026-02-20T00:00Z",
    ]


def test_a_day_field_that_starts_with_a_star_must_match_too() -> None:
    """Debian's rule: odd dates that are Fridays."""
    assert fires("0 0 */2 * 5", "2026-02-01T12:00Z", 2) == ["2026-02-13T00:00Z", "2026-02-27T00:00Z"]


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun", "7-7"])
def test_sunday_is_0_and_7_and_a_name(sunday: str) -> None:
    """All are used in the wild."""
    assert fires(f"0 0 * * {sunday}", "2026-02-01T12:00Z", 1) == ["2026-02-08T00:00Z"]


@table(
    ("alias", "fields"),
    [("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
     ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), (" @Daily ", "0 0 * * *")],
)  # fmt: skip
def test_an_alias_stands_for_its_fields(alias: str, fields: str) -> None:
    """Also in the class it belongs to: @hourly follows real time, @daily is a fixed time."""
    compiled = compile_cron(alias)
    assert compiled.expression == fields
    assert compiled.is_wildcard is (alias == "@hourly")


def test_a_leap_day_is_found_across_the_century_that_has_none() -> None:
    """2100 is no leap year: eight years pass."""
    assert fires("0 0 29 2 *", "2096-01-01T00:00Z", 2) == ["2096-02-29T00:00Z", "2104-02-29T00:00Z"]


def test_several_fixed_times_in_one_gap_are_one_fire() -> None:
    """A run is known by its instant, so two at one instant would be one run anyway."""
    cron = compile_cron("0,15,30,45 2 * * *", "Europe/Berlin")
    begin, end = instant("2026-03-29T00:00Z"), instant("2026-03-29T12:00Z")
    assert list(cron.fires(begin, end)) == [instant("2026-03-29T01:00Z")]
    assert cron.count(begin, end, 10) == 1


def test_a_day_that_the_zone_skipped_is_not_made_up_for() -> None:
    """Samoa had no 30 December 2011; a daily job did not run for it."""
    daily = fires("0 12 * * *", "2011-12-28T23:00Z", 3, "Pacific/Apia")
    assert daily == ["2011-12-29T22:00Z", "2011-12-30T22:00Z", "2011-12-31T22:00Z"]


def test_nothing_is_found_beyond_the_calendar() -> None:
    """Garbage from outside ends in None, not in an exception."""
    cron = compile_cron("0 0 * * *", "Europe/Berlin")
    assert cron.next(10**15) is None
    assert cron.prev(-(10**15)) is None
    assert cron.count(10**15, 10**15 + 5, 10) == 0
    assert cron.next(-(10**15)) is not None
    assert cron.prev(10**15) is not None


def test_a_rare_date_may_lie_beyond_the_search() -> None:
    """A leap day that is a Sunday can be 40 years away; the search ends there, and says None."""
    cron = compile_cron("0 0 29 2 */7")
    assert cron.next(instant("2088-03-01T00:00Z")) == instant("2128-02-29T00:00Z")
    assert cron.prev(instant("2128-02-28T00:00Z")) == instant("2088-02-29T00:00Z")
    assert cron.next(instant("2060-03-01T00:00Z")) == instant("2088-02-29T00:00Z")


def test_compiled_expressions_are_shared() -> None:
    """A hundred thousand schedules over a thousand expressions must not cost a hundred thousand objects."""
    assert compile_cron("30 2 * * *", "Europe/Berlin") is compile_cron("30 2 * * *", "Europe/Berlin")
    assert compile_cron("30 2 * * *").describe() == "cron 30 2 * * * UTC"
