"""Intervals in days, weeks and months that follow the local clock, against a brute force with ``zoneinfo``."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.errors import TenureError
from supervisor.core.model import CalendarInterval, Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules.calendar_trigger import CalendarTrigger
from supervisor.core.schedules.lints import lints, sentences
from supervisor.core.schedules.triggers import neighbours_of, trigger_of
from supervisor.store.wire.definition import pack_definition, timing_digest, unpack_definition

DAY_1970 = date(1970, 1, 1)
BEGIN, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2028, 12, 31, tzinfo=UTC)
SPAN_S = round((END - BEGIN).total_seconds())
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo",
    "Asia/Kolkata", "Africa/Casablanca", "Pacific/Chatham",
)  # fmt: skip
INTERVALS = st.builds(
    lambda unit, number, **fields: CalendarInterval(**{unit: number}, **fields),
    st.sampled_from(["days", "months"]),
    st.integers(1, 15),
    from_day=st.dates(date(2022, 1, 1), date(2026, 6, 30)).map(lambda day: (day - DAY_1970).days),
    time_s=st.sampled_from([0, 1800, 5400, 7200, 9000, 10_800, 32_430, 86_399]),
    skips_short_months=st.booleans(),
)


def trigger(interval: CalendarInterval, zone: str = "UTC", gap: str = "run", overlap: str = "first") -> CalendarTrigger:
    return CalendarTrigger.of(interval, zone, dst_gap=gap, dst_overlap=overlap)


def first_day(text: str) -> int:
    return (date.fromisoformat(text) - DAY_1970).days


def local_times(interval: CalendarInterval) -> list[datetime]:
    """Return the times of day that the interval names, by steps of a day."""
    start = DAY_1970 + timedelta(days=interval.from_day)
    found, day = [], start
    while day.year < 2030:
        after = day + timedelta(days=1)
        if interval.days:
            is_due = (day - start).days % interval.days == 0
        else:
            is_month = (12 * (day.year - start.year) + day.month - start.month) % interval.months == 0
            is_last = day.month != after.month and day.day < start.day and not interval.skips_short_months
            is_due = is_month and (day.day == start.day or is_last)
        if is_due:
            found.append(datetime(day.year, day.month, day.day) + timedelta(seconds=interval.time_s))  # noqa: DTZ001
        day = after
    return found


def instants(local: datetime, zone: ZoneInfo, gap: str, overlap: str) -> list[datetime]:
    """Return the instants of a local time, by asking ``zoneinfo``."""
    first, last = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first > last:  # the clocks skip it: read with the offset before, it is later than with that after
        if gap == "run":
            after = first.astimezone(zone).utcoffset()
            while first.astimezone(zone).utcoffset() == after:
                first -= timedelta(seconds=1)
            return [first + timedelta(seconds=1)]
        return [first] if gap == "shift" else []
    return {"first": [first], "last": [last], "both": sorted({first, last})}[overlap]


def brute(interval: CalendarInterval, zone: str, gap: str, overlap: str) -> list[int]:
    """Return every fire in milliseconds."""
    info = ZoneInfo(zone)
    found = {at for local in local_times(interval) for at in instants(local, info, gap, overlap)}
    return sorted(round(at.timestamp() * 1000) for at in found)


@given(
    interval=INTERVALS,
    zone=st.sampled_from(ZONES),
    gap=st.sampled_from(["run", "skip", "shift"]),
    overlap=st.sampled_from(["first", "last", "both"]),
    bounds=st.tuples(st.integers(0, SPAN_S), st.integers(0, SPAN_S)).map(sorted),
    cap=st.sampled_from([1, 3, 10_000]),
)
@example(
    interval=CalendarInterval(from_day=first_day("2024-03-31"), days=1, time_s=9000),
    zone="Europe/Berlin",
    gap="shift",
    overlap="both",
    bounds=[0, SPAN_S],
    cap=10_000,
)
def test_next_latest_and_count_are_those_of_a_walk_through_every_day(
    *, interval: CalendarInterval, zone: str, gap: str, overlap: str, bounds: list[int], cap: int
) -> None:
    """In every zone and with every policy, also where the clock changes."""
    found, every = trigger(interval, zone, gap, overlap), brute(interval, zone, gap, overlap)
    low, high = (round(BEGIN.timestamp() + each) * 1000 for each in bounds)
    inside = [at for at in every if low < at <= high]

    assert found.next_ms(low) == next((at for at in every if at > low), None)
    assert found.latest_ms(low, high) == (inside[-1] if inside else None)
    assert found.latest_ms(-1, high) == max((at for at in every if at <= high), default=None)
    assert found.count(low, high, cap) == min(len(inside), cap)
    assert list(found.nominals(low, high, 40)) == inside[:40]


def test_every_second_monday_keeps_its_time_when_the_clock_changes() -> None:
    """A grid of ``every: 14d`` is in UTC, and an hour off for half of the year."""
    found = trigger(CalendarInterval(from_day=first_day("2026-10-12"), days=14, time_s=32_400), "Europe/Berlin")
    times = [datetime.fromtimestamp(at / 1000, ZoneInfo("Europe/Berlin")) for at in found.nominals(0, 2**50, 3)]

    assert [f"{at:%F %H:%M %z}" for at in times] == [
        "2026-10-12 09:00 +0200",
        "2026-10-26 09:00 +0100",
        "2026-11-09 09:00 +0100",
    ]


@pytest.mark.parametrize(
    ("skips", "days"),
    [
        (False, ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30"]),
        (True, ["2027-01-31", "2027-03-31", "2027-05-31", "2027-07-31"]),
    ],
)
def test_months_are_counted_from_the_first_day(*, skips: bool, days: list[str]) -> None:
    """February moves no later month to its 28th."""
    found = trigger(CalendarInterval(from_day=first_day("2027-01-31"), months=1, skips_short_months=skips))
    times = [datetime.fromtimestamp(at / 1000, UTC).date().isoformat() for at in found.nominals(0, 2**50, 4)]
    assert times == days


@pytest.mark.parametrize("months", [9, 44, 108, 120])
def test_a_leap_day_is_found_however_rarely_the_interval_meets_one(months: int) -> None:
    """Every nine years it can be seventy-two until the next; the search does not walk through them."""
    found = trigger(CalendarInterval(from_day=first_day("2028-02-29"), months=months, skips_short_months=True))
    at = found.next_ms(first_day("2028-03-01") * 86_400_000)
    while at is not None and datetime.fromtimestamp(at / 1000, UTC).year < 2200:
        assert datetime.fromtimestamp(at / 1000, UTC).day == 29
        assert found.latest_ms(-1, at) == at
        at = found.next_ms(at)
    assert at is not None


def test_the_end_of_the_calendar_ends_the_schedule() -> None:
    """Not the search."""
    for fields in ({"days": 3660}, {"months": 120}, {"months": 12, "skips_short_months": True}):
        found = trigger(CalendarInterval(from_day=first_day("2024-02-29"), **fields))  # type: ignore[arg-type]
        assert found.next_ms(252_999_999_999_000) is None
        assert found.latest_ms(-1, 252_999_999_999_000) is not None
        assert found.next_ms(-1) == first_day("2024-02-29") * 86_400_000
        assert found.latest_ms(-1, 1) is None


def schedule(interval: CalendarInterval, **fields: Any) -> ScheduleDef:
    template = Template(job="j", kind=Kind.SYNC, queue="q")
    return ScheduleDef(id="s", template=template, when=(When(calendar_interval=interval),), **fields)


def test_an_interval_has_words_neighbours_exclusions_and_no_idle_settings() -> None:
    """It stands beside the other triggers wherever they are used."""
    fortnight = CalendarInterval(from_day=first_day("2026-11-23"), days=14, time_s=32_400)
    day = Exclusion(from_ms=1_796_594_400_000 - 86_400_000, until_ms=1_796_594_400_000)
    found = schedule(fortnight, timezone="Europe/Berlin", dst_gap="shift", exclude=(day,))

    assert sentences(found)[0] == "Every 2 weeks on Monday at 09:00 Europe/Berlin, from 2026-11-23."
    assert lints(found, now_ms=1_795_000_000_000) == []
    assert trigger_of(found).next_ms(0) == 1_795_420_800_000
    around = neighbours_of(found, 1_795_420_800_000)
    assert (around.previous_ms, around.next_ms) == (None, 1_795_420_800_000 + 14 * 86_400_000)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"days": 1}, "every day at 00:00 UTC, from 2027-01-31"),
        ({"days": 3, "time_s": 61}, "every 3 days at 00:01:01 UTC, from 2027-01-31"),
        ({"months": 3}, "every 3 months on day 31 or the last of a shorter month at 00:00 UTC, from 2027-01-31"),
        (
            {"months": 1, "skips_short_months": True},
            "every month on day 31, not in shorter months, at 00:00 UTC, from 2027-01-31",
        ),
    ],
)
def test_intervals_are_described_as_people_say_them(fields: dict[str, Any], words: str) -> None:
    """``explain``, ``list`` and ``show`` print this."""
    assert trigger(CalendarInterval(from_day=first_day("2027-01-31"), **fields)).describe() == words


def test_a_version_without_calendars_refuses_the_schedule_instead_of_firing_the_rest() -> None:
    """It drops the field that it does not know: what is left must be no trigger at all."""
    found = schedule(CalendarInterval(from_day=1, days=1), every_ms=1000)
    assert unpack_definition(pack_definition(found)) == found
    assert timing_digest(found) != timing_digest(schedule(CalendarInterval(from_day=2, days=1), every_ms=1000))

    older = unpack_definition(pack_definition(found).replace(b'"calendar_interval":', b'"unknown":'))
    with pytest.raises(TenureError, match="none of every"):
        trigger_of(older)
