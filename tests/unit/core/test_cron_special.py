"""What goes beyond Debian's cron: seconds, last and nearest days, counted weekdays, hashes, zones in the text."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron.expression import CronError, compile_cron
from supervisor.core.cron.fields import interval_of
from tests.cron_oracle import EPOCH, Calendar, fires, instant


def days(expression: str, after: str, count: int) -> list[str]:
    return [text[:10] for text in fires(expression, after, count)]


# --- seconds --------------------------------------------------------------------------------------------------


def test_six_fields_have_seconds_in_front() -> None:
    """The first field is the finest: the order of cronsim, not of croniter."""
    assert fires("15,45 30 2 * * *", "2026-01-01T00:00Z", 3) == [
        "2026-01-01T02:30:15Z", "2026-01-01T02:30:45Z", "2026-01-02T02:30:15Z",
    ]  # fmt: skip
    assert fires("*/20 * * * * *", "2026-01-01T00:00:20Z", 3) == [
        "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:20Z",
    ]  # fmt: skip


@given(
    second=st.sampled_from(["0", "30", "*", "*/7", "59", "10-20", "0,59"]),
    minute=st.sampled_from(["*", "0", "*/17", "59", "5-6"]),
    hour=st.sampled_from(["*", "0", "23", "5-7"]),
    begin=st.integers(1_767_225_600, 1_798_761_600),
    span=st.integers(0, 7200),
)
def test_fires_with_seconds_are_those_of_a_walk(second: str, minute: str, hour: str, begin: int, span: int) -> None:
    """Second by second in UTC: next, prev and count agree with looking."""
    cron = compile_cron(f"{second} {minute} {hour} * * *")
    calendar = Calendar(f"{minute} {hour} * * *")
    wanted = Calendar(f"{second} * * * *").minutes  # the field of minutes reads like that of seconds
    seconds = {value % 60 for value in wanted}
    expected = [at for at in range(begin + 1, begin + span + 1) if at % 60 in seconds and calendar.has(at // 60)]

    assert list(cron.fires(begin, begin + span)) == expected
    assert cron.count(begin, begin + span, 10**9) == len(expected)
    assert cron.count(begin, begin + span, 5) == min(5, len(expected))
    before = cron.prev(begin + span)
    assert before == (expected[-1] if expected else cron.prev(begin))


# --- days -----------------------------------------------------------------------------------------------------


def test_the_last_day_of_each_month() -> None:
    """L knows leap years."""
    assert days("0 0 L * *", "2028-01-15T00:00Z", 3) == ["2028-01-31", "2028-02-29", "2028-03-31"]
    assert days("0 0 L-2 * *", "2027-01-15T00:00Z", 2) == ["2027-01-29", "2027-02-26"]
    assert days("0 0 1,L * *", "2027-01-15T00:00Z", 3) == ["2027-01-31", "2027-02-01", "2027-02-28"]


def test_the_nearest_weekday_stays_in_its_month() -> None:
    """1W on a Saturday is Monday the 3rd; LW is the last working day."""
    assert days("0 0 15W * *", "2026-02-01T00:00Z", 3) == ["2026-02-16", "2026-03-16", "2026-04-15"]
    assert days("0 0 1W 8 *", "2026-07-01T00:00Z", 1) == ["2026-08-03"]
    assert days("0 0 31W 1,5 *", "2026-05-01T00:00Z", 1) == ["2026-05-29"]
    assert days("0 0 LW * *", "2026-05-01T00:00Z", 2) == ["2026-05-29", "2026-06-30"]
    assert days("0 0 31W * *", "2026-04-01T00:00Z", 1) == ["2026-05-29"], "April has no 31st, so nothing near it"


def test_counted_and_last_weekdays() -> None:
    """The second Tuesday; the fifth Friday, where there is one; the last Friday."""
    assert days("0 0 * * 2#2", "2026-11-01T00:00Z", 2) == ["2026-11-10", "2026-12-08"]
    assert days("0 0 * * FRI#5", "2026-11-01T00:00Z", 2) == ["2027-01-29", "2027-04-30"]
    assert days("0 0 * * 5L", "2026-11-01T00:00Z", 2) == ["2026-11-27", "2026-12-25"]
    assert days("0 0 * * friL", "2026-11-01T00:00Z", 1) == ["2026-11-27"]
    assert days("0 0 * * 7#1,0L", "2026-11-02T00:00Z", 2) == ["2026-11-29", "2026-12-06"]


def test_a_question_mark_is_a_star_in_the_fields_of_days() -> None:
    """Also for the rule that combines them: both must match."""
    assert compile_cron("0 0 ? * 5#2").next(0) == compile_cron("0 0 * * 5#2").next(0)
    assert days("0 0 13 * ?", "2026-11-01T00:00Z", 1) == ["2026-11-13"]


def test_special_days_follow_the_rule_for_two_restricted_fields() -> None:
    """L is a restriction: either matches, as with numbers."""
    assert days("0 0 L * 1", "2026-11-24T00:00Z", 2) == ["2026-11-30", "2026-12-07"]
    assert days("0 0 L * FRI", "2026-11-24T00:00Z", 2) == ["2026-11-27", "2026-11-30"]


dates = st.sampled_from(["*", "?", "L", "L-1", "L-30", "LW", "1W", "15W", "31W", "1,L", "29W,LW", "*/9", "5-9,L-4"])
weekdays = st.sampled_from(["*", "?", "1#1", "5#5", "0L", "7#3", "MON-WED", "2#2,4L", "satL", "*/3"])


@given(
    date_=dates, month=st.sampled_from(["*", "2", "4,6", "*/5"]), weekday=weekdays, begin=st.integers(10_000, 40_000)
)
def test_days_are_those_of_the_calendar(date_: str, month: str, weekday: str, begin: int) -> None:
    """Two years of days, each judged by itself."""
    expression = f"0 0 {date_} {month} {weekday}"
    calendar = Calendar(expression)
    expected = [day for day in range(begin + 1, begin + 731) if calendar.has_day(day)]
    try:
        cron = compile_cron(expression)
    except CronError:
        assert not any(calendar.has_day(day) for day in range(14_610)), "refused, so it never matches"
        return
    assert [at // 86_400 for at in cron.fires(begin * 86_400, (begin + 730) * 86_400)] == expected
    assert cron.count(begin * 86_400, (begin + 730) * 86_400, 10**6) == len(expected)


@given(
    date_=st.sampled_from(["*", "L", "LW", "1,L", "*/4"]),
    weekday=st.sampled_from(["*", "1#2", "5L", "3#1,0L", "SUN#5"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    after=st.integers(0, 1_800_000_000 // 60).map(lambda minutes: minutes * 60),
)
def test_special_days_agree_with_cronsim(date_: str, weekday: str, timezone: str, after: int) -> None:
    """A second implementation, which has L, LW, dow#n and dowL too."""
    expression = f"30 12 {date_} * {weekday}"
    theirs = [
        int(at.timestamp()) for at in islice(CronSim(expression, datetime.fromtimestamp(after, ZoneInfo(timezone))), 6)
    ]
    found, at = [], compile_cron(expression, timezone).next(after)
    while at is not None and len(found) < 6:
        found.append(at)
        at = compile_cron(expression, timezone).next(at)
    assert found == theirs


