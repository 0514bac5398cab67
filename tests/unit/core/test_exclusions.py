"""Times that are as if they did not exist."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.calendars.days import OverExcludedError
from supervisor.core.calendars.search_limit import LOOKS_MAX
from supervisor.core.cron import zones
from supervisor.core.model import Exclusion, Kind, ScheduleDef, Template
from supervisor.core.schedules.exclusions import exclusions_of
from supervisor.core.schedules.trigger_kinds import Trigger
from supervisor.core.schedules.triggers import trigger_of
from tests.cron_oracle import Calendar, instant, utc

TEMPLATE = Template(job="a.b", kind=Kind.ASYNC)
MINUTE = 60_000


def trigger(exclude: Sequence[Exclusion], timezone: str = "UTC", every_ms: int = MINUTE) -> Trigger:
    return trigger_of(
        ScheduleDef(id="s", template=TEMPLATE, every_ms=every_ms, timezone=timezone, exclude=tuple(exclude))
    )


def at(text: str) -> int:
    return instant(text) * 1000


def test_a_range_is_left_out_with_its_begin_and_without_its_end() -> None:
    """As the days of a calendar are: until midnight of the next one."""
    found = trigger([Exclusion(from_ms=2 * MINUTE, until_ms=5 * MINUTE)])
    assert list(found.nominals(0, 6 * MINUTE)) == [MINUTE, 5 * MINUTE, 6 * MINUTE]
    assert found.count(0, 6 * MINUTE, 100) == 3
    assert found.latest_ms(0, 4 * MINUTE) == MINUTE
    assert found.latest_ms(MINUTE, 4 * MINUTE) is None


def test_ranges_that_touch_or_overlap_are_one() -> None:
    """In whatever order they are written."""
    ranges = [(50, 60), (10, 20), (20, 30), (25, 40)]
    found = exclusions_of([Exclusion(from_ms=low, until_ms=high) for low, high in ranges], "UTC")
    excluded = [ms for ms in range(70) if found.has(ms)]
    assert excluded == [*range(10, 40), *range(50, 60)]
    assert [found.free_from(ms) for ms in (9, 10, 39, 40, 55)] == [9, 40, 40, 40, 60]
    assert [found.free_until(ms) for ms in (9, 10, 39, 40, 55)] == [9, 9, 9, 40, 49]


def test_an_expression_of_five_fields_excludes_whole_minutes() -> None:
    """A run each seven seconds rests for the hour, not for its first second."""
    found = trigger([Exclusion(cron="* 22 * * *")], every_ms=7000)
    inside = found.nominals(at("2026-01-01T21:59:50Z"), at("2026-01-01T23:00:10Z"))
    assert [utc(ms // 1000) for ms in inside][:3] == [
        "2026-01-01T21:59:51Z", "2026-01-01T21:59:58Z", "2026-01-01T23:00:03Z",
    ]  # fmt: skip


def test_an_expression_of_six_fields_excludes_seconds() -> None:
    """Sub-second times within an excluded second are excluded with it."""
    found = trigger([Exclusion(cron="0-29 * * * * *")], every_ms=500)
    inside = list(found.nominals(at("2026-01-01T00:00Z") - 1, at("2026-01-01T00:01Z") - 1))
    assert inside == list(range(at("2026-01-01T00:00:30Z"), at("2026-01-01T00:01Z"), 500))


def test_expressions_are_read_on_the_wall_clock_of_the_zone() -> None:
    """Nothing between 22:00 and 06:00 in Berlin, in summer as in winter."""
    found = trigger([Exclusion(cron="* 22-23,0-5 * * *")], "Europe/Berlin", every_ms=3_600_000)
    assert [utc(ms // 1000)[11:16] for ms in found.nominals(at("2026-01-05T23:00Z"), at("2026-01-06T06:00Z"))] == [
        "05:00", "06:00",
    ]  # fmt: skip
    assert [utc(ms // 1000)[11:16] for ms in found.nominals(at("2026-07-05T23:00Z"), at("2026-07-06T06:00Z"))] == [
        "04:00", "05:00", "06:00",
    ]  # fmt: skip


def test_months_are_passed_in_one_step_each() -> None:
    """A run each second with two months off costs no walk through five million seconds."""
    found = trigger([Exclusion(cron="* * * 7,8 *")], every_ms=1000)
    assert found.next_ms(at("2026-07-01T00:00Z") - 1) == at("2026-09-01T00:00Z")
    assert found.latest_ms(0, at("2026-09-01T00:00Z") - 1) == at("2026-06-30T23:59:59Z")
    assert found.count(at("2026-06-30T23:59:58Z"), at("2026-09-01T00:00:01Z"), 100) == 3


def test_a_schedule_of_which_nothing_is_left_is_an_error_with_a_name() -> None:
    """It must neither hang a leader nor pass for one that has ended."""
    with pytest.raises(OverExcludedError, match="over-excluded"):
        trigger([Exclusion(cron="* * * * *")]).next_ms(0)
    with pytest.raises(OverExcludedError, match="10000 due times in a row"):
        trigger_of(
            ScheduleDef(id="s", template=TEMPLATE, cron="30 2 * * *", exclude=(Exclusion(cron="30 2 * * *"),))
        ).next_ms(0)
    with pytest.raises(OverExcludedError):
        trigger_of(
            ScheduleDef(id="s", template=TEMPLATE, cron="30 2 * * *", exclude=(Exclusion(cron="30 2 * * *"),))
        ).latest_ms(0, at("2026-01-01T00:00Z"))


@pytest.mark.parametrize(
    "timing", [{"cron": "30 2 5 1 *"}, {"cron": "30 2 29 2 *"}, {"every_ms": 5 * 366 * 86_400_000 + 9_000_000}]
)
def test_a_search_for_what_is_left_looks_no_further_than_a_century(
    timing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand due times of a year each led to the year 9987, six seconds for a leader that may take two."""
    asked: list[int] = []
    at_of = zones.Zone.at
    monkeypatch.setattr(zones.Zone, "at", lambda own, second: asked.append(second) or at_of(own, second))
    exclude = (Exclusion(cron="* 1-4 * * *"),) if "cron" in timing else (Exclusion(cron="* * * * *"),)
    found = trigger_of(
        ScheduleDef(id="s", template=TEMPLATE, timezone="Europe/Berlin", exclude=exclude, **timing)
    )  # fmt: skip
    with pytest.raises(OverExcludedError):
        found.next_ms(at("2026-01-01T00:00Z"))
    assert max(asked) < instant("2200-01-01T00:00Z")


