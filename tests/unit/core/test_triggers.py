"""Triggers: grids and calendars in milliseconds, equal on every replica."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.cron import CronError, compile_cron
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.triggers import CronTrigger, Every, Trigger, TriggerError, trigger_of

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


@settings(max_examples=60, deadline=None)
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
    with pytest.raises(TriggerError, match="'a' sets neither every nor cron"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE))
    with pytest.raises(TriggerError, match="'a' sets both every and cron"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, every_ms=1000, cron="@daily"))
    with pytest.raises(TriggerError, match="at least 1 ms"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, every_ms=0))
    with pytest.raises(CronError, match="minute"):
        trigger_of(ScheduleDef(id="a", template=TEMPLATE, cron="99 * * * *"))
