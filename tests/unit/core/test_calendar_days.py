"""Days of calendars: excluded, alone allowed, and the days to which due times move from them."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.calendars.days import EPOCH, OverExcludedError, last_day, reason_of
from supervisor.core.model import CalendarDays, Exclusion, Kind, ScheduleDef, Template
from supervisor.core.schedules.trigger_kinds import Trigger
from supervisor.core.schedules.triggers import trigger_of

TEMPLATE = Template(job="a.b", kind=Kind.ASYNC)
WEEKEND = CalendarDays(calendar="weekends", weekdays=(5, 6))
DAY = timedelta(days=1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut")
"""Clocks that change at night, by half an hour, and over midnight."""


def day(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH).days


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def schedule(cron: str, *days: CalendarDays, timezone: str = "Europe/Berlin", on_excluded: str = "skip") -> ScheduleDef:
    exclude = tuple(Exclusion(cron=f"calendar {each.calendar}", days=each) for each in days)
    return ScheduleDef(
        id="s", template=TEMPLATE, cron=cron, timezone=timezone, exclude=exclude, on_excluded=on_excluded
    )


def dates(trigger: Trigger, first: str, last: str) -> list[str]:
    """Return the due times between two instants as clocks in Berlin show them."""
    zone = ZoneInfo("Europe/Berlin")
    found = trigger.nominals(ms(first) - 1, ms(last))
    return [datetime.fromtimestamp(at / 1000, zone).strftime("%a %m-%d %H:%M") for at in found]


def holidays(*texts: str, calendar: str = "de", is_only: bool = False) -> CalendarDays:
    return CalendarDays(calendar=calendar, is_only=is_only, dates=tuple((day(text), 1, "") for text in texts))


def test_nothing_is_due_on_the_days_of_an_excluded_calendar() -> None:
    """Christmas of every year, with the day before and after as they are."""
    christmas = CalendarDays(calendar="de", annual=((1225, "Christmas Day"), (229, "Leap day")))
    found = trigger_of(schedule("0 9 * * *", christmas))
    assert dates(found, "2026-12-24T00:00Z", "2026-12-26T23:00Z") == ["Thu 12-24 09:00", "Sat 12-26 09:00"]
    assert "Sun 02-29 09:00" not in dates(found, "2032-02-28T00:00Z", "2032-03-01T23:00Z")


def test_only_the_days_of_a_calendar_and_not_its_excluded_ones() -> None:
    """Working days without holidays: both lists count."""
    workdays = CalendarDays(calendar="workdays", is_only=True, weekdays=(0, 1, 2, 3, 4))
    found = trigger_of(schedule("0 9 * * *", workdays, holidays("2026-12-25")))
    assert dates(found, "2026-12-24T00:00Z", "2026-12-28T23:00Z") == ["Thu 12-24 09:00", "Mon 12-28 09:00"]


def test_due_times_move_to_the_next_or_the_previous_day_that_is_not_excluded() -> None:
    """The 25th is Friday and a holiday, the weekend follows: Monday 28th, or Thursday 24th."""
    definition = schedule("0 9 25 * *", WEEKEND, holidays("2026-12-25"), on_excluded="next")
    assert dates(trigger_of(definition), "2026-12-01T00:00Z", "2027-01-31T00:00Z") == [
        "Mon 12-28 09:00", "Mon 01-25 09:00",
    ]  # fmt: skip
    definition = schedule("0 9 25 * *", WEEKEND, holidays("2026-12-25"), on_excluded="previous")
    assert dates(trigger_of(definition), "2026-12-01T00:00Z", "2026-12-31T00:00Z") == ["Thu 12-24 09:00"]


def test_due_times_that_come_to_coincide_are_one() -> None:
    """Daily at nine over a weekend: one run on Monday, not three."""
    found = trigger_of(schedule("0 9 * * *", WEEKEND, on_excluded="next"))
    assert dates(found, "2026-11-27T00:00Z", "2026-11-30T23:00Z") == ["Fri 11-27 09:00", "Mon 11-30 09:00"]


def test_neighbours_are_those_that_the_calendar_leaves() -> None:
    """A report of Monday covers the time since Friday."""
    monday = ms("2026-11-30T09:00+01:00")
    for on_excluded in ("skip", "next"):
        found = trigger_of(schedule("0 9 * * *", WEEKEND, on_excluded=on_excluded)).neighbours(monday)
        assert found == (ms("2026-11-27T09:00+01:00"), ms("2026-12-01T09:00+01:00"))


@pytest.mark.parametrize("on_excluded", ["skip", "next", "previous"])
def test_a_schedule_ends_with_the_only_days_that_it_has(on_excluded: str) -> None:
    """No due time is left: not an error, and not a search without end."""
    paydays = holidays("2026-11-25", "2026-12-23", calendar="paydays", is_only=True)
    found = trigger_of(schedule("0 9 * * *", paydays, on_excluded=on_excluded))
    assert dates(found, "2026-01-01T00:00Z", "2030-01-01T00:00Z") == ["Wed 11-25 09:00", "Wed 12-23 09:00"]
    assert found.next_ms(ms("2026-12-23T09:00+01:00")) is None
    assert found.latest_ms(0, ms("2026-11-25T08:59+01:00")) is None
    assert found.latest_ms(0, ms("2030-01-01T00:00Z")) == ms("2026-12-23T09:00+01:00")
    assert found.count(0, ms("2030-01-01T00:00Z"), 100) == 2


@pytest.mark.parametrize("on_excluded", ["skip", "next", "previous"])
def test_calendars_that_leave_no_day_are_an_error_with_a_name(on_excluded: str) -> None:
    """Working days and weekends together are every day."""
    workdays = CalendarDays(calendar="workdays", weekdays=(0, 1, 2, 3, 4))
    with pytest.raises(OverExcludedError, match="over-excluded"):
        trigger_of(schedule("0 9 * * *", WEEKEND, workdays, on_excluded=on_excluded)).next_ms(0)


def test_a_day_tells_why_it_is_excluded() -> None:
    """By the name of the day where it has one, else by its weekday or by the calendar alone."""
    christmas = CalendarDays(calendar="de", dates=((day("2026-12-25"), 2, "Christmas"),), annual=((101, ""),))
    assert reason_of(christmas, day("2026-12-26")) == "excluded by calendar de: Christmas"
    assert reason_of(christmas, day("2027-01-01")) == "excluded by calendar de"
    assert reason_of(christmas, day("2027-01-02")) is None
    assert reason_of(WEEKEND, day("2026-11-28")) == "excluded by calendar weekends: Saturday"
    only = holidays("2026-12-23", calendar="paydays", is_only=True)
    assert reason_of(only, day("2026-12-24")) == "not in calendar paydays"


def test_a_calendar_ends_with_its_last_date_unless_it_recurs() -> None:
    """What is dated runs out, days of the week and of every year do not."""
    assert last_day(holidays("2026-12-25", "2026-01-01")) == day("2026-12-25")
    assert last_day(WEEKEND) is None
    assert last_day(CalendarDays(annual=((101, ""),), dates=((0, 1, ""),))) is None


_FIRST, _SECOND = date(2026, 3, 20), date(2026, 10, 11)
_OFFSETS = st.integers(0, 24)

# Together they leave 2026-03-20 and 2026-10-13.
_APART = [
    CalendarDays(calendar="a", is_only=True, weekdays=(1,), dates=((day("2026-03-20"), 1, ""),)),
    CalendarDays(calendar="b", is_only=True, weekdays=(0, 4), dates=((day("2026-10-13"), 1, ""),)),
]


@st.composite
def calendars(draw: st.DrawFn) -> CalendarDays:
    named = draw(st.lists(st.tuples(_OFFSETS, st.integers(1, 4)), max_size=4))
    first, is_only = draw(st.sampled_from([_FIRST, _SECOND])), draw(st.booleans())
    annual = draw(st.lists(st.dates(_FIRST, _SECOND), max_size=2))
    return CalendarDays(
        calendar="c",
        is_only=is_only,
        weekdays=tuple(sorted(draw(st.sets(st.integers(0, 6), max_size=3)))),
        dates=tuple(((first - EPOCH).days + offset, length, "") for offset, length in named),
        # A walk through one year cannot know the days of the next one.
        annual=() if is_only else tuple((100 * each.month + each.day, "") for each in annual),
    )


def is_taken(days: CalendarDays, at: date) -> bool:
    """Return whether a date is excluded, by looking at every entry."""
    number = (at - EPOCH).days
    is_named = at.weekday() in days.weekdays or any(first <= number < first + length for first, length, _ in days.dates)
    return (is_named or any(month_day == 100 * at.month + at.day for month_day, _ in days.annual)) != days.is_only


def moved(at: datetime, target: date) -> datetime:
    """Return a due time on another date: a time of day that a change of the clock skips is later by the gap."""
    return datetime.combine(target, at.time(), at.tzinfo).astimezone(UTC)


@given(
    days=st.lists(calendars(), min_size=1, max_size=2),
    cron=st.sampled_from(["0 9 * * *", "30 2 * * *", "15 0 * * *", "30 1,23 * * *", "0 12 */4 * *", "0 5 * * 1-5"]),
    timezone=st.sampled_from(ZONES),
    on_excluded=st.sampled_from(["skip", "next", "previous"]),
    begin=st.sampled_from([_FIRST, _SECOND]),
)
@example(_APART, "0 9 * * *", "America/New_York", "next", _FIRST)
@example(_APART, "0 9 * * *", "America/New_York", "previous", _FIRST)
def test_due_times_are_those_of_a_walk_through_every_day(
    days: list[CalendarDays], cron: str, timezone: str, on_excluded: str, begin: date
) -> None:
    """Forwards, backwards and counted, over changes of the clock."""
    zone = ZoneInfo(timezone)
    all_days = [_FIRST + n * DAY for n in range(-60, 280)]
    free = [each for each in all_days if not any(is_taken(one, each) for one in days)]
    expected = set()
    first, last = (datetime.combine(all_days[n], time(), zone).timestamp() * 1000 for n in (0, -1))
    for at_ms in trigger_of(schedule(cron, timezone=timezone)).nominals(round(first), round(last) - 1):
        at = datetime.fromtimestamp(at_ms / 1000, zone)
        index = bisect_left(free, at.date())
        if free[index : index + 1] == [at.date()]:
            expected.add(at_ms)
        elif on_excluded != "skip" and 0 < index < len(free):
            target = moved(at, free[index if on_excluded == "next" else index - 1])
            expected.add(round(target.timestamp() * 1000))
    low, high = (round(datetime.combine(begin + n * DAY, time(), zone).timestamp() * 1000) for n in (3, 33))
    wanted = sorted(at for at in expected if low < at <= high)
    found = trigger_of(schedule(cron, *days, timezone=timezone, on_excluded=on_excluded))
    try:
        assert list(found.nominals(low, high)) == wanted
        assert list(found.newest(low, high, 10**6)) == wanted
        assert found.count(low, high, 10**6) == len(wanted)
    except OverExcludedError:  # looking for one more, before or after
        assert not expected or max(expected) <= high or min(expected) > low
