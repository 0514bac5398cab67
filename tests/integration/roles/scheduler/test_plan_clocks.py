"""What a leader fires whose wall clock is not Redis', where nobody's is better."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from supervisor.core.model import ScheduleDef
from supervisor.store.wire.fire import FireCode
from supervisor.testing.world import EPOCH_MS
from tests.integration.roles.scheduler.planned import TEMPLATE, Planned, every, planned

MANY = 1000  # more than the pages that are read before the first of them are fired


def crowd() -> list[ScheduleDef]:
    return [every(20, f"s{number}", overlap="allow", missed="latest") for number in range(MANY)]


def fired(plan: Planned) -> Counter[int]:
    """Return by due time, in seconds, how many were fired."""
    found = [entry for entry in plan.server.decisions if entry.code is FireCode.FIRED]
    return Counter((entry.nominal_ms - EPOCH_MS) // 1000 for entry in found)


def late_ms(plan: Planned, since_s: float) -> list[int]:
    """Return the least and the greatest lateness, by Redis, of what was due after ``since_s``."""
    since_ms = EPOCH_MS + round(since_s * 1000)
    late = [entry.at_ms - entry.nominal_ms for entry in plan.server.decisions if entry.nominal_ms > since_ms]
    return [min(late), max(late)]


@pytest.mark.parametrize("ahead_s", [60, 1200])
def test_a_clock_that_is_ahead_keeps_no_schedule_from_its_due_times(ahead_s: int) -> None:
    """All of a large plan is fired in time by Redis, as by a clock that is right, and so when it is right again."""
    with planned(*crowd()) as plan:
        plan.until(30)
        plan.clock.wall_offset_ms = ahead_s * 1000
        plan.until(130)
        assert fired(plan) == dict.fromkeys(range(20, 140, 20), MANY)
        least_ms, most_ms = late_ms(plan, 35)
        assert least_ms >= 0
        assert most_ms < 1000
        plan.clock.wall_offset_ms = 0
        plan.until(190)
        assert fired(plan) == dict.fromkeys(range(20, 200, 20), MANY)
        assert late_ms(plan, 135)[1] < 1000
        assert plan.state("s999").counters.missed == 0


def test_a_clock_that_steps_between_two_due_times_costs_two_seconds_at_most() -> None:
    """Between two renewals the leader knows a difference that is not true any more, of either sign."""
    steps_s = (60, 0, 1200, 60, 0, 3600, 0)
    for before_s in (0.05, 0.5, 0.95):
        with planned(every(20, overlap="allow", missed="skip")) as plan:
            for number, step_s in enumerate(steps_s):
                plan.until(20 * (number + 1) - before_s)
                plan.clock.wall_offset_ms = step_s * 1000
            plan.until(150)
            assert plan.fired() == [20, 40, 60, 80, 100, 120, 140]
            least_ms, most_ms = late_ms(plan, 0)
            assert least_ms >= 0
            assert most_ms <= 2100


@pytest.mark.parametrize("ahead_ms", [-499, 0, 499])
def test_a_clock_that_is_nearly_right_is_the_one_that_counts(ahead_ms: int) -> None:
    """To the millisecond: what is due by it is due, and Redis accepts that."""
    with planned(every(20, overlap="allow")) as plan:
        plan.clock.wall_offset_ms = ahead_ms
        plan.until(70)
        assert plan.fired() == [20, 40, 60]
        least_ms, most_ms = late_ms(plan, 0)
        assert -ahead_ms <= least_ms <= most_ms <= 50 - ahead_ms


@pytest.mark.parametrize("step_s", [-30, -600])
def test_a_step_of_redis_clock_back_and_forth_doubles_and_loses_nothing(step_s: int) -> None:
    """Meanwhile nothing is due by it that was not decided; then what was due meanwhile is owed."""
    with planned(*crowd()) as plan:
        plan.until(50)
        plan.world.server_offset_ms += step_s * 1000
        plan.until(75)
        plan.world.server_offset_ms -= step_s * 1000
        plan.until(130)
        assert fired(plan) == dict.fromkeys(range(20, 140, 20), MANY)
        assert late_ms(plan, 65)[1] < 1000
        assert max(entry.at_ms for entry in plan.server.decisions if entry.nominal_ms <= EPOCH_MS + 65_000) < (
            EPOCH_MS + 78_000
        )


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("ahead_s", [0, 1200])
def test_a_clock_that_is_ahead_doubts_no_due_time_that_redis_had_not_come_to(ahead_s: int, *, is_whole: bool) -> None:
    """After a loss of data: what runs at most once was left out until Redis' time had come to that of the clock."""
    once = msgspec.structs.replace(TEMPLATE, at_most_once=True)
    with planned(every(10, template=once, overlap="allow", missed="all")) as plan:
        plan.until(21)
        plan.clock.wall_offset_ms = ahead_s * 1000
        plan.until(24)
        copy = plan.server.snapshot()
        plan.until(35)
        if is_whole:
            plan.server.empty()
        else:
            plan.server.restore(copy)
        plan.until(95)
        assert plan.fired() == [10, 20, 30, 40, 50, 60, 70, 80, 90]
        assert [entry.code for entry in plan.server.decisions if entry.code is not FireCode.FIRED] == (
            [] if is_whole else [FireCode.MISSED]  # 30 s, of which Redis knows no more that it ran
        )