def test_a_search_takes_no_more_looks_because_exclusions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each due time cost up to ten thousand stretches, and ten thousand due times were passed: minutes of a leader."""
    looks: list[int] = []
    part = exclusions_of([Exclusion(cron="* * * * *")], "UTC").parts[0]
    free_from = type(part).free_from
    monkeypatch.setattr(type(part), "free_from", lambda own, at_ms: looks.append(at_ms) or free_from(own, at_ms))
    turns = (Exclusion(cron="0-58/2 * 2 * * *"), Exclusion(cron="1-59/2 * 2 * * *"))
    with pytest.raises(OverExcludedError):
        trigger_of(ScheduleDef(id="s", template=TEMPLATE, cron="0 2 5 * *", exclude=turns)).next_ms(0)
    assert len(looks) <= LOOKS_MAX


def test_two_expressions_that_take_turns_are_passed_together() -> None:
    """Each frees what the other excludes, and both together leave a gap."""
    found = exclusions_of([Exclusion(cron="*/2 0-11 * * *"), Exclusion(cron="1-59/2 0-11 * * *")], "UTC")
    assert found.free_from(at("2026-01-01T00:00Z")) == at("2026-01-01T12:00Z")
    assert found.free_until(at("2026-01-01T11:59Z")) == at("2026-01-01T00:00Z") - 1


@given(
    expressions=st.lists(
        st.sampled_from(["* 8-17 * * 1-5", "*/2 * * * *", "* * 15 * *", "0-44 3 * * *", "* 2 * * *"]), max_size=3
    ),
    ranges=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 500)), max_size=3),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    every=st.sampled_from([MINUTE, 7 * MINUTE, 61_000]),
    begin=st.sampled_from(["2026-03-28T22:00Z", "2026-10-24T22:00Z", "2026-02-14T00:00Z"]),
)
def test_what_is_left_is_what_no_exclusion_holds(
    expressions: list[str], ranges: list[tuple[int, int]], timezone: str, every: int, begin: str
) -> None:
    """A day and a half, up to a Monday, each due time judged by itself, forwards, backwards and counted."""
    start = at(begin)
    end = start + 36 * 3_600_000
    spans = [(start + low * MINUTE, start + (low + length) * MINUTE) for low, length in ranges]
    exclude = [Exclusion(cron=text) for text in expressions] + [
        Exclusion(from_ms=low, until_ms=high) for low, high in spans
    ]
    calendars, zone = [Calendar(text) for text in expressions], ZoneInfo(timezone)
    found = trigger(exclude, timezone, every)
    inner = trigger_of(ScheduleDef(id="s", template=TEMPLATE, every_ms=every))
    readings = [(ms, _reading(ms, zone)) for ms in inner.nominals(start, end)]
    expected = [
        ms
        for ms, reading in readings
        if not any(low <= ms < high for low, high in spans) and not any(each.has(reading) for each in calendars)
    ]
    assert list(found.nominals(start, end)) == expected
    assert list(found.newest(start, end, 10**6)) == expected
    assert found.count(start, end, 10**6) == len(expected)


def _reading(ms: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(ms // 1000, zone).utcoffset()
    assert offset is not None
    return (ms // 1000 + int(offset.total_seconds())) // 60
