"""Changes of the clock under each policy, against a walk through every minute of the wall clock."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron import expression as cron_module
from supervisor.core.cron import zones
from supervisor.core.cron.expression import Cron, CronError, compile_cron
from tests.cron_oracle import Calendar, Readings, by_reading, changes, instant, local_minutes, utc, walk

CHANGES = (
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # a gap at midnight
    ("America/Havana", "2026-11-01T05:00Z"),  # an overlap that ends at midnight
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
)
GAPS = ("run", "skip", "shift")
OVERLAPS = ("first", "last", "both")
POLICIES = [
    pytest.param(gap, overlap, marks=[] if gap == GAPS[0] or overlap == OVERLAPS[0] else pytest.mark.long)
    for gap, overlap in product(GAPS, OVERLAPS)
]
EXPRESSIONS = (
    "30 2 * * *", "0 2 * * *", "0 3 * * *", "30 3 * * *", "0,15,30,45 2 * * *", "*/15 2 * * *", "30 * * * *", "0 */2 * * *",
    "30 1-4 * * *", "0 0 * * *", "30 0 * * *", "59 1 * * *", "45 1 * * *", "30 2 29 3 *", "0 2 L 3 0", "15 0-23 * * *",
)  # fmt: skip
SAMPLED = ("America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")


def backwards(cron: Cron, begin: int, end: int) -> list[int]:
    found = []
    at = cron.prev(end)
    while at is not None and at > begin:
        found.append(at)
        at = cron.prev(at - 1)
    return found[::-1]


@pytest.mark.share(4)
@pytest.mark.parametrize(("timezone", "change"), CHANGES)
@pytest.mark.parametrize(("gap", "overlap"), POLICIES)
def test_each_policy_does_at_a_change_what_it_says(timezone: str, change: str, gap: str, overlap: str) -> None:
    """Fixed times run, skip or shift in a gap, and take the first, last or both passes; wildcards follow real time."""
    begin, end = instant(change) - 30 * 3600, instant(change) + 30 * 3600
    readings = Readings([(at, local) for at, local in local_minutes(timezone, begin, end) if at > begin])
    for expression in EXPRESSIONS:
        cron = compile_cron(expression, timezone, dst_gap=gap, dst_overlap=overlap)
        expected = by_reading(Calendar(expression), readings, gap, overlap)
        assert list(cron.fires(begin, end)) == expected, expression
        assert backwards(cron, begin, end) == expected, expression
        assert cron.count(begin, end, 10_000) == len(expected), expression


@given(
    place=st.sampled_from(CHANGES),
    expression=st.sampled_from(EXPRESSIONS),
    seconds=st.sampled_from(["0", "30", "*/20", "59", "*"]),
    policy=st.tuples(st.sampled_from(GAPS), st.sampled_from(OVERLAPS)),
    shift=st.integers(-8000, 8000),
)
def test_the_laws_hold_at_changes_under_every_policy(
    place: tuple[str, str], expression: str, seconds: str, policy: tuple[str, str], shift: int
) -> None:
    """prev(next(t)) <= t < next(t), and count agrees, wherever t falls and with seconds too."""
    timezone, change = place
    cron = compile_cron(f"{seconds} {expression}", timezone, dst_gap=policy[0], dst_overlap=policy[1])
    at = instant(change) + shift
    following, before = cron.next(at), cron.prev(at)
    assert following is not None
    assert before is not None
    assert before <= at < following
    assert cron.next(before) == following
    assert cron.prev(following) == following
    assert cron.prev(following - 1) == before
    assert cron.count(before, following, 10) == 1
    end = at + 3 * 3600
    assert cron.count(at, end, 100_000) == len(list(cron.fires(at, end)))


def test_an_invented_run_comes_once_however_many_times_fall_into_the_gap() -> None:
    """Under ``run`` all times of one gap are one instant; under ``shift`` each keeps its distance."""
    begin, end = instant("2026-03-29T00:00Z"), instant("2026-03-29T02:00Z")
    run = compile_cron("0,20,40 2 * * *", "Europe/Berlin")
    shift = compile_cron("0,20,40 2 * * *", "Europe/Berlin", dst_gap="shift")
    assert [utc(at) for at in run.fires(begin, end)] == ["2026-03-29T01:00:00Z"]
    assert [utc(at) for at in shift.fires(begin, end)] == [
        "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z",
    ]  # fmt: skip


def test_a_shifted_time_that_meets_a_real_one_is_one_fire() -> None:
    """02:30 becomes 03:30, where the expression fires anyway."""
    cron = compile_cron("30 2,3 * * *", "Europe/Berlin", dst_gap="shift")
    begin, end = instant("2026-03-28T23:30Z"), instant("2026-03-29T06:00Z")
    assert [utc(at) for at in cron.fires(begin, end)] == ["2026-03-29T01:30:00Z"]
    assert cron.count(begin, end, 10) == 1


@pytest.mark.parametrize("gap", GAPS)
def test_a_day_that_the_zone_skipped_is_nobodys_gap(gap: str) -> None:
    """Samoa left out 30 December 2011: a correction of more than three hours invents nothing."""
    cron = compile_cron("0 12 * * *", "Pacific/Apia", dst_gap=gap)
    found = [utc(at) for at in cron.fires(instant("2011-12-29T10:00Z"), instant("2011-12-31T10:00Z"))]
    assert found == ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"]


def test_a_field_of_seconds_does_not_change_the_class() -> None:
    """``*/30 30 2 * * *`` is as fixed as ``30 2 * * *``; only minute and hour count."""
    fixed = compile_cron("*/30 30 2 * * *", "Europe/Berlin")
    assert not fixed.is_wildcard
    begin, end = instant("2026-03-29T00:00Z"), instant("2026-03-29T12:00Z")
    assert [utc(at) for at in fixed.fires(begin, end)] == ["2026-03-29T01:00:00Z"]
    assert compile_cron("30 * 2 * * *").is_wildcard
    assert compile_cron("0 0 */2 * * *").is_wildcard
    assert not compile_cron("0 30 0-23 * * *").is_wildcard


def test_policies_of_the_clock_are_shared_and_checked() -> None:
    """One object for each pair; a name that is none does not become a default."""
    first = compile_cron("30 2 * * *", "Europe/Berlin", dst_gap="skip")
    assert first is compile_cron("30 2 * * *", "Europe/Berlin", dst_gap="skip")
    assert first is not compile_cron("30 2 * * *", "Europe/Berlin")
    with pytest.raises(ValueError, match="'never'"):
        compile_cron("30 2 * * *", dst_gap="never")


@pytest.mark.share(3)
@pytest.mark.parametrize("timezone", SAMPLED)
def test_two_days_around_each_change_are_those_of_a_walk(timezone: str) -> None:
    """Every change of some zones from 2024 to 2030, minute by minute. ``make cron-scan`` does it for all zones."""
    calendars = {
        text: Calendar(text)
        for text in ("30 2 * * *", "15 */2 * * *", "0 0-23/3 * * 1-5", "45 0 L,1 * *", "*/20 1 * * SUN")
    }
    found = changes(timezone, instant("2024-01-01T00:00Z"), instant("2031-01-01T00:00Z"))
    assert all(later - earlier > 5 * 86_400 for earlier, later in pairwise(found))
    for change in found[:4]:
        begin, end = change - 2 * 86_400, change + 2 * 86_400
        minutes = local_minutes(timezone, begin, end)
        for expression, calendar in calendars.items():
            cron = compile_cron(expression, timezone)
            assert list(cron.fires(begin, end)) == walk(calendar, minutes, begin, end), (expression, utc(change))


def test_an_unknown_zone_in_a_prefix_is_refused() -> None:
    """Never a silent UTC."""
    with pytest.raises(CronError, match="Mars"):
        compile_cron("CRON_TZ=Mars/Olympus 0 0 * * *")


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables of 512 s instead of four years, so that every change lies near several of their borders."""
    caches = (zones._segments, zones.zone, cron_module._compile)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(zones, "_BLOCK_BITS", 9)
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("change", ["2026-03-29T01:00Z", "2026-10-25T01:00Z"])
def test_the_borders_of_tables_change_nothing(change: str) -> None:
    """What a gap shifted lies behind some of them, what an overlap repeats behind others."""
    begin, end = instant(change) - 5 * 3600, instant(change) + 5 * 3600
    readings = Readings([(at, local) for at, local in local_minutes("Europe/Berlin", begin, end) if at > begin])
    for expression in ("*/4 1-4 * * *", "1-59/4 2 * * *", "7-59/9 0-23 * * *"):
        for gap, overlap in (("run", "first"), ("shift", "last"), ("skip", "both")):
            cron = compile_cron(expression, "Europe/Berlin", dst_gap=gap, dst_overlap=overlap)
            expected = by_reading(Calendar(expression), readings, gap, overlap)
            assert list(cron.fires(begin, end)) == expected
            assert backwards(cron, begin, end) == expected
            assert cron.count(begin, end, 10_000) == len(expected)
        fixed = compile_cron("30 2 * * *", "Europe/Berlin")
        assert [at for at, _ in fixed.clock_changes(begin, end - begin)] == [instant(change)]
