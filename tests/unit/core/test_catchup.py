"""What is due after a gap: one run, the newest, with the others counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.catchup import MISSED_MAX, Due, due
from supervisor.core.cron import compile_cron
from supervisor.core.triggers import CronTrigger, Every

MINUTE_MS = 60_000


def test_nothing_is_due_before_its_time() -> None:
    """Also not a millisecond early, and not at the watermark again."""
    assert due(Every(MINUTE_MS), 0, MINUTE_MS - 1) is None
    assert due(Every(MINUTE_MS), MINUTE_MS, MINUTE_MS) is None


def test_a_single_due_time_fires_however_late() -> None:
    """A hand-over must not lose it."""
    expected = Due(nominal_ms=MINUTE_MS, new_mark_ms=MINUTE_MS, next_ms=2 * MINUTE_MS, missed=0)
    assert due(Every(MINUTE_MS), 0, MINUTE_MS) == expected
    assert due(Every(MINUTE_MS), 0, 2 * MINUTE_MS - 1) == expected


def test_after_an_outage_the_latest_fires_and_the_others_are_counted() -> None:
    """No flood, and the operator sees how many runs there were not."""
    assert due(Every(MINUTE_MS), 0, 10 * MINUTE_MS + 5) == Due(10 * MINUTE_MS, 10 * MINUTE_MS, 11 * MINUTE_MS, missed=9)


def test_the_count_of_missed_times_stops_at_its_cap() -> None:
    """A schedule that slept for a year costs no more than one that slept for a week."""
    assert due(Every(1), 0, 10_001) == Due(10_001, 10_001, 10_002, missed=MISSED_MAX)
    assert due(Every(1), 0, 10_000) == Due(10_000, 10_000, 10_001, missed=MISSED_MAX - 1)
    found = due(Every(1), 0, 10**9)
    assert found is not None
    assert found.missed == MISSED_MAX
    cron = due(CronTrigger(compile_cron("* * * * *")), 1_700_000_000_000, 1_800_000_000_000)
    assert cron is not None
    assert cron.missed == MISSED_MAX


def test_a_clock_that_stepped_back_makes_nothing_due() -> None:
    """The watermark lies ahead of now; it is waited for."""
    assert due(Every(MINUTE_MS), 10 * MINUTE_MS, 3 * MINUTE_MS) is None
    assert due(CronTrigger(compile_cron("* * * * *")), 10 * MINUTE_MS, 3 * MINUTE_MS) is None


def test_a_gap_of_the_clock_makes_one_run_due() -> None:
    """02:30 does not exist that day: the run comes as the clock jumps, and none is missed."""
    trigger = CronTrigger(compile_cron("30 2 * * *", "Europe/Berlin"))
    jump_ms = 1_774_746_000_000  # 2026-03-29T01:00Z
    found = due(trigger, jump_ms - 3_600_000, jump_ms + 7_200_000)
    assert found == Due(jump_ms, jump_ms, 1_774_830_600_000, missed=0)


@settings(max_examples=60, deadline=None)
@given(
    trigger=st.one_of(
        st.builds(Every, st.integers(100, 10**8), st.integers(0, 10**8)),
        st.builds(
            lambda text: CronTrigger(compile_cron(text, "America/New_York")),
            st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 0 1 * *"]),
        ),
    ),
    mark=st.integers(1_700_000_000_000, 1_800_000_000_000),
    steps=st.lists(st.integers(0, 10**9), max_size=6),
)
def test_every_nominal_time_is_fired_or_counted_once(trigger: Every | CronTrigger, mark: int, steps: list[int]) -> None:
    """However the evaluations fall, runs and missed ones add up to the nominal times that passed."""
    now, accounted, start = mark, 0, mark
    for step in steps:
        now += step
        found = due(trigger, mark, now)
        if found is None:
            assert trigger.count(mark, now, 1) == 0
            continue
        assert mark < found.nominal_ms <= now
        assert found.next_ms is not None
        assert found.next_ms > now
        if found.missed == MISSED_MAX:
            return  # "at least": exact sums end here
        accounted += 1 + found.missed
        mark = found.new_mark_ms
    assert accounted == trigger.count(start, now, 10**9)