def test_days_absent_from_an_expression_are_found_both_ways() -> None:
    """What exclusions skip over: the first and the last day that does not match."""
    readings = compile_cron("* * * 7-8 *").readings()
    july, september = (date(2026, 7, 1) - EPOCH).days * 86_400, (date(2026, 9, 1) - EPOCH).days * 86_400
    assert readings.first_free(july, september * 2) == september
    assert readings.last_free(september - 1, 0) == july - 1
    assert readings.first_free(july, september - 1) is None
    everything = compile_cron("* * * * *").readings()
    assert everything.first_free(0, 10**9) is None
    assert everything.last_free(10**9, 0) is None


@given(
    expression=st.sampled_from(
        ["* 8-17 * * 1-5", "0-29 * * * *", "*/2 0 1 * *", "* * * * SAT,SUN", "*/2 * * * * *", "* 30 5 * * *", "* * 5 * * *",
         "0-58 * * * * *", "1-59 * * * * *"]
    ),
    at=st.integers(1_767_225_600, 1_798_761_600),
)  # fmt: skip
def test_free_readings_are_those_that_do_not_match(expression: str, at: int) -> None:
    """Looking at every second finds the same."""
    readings = compile_cron(expression).readings()
    high, low = at + 3 * 86_400, at - 3 * 86_400
    step = 1 if expression.count(" ") == 5 else 60
    ahead = (
        at
        if not readings.has(at)
        else next((t for t in range(at - at % step + step, high, step) if not readings.has(t)), None)
    )
    assert readings.first_free(at, high - 1) == ahead
    behind = (
        at
        if not readings.has(at)
        else next((t for t in range(at - at % step - 1, low, -step) if not readings.has(t)), None)
    )
    assert readings.last_free(at, low + 1) == behind


# --- hashes ---------------------------------------------------------------------------------------------------


def test_a_hash_is_drawn_from_the_schedule_and_the_field() -> None:
    """The same for ever, and another for another schedule; minute and hour do not move together."""
    once = compile_cron("H H * * *", seed="reports/daily")
    assert once is compile_cron("H H * * *", seed="reports/daily")
    assert once.expression == "59 23 * * *", "a release that draws differently would move every schedule"
    assert compile_cron("H H * * *", seed="reports/weekly").expression != once.expression
    assert compile_cron("h(0-59) h(0-23) * * *", seed="reports/daily") is once


