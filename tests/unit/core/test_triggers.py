"""Triggers: grids and calendars in milliseconds, equal on every replica."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron.expression import CronError, compile_cron
from supervisor.core.model import Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules.trigger_kinds import At, CronTrigger, Every, Trigger
from supervisor.core.schedules.triggers import TriggerError, after_completion_ms, after_end_ms, trigger_of

TEMPLATE = Template(job="identity.token_cleanup", kind=Kind.SYNC)
milliseconds = st.integers(-(10**13), 10**13)


def test_an_interval_is_a_grid_through_the_epoch() -> None:
    """Neither a restart nor a late run moves it."""
    every = Every(600_000)
    assert every.next_ms(0) == 600_000
    assert every.next_ms(599_999) == 600_000
    assert every.next_ms(600_000) == 1_200_000
    assert every.latest_ms(0, 1_800_000) == 1_800_000
    assert every.latest_ms(600_000, 1_199_999) is None


def test_a_phase_shifts_the_grid() -> None:
    """Two schedules of one interval need not be due together."""
    every = Every(60_000, phase_ms=15_000)
    assert every.next_ms(0) == 15_000
    assert every.next_ms(15_000) == 75_000
    assert Every(60_000, phase_ms=135_000).next_ms(0) == 15_000


@given(
    every_ms=st.integers(1, 10**10),
    phase_ms=milliseconds,
    at=milliseconds,
    span=st.integers(0, 10**11),
    cap=st.integers(0, 100),
)
def test_the_grid_keeps_its_laws(every_ms: int, phase_ms: int, at: int, span: int, cap: int) -> None:
    """Exact whole numbers: next is on the grid and one step away at most; latest and count agree with it."""
    every = Every(every_ms, phase_ms)
    following = every.next_ms(at)
    assert at < following <= at + every_ms
    assert (following - phase_ms) % every_ms == 0
    exact = 0 if following > at + span else (at + span - following) // every_ms + 1
    assert every.count(at, at + span, cap) == min(exact, cap)
    latest = every.latest_ms(at, at + span)
    assert (latest is None) == (exact == 0)
    assert latest is None or latest == following + (exact - 1) * every_ms


@given(
    expression=st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 9 * * 1-5"]),
    at=st.integers(1_700_000_000_000, 2_000_000_000_000),
    span=st.integers(0, 10**9),
)
def test_a_calendar_in_milliseconds_never_rounds_towards_a_fire(expression: str, at: int, span: int) -> None:
    """A watermark between two seconds must neither repeat a fire nor skip one."""
    trigger = CronTrigger(compile_cron(expression, "Europe/Berlin"))
    walked, due = [], trigger.next_ms(at)
    while due is not None and due <= at + span:
        walked.append(due)
        due = trigger.next_ms(due)
    assert all(fire > at and fire % 60_000 == 0 for fire in walked)
    assert trigger.count(at, at + span, 10**6) == len(walked)
    assert trigger.latest_ms(at, at + span) == (walked[-1] if walked else None)


def test_a_calendar_that_ends_has_no_next() -> None:
    """None is passed on, not multiplied."""
    trigger = CronTrigger(compile_cron("0 0 * * *"))
    assert trigger.next_ms(10**18) is None
    assert trigger.latest_ms(-(10**18), -(10**18)) is None


@pytest.mark.parametrize(
    ("trigger", "text"),
    [(Every(600_000), "every 10m"), (Every(90_000), "every 90s"), (Every(250), "every 250ms"), (Every(86_400_000), "every 1d"),
     (Every(3_600_000, 300_000), "every 1h phase 5m"),
     (CronTrigger(compile_cron(" 30  2 * * * ", "Europe/Berlin")), "cron 30 2 * * * Europe/Berlin")],
)  # fmt: skip
def test_a_trigger_describes_itself_as_people_write_it(trigger: Trigger, text: str) -> None:
    """It is shown in the log line and in lists."""
    assert trigger.describe() == text


def test_a_definition_becomes_the_trigger_it_names() -> None:
    """The only place that turns stored text into times."""
    assert trigger_of(ScheduleDef(id="a", template=TEMPLATE, every_ms=1000, phase_ms=5)) == Every(1000, 5)
    cron = trigger_of(ScheduleDef(id="a", template=TEMPLATE, cron="@daily", timezone="Asia/Tokyo"))
    assert cron.describe() == "cron 0 0 * * * Asia/Tokyo"


def test_a_definition_with_neither_or_both_is_refused() -> None:
    """Written by another version, perhaps: an error with its id, not a guess."""
    with pytest.raises(TriggerError, match="'a' sets none of every, cron, calendar_interval, at and after_completion"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE))
    with pytest.raises(TriggerError, match="'a' sets both every and cron"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, every_ms=1000, cron="@daily"))
    with pytest.raises(TriggerError, match="'a' sets both every and at"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, cron="@daily", when=(When(every_ms=1000, at_ms=5),)))
    with pytest.raises(TriggerError, match="at least 1 ms"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, every_ms=0))
    with pytest.raises(CronError, match="minute"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, cron="99 * * * *"))


def define(**fields: Any) -> Trigger:
    return trigger_of(ScheduleDef(id="a", template=TEMPLATE, **fields))


def test_an_instant_is_due_once() -> None:
    """Then there is no next."""
    at = define(at_ms=5000)
    assert (at.next_ms(4999), at.next_ms(5000)) == (5000, None)
    assert (at.latest_ms(0, 5000), at.latest_ms(0, 4999), at.latest_ms(5000, 9000)) == (5000, None, None)
    assert (at.count(0, 5000, 9), at.count(0, 5000, 0)) == (1, 0)
    assert at.describe() == "at 1970-01-01T00:00:05Z"
    assert At(1_798_797_600_250).describe() == "at 2027-01-01T10:00:00.250Z"


def test_a_union_is_due_whenever_a_part_is_and_equal_times_are_one() -> None:
    """Every two and every three seconds share every sixth."""
    union = define(every_ms=2000, when=(When(every_ms=3000), When(at_ms=7500)))
    assert list(union.nominals(0, 9000)) == [2000, 3000, 4000, 6000, 7500, 8000, 9000]
    assert union.count(0, 12_000, 100) == 9
    assert union.count(0, 12_000, 4) == 4
    assert union.latest_ms(0, 7999) == 7500
    assert union.newest(0, 9000, 3) == (7500, 8000, 9000)
    assert union.describe() == "every 2s; every 3s; at 1970-01-01T00:00:07.500Z"


def test_a_list_alone_is_a_trigger() -> None:
    """``when`` without anything beside it; each expression in its own zone, or in the schedule's."""
    found = define(
        when=(When(cron="0 9 * * *"), When(cron="0 9 * * *", timezone="Asia/Tokyo")), timezone="Europe/Berlin"
    )
    day = 1_767_571_200_000  # 2026-01-05T00:00Z
    assert [(ms - day) // 3_600_000 for ms in found.nominals(day - 1, day + 86_399_999)] == [0, 8]


def test_bounds_are_inclusive_on_the_nominal_time() -> None:
    """start_at and end_at themselves are due."""
    bounded = define(every_ms=1000, start_at_ms=3000, end_at_ms=5000)
    assert list(bounded.nominals(0, 10**6)) == [3000, 4000, 5000]
    assert (bounded.next_ms(5000), bounded.latest_ms(0, 10**6), bounded.latest_ms(0, 2999)) == (None, 5000, None)
    assert (bounded.count(0, 10**6, 10), bounded.count(3000, 4000, 10), bounded.count(6000, 7000, 10)) == (3, 1, 0)


def test_a_grid_can_begin_at_the_start() -> None:
    """``anchor: start_at`` for those who want their first run then; epoch is the default."""
    assert define(every_ms=7000, start_at_ms=10_000, anchor="start_at").next_ms(0) == 10_000
    assert define(every_ms=7000, start_at_ms=10_000, anchor="start_at", phase_ms=500).next_ms(0) == 10_500
    assert define(every_ms=7000, start_at_ms=10_000).next_ms(0) == 14_000


def test_after_completion_is_no_part_of_the_calendar() -> None:
    """Whoever sees a run end asks for the next one."""
    definition = ScheduleDef(id="a", template=TEMPLATE, after_completion_ms=600_000)
    trigger = trigger_of(definition)
    assert (trigger.next_ms(0), trigger.latest_ms(0, 10**13), trigger.count(0, 10**13, 5)) == (None, None, 0)
    assert trigger.describe() == "10m after completion"
    assert after_completion_ms(definition) == 600_000
    assert after_end_ms(definition, 1_000_000) == 1_600_000
    assert after_end_ms(ScheduleDef(id="a", template=TEMPLATE, every_ms=5), 0) is None
    several = ScheduleDef(
        id="a", template=TEMPLATE, cron="@daily", when=(When(after_completion_ms=90), When(after_completion_ms=80))
    )
    assert after_completion_ms(several) == 80


def test_what_follows_a_run_keeps_to_bounds_and_exclusions() -> None:
    """Up to start_at, out of what is excluded, and never behind end_at."""
    definition = ScheduleDef(
        id="a", template=TEMPLATE, after_completion_ms=1000, start_at_ms=50_000, end_at_ms=90_000,
        exclude=(Exclusion(from_ms=60_000, until_ms=70_000),),
    )  # fmt: skip
    assert [after_end_ms(definition, ended) for ended in (0, 49_000, 59_000, 60_000, 89_000, 89_001)] == [
        50_000, 50_000, 70_000, 70_000, 90_000, None,
    ]  # fmt: skip


def test_equal_timings_share_one_trigger() -> None:
    """A hundred thousand schedules over a thousand timings cost a thousand triggers."""
    one = trigger_of(ScheduleDef(id="a", template=TEMPLATE, cron="0 9 * * *", exclude=(Exclusion(cron="* * 1 1 *"),)))
    two = trigger_of(ScheduleDef(id="b", template=TEMPLATE, cron="0 9 * * *", exclude=(Exclusion(cron="* * 1 1 *"),)))
    assert one is two
    hashed = [trigger_of(ScheduleDef(id=name, template=TEMPLATE, cron="H H * * *")) for name in ("a", "b")]
    assert hashed[0].describe() != hashed[1].describe(), "each draws from its own id"


def test_policies_of_the_clock_reach_the_expression() -> None:
    """02:30 in the gap of 2026-03-29, shifted to 03:30."""
    shifted = define(cron="30 2 * * *", timezone="Europe/Berlin", dst_gap="shift")
    assert shifted.next_ms(1_774_746_000_000 - 1) == 1_774_746_000_000 + 1_800_000


parts = st.lists(
    st.one_of(
        st.builds(
            lambda every, phase: When(every_ms=every, phase_ms=phase), st.integers(1000, 10**7), st.integers(0, 10**7)
        ),
        st.builds(lambda text: When(cron=text), st.sampled_from(["*/5 * * * *", "30 2 * * *", "*/40 * * * * *"])),
        st.builds(lambda at: When(at_ms=at), st.integers(1_774_740_000_000, 1_774_760_000_000)),
    ),
    min_size=1,
    max_size=4,
)


@given(
    when=parts, at=st.integers(1_774_740_000_000, 1_774_750_000_000), span=st.integers(0, 10**7), cap=st.integers(0, 30)
)
def test_a_union_is_the_set_of_all_times_of_its_parts(when: list[When], at: int, span: int, cap: int) -> None:
    """next, latest, newest and count all agree with merging."""
    union = define(when=tuple(when), timezone="Europe/Berlin")
    expected = sorted(
        {ms for part in when for ms in define(when=(part,), timezone="Europe/Berlin").nominals(at, at + span)}
    )
    assert list(union.nominals(at, at + span)) == expected
    assert union.count(at, at + span, 10**6) == len(expected)
    assert union.count(at, at + span, cap) == min(cap, len(expected))
    assert union.latest_ms(at, at + span) == (expected[-1] if expected else None)
    assert list(union.newest(at, at + span, cap)) == (expected[-cap:] if cap else [])
    assert list(union.nominals(at, at + span, cap)) == expected[:cap]