def test_a_hash_shares_with_the_numbers_that_it_drew() -> None:
    """A hundred thousand hourly schedules are sixty expressions."""
    minute = compile_cron("H * * * *", seed="a").expression.split()[0]
    assert compile_cron("H * * * *", seed="a") is compile_cron(f"{minute} * * * *")


def test_hashes_spread_evenly() -> None:
    """That is what they are for."""
    drawn = Counter(compile_cron("H * * * *", seed=f"s{n}").expression for n in range(6000))
    assert len(drawn) == 60
    assert max(drawn.values()) < 150
    assert min(drawn.values()) > 60


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("H(9-17)", 9, 17), ("H(5-5)", 5, 5), ("H", 0, 23)],
)
def test_a_hash_stays_in_its_range(field: str, low: int, high: int) -> None:
    """Both ends are in reach."""
    hours = {int(compile_cron(f"0 {field} * * *", seed=f"s{n}").expression.split()[1]) for n in range(500)}
    assert hours == set(range(low, high + 1))


def test_a_hashed_day_exists_in_every_month() -> None:
    """H in day-of-month is 1 to 28, so no month goes without; names and ranges work too."""
    drawn = {int(compile_cron("0 0 H * *", seed=f"s{n}").expression.split()[2]) for n in range(500)}
    assert drawn == set(range(1, 29))
    assert compile_cron("0 0 * * H(MON-FRI)", seed="x").expression.split()[4] in {"1", "2", "3", "4", "5"}
    assert "7" not in {compile_cron("0 0 * * H", seed=f"s{n}").expression.split()[4] for n in range(100)}


@given(
    step=st.integers(1, 60), seed=st.text(min_size=1, max_size=8), bounds=st.sampled_from([(0, 59), (0, 29), (10, 40)])
)
def test_a_hashed_step_starts_within_its_first_step(step: int, seed: str, bounds: tuple[int, int]) -> None:
    """H/15 is every fifteenth minute from a drawn start."""
    low, high = bounds
    text = f"H/{step}" if bounds == (0, 59) else f"H({low}-{high})/{step}"
    if step > high - low + 1:
        with pytest.raises(CronError, match="larger than the range"):
            compile_cron(f"{text} * * * *", seed=seed)
        return
    found = compile_cron(f"{text} * * * *", seed=seed).fires(1_767_225_599, 1_767_229_199)
    minutes = [at // 60 % 60 for at in found]
    assert low <= minutes[0] < low + step
    assert minutes == list(range(minutes[0], high + 1, step))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("H(50-9)/21 * * * *", "the step 21 is larger than the range, which has 20 values"),
        ("H(0-60) * * * *", "60 is not within 0-59"),
        ("H/0 * * * *", "a step of 0 never moves"),
        ("H-5 * * * *", "not a form of H; write H, H(1-5), H/10 or H(0-29)/10"),
        ("5,H( * * * *", 'minute "H(" at character 3: not a form of H'),
    ],
)
def test_a_wrong_hash_is_refused_with_the_remedy(expression: str, message: str) -> None:
    """The position is that in what was written."""
    with pytest.raises(CronError) as caught:
        compile_cron(expression, seed="a")
    assert message in str(caught.value)


# --- zones and intervals in the text --------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["CRON_TZ=Asia/Tokyo ", "TZ=Asia/Tokyo  ", " CRON_TZ=Asia/Tokyo\t"])
def test_a_prefix_names_the_zone_where_timezone_is_absent(prefix: str) -> None:
    """The form of robfig/cron and cronie."""
    assert compile_cron(f"{prefix}0 9 * * *") is compile_cron("0 9 * * *", "Asia/Tokyo")
    assert compile_cron(f"{prefix}@daily").describe() == "cron 0 0 * * * Asia/Tokyo"


def test_a_prefix_beside_a_timezone_is_refused() -> None:
    """Also when both say the same: one of them would be forgotten at the next change."""
    with pytest.raises(CronError, match="names a zone, and timezone is UTC; remove one of them"):
        compile_cron("CRON_TZ=Asia/Tokyo 0 9 * * *", "UTC")


@pytest.mark.parametrize(
    ("text", "duration"),
    [("@every 5m", "5m"), ("@EVERY  1h30m ", "1h30m"), ("@every", None), ("@daily", None), ("every 5m", None)],
)
def test_every_is_sugar_for_an_interval(text: str, duration: str | None) -> None:
    """The settings turn it into ``every``; as an expression it is refused."""
    assert interval_of(text) == duration


def test_a_rare_expression_is_found_within_forty_years() -> None:
    """The 29th of February that is the last Sunday of its month."""
    at = compile_cron("0 0 29 2 ?").next(instant("2097-01-01T00:00Z"))
    assert at is not None
    assert datetime.fromtimestamp(at, UTC) - datetime(2097, 1, 1, tzinfo=UTC) < timedelta(days=8 * 366)
