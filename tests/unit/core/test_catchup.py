"""What is owed after a gap: by policy, window and cap, against going through every nominal time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.calendars.days import OverExcludedError
from supervisor.core.model import CalendarDays, Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules.catchup import MISSED_MAX, Owed, fire_at_ms, next_fire, owed
from supervisor.core.schedules.triggers import trigger_of
from tests.kit.tables import table

TEMPLATE = Template(job="identity.token_cleanup", kind=Kind.SYNC)
MINUTE = 60_000
DAY = 86_400_000
GRACE = 10_000
POLICIES = ("latest", "earliest", "all", "skip")


def schedule(**fields: Any) -> ScheduleDef:
    return ScheduleDef(id="s", template=TEMPLATE, **({} if "cron" in fields else {"every_ms": MINUTE}) | fields)


def ask(definition: ScheduleDef, mark: int, now: int) -> Owed | None:
    return owed(definition, trigger_of(definition), mark_ms=mark, now_ms=now, on_time_grace_ms=GRACE)


def test_nothing_is_owed_before_its_time() -> None:
    """Also not a millisecond early, and not at the watermark again."""
    assert ask(schedule(), 0, MINUTE - 1) is None
    assert ask(schedule(), MINUTE, MINUTE) is None


@table("policy", POLICIES)
@table("late_ms", [0, 1, GRACE, MINUTE - 1])
def test_a_single_due_time_fires_however_late(policy: str, late_ms: int) -> None:
    """A hand-over must not lose it, whatever the policy for several."""
    found = ask(schedule(missed=policy), 0, MINUTE + late_ms)
    assert found == Owed((MINUTE,), MINUTE, 2 * MINUTE, 2 * MINUTE, {})


def test_a_single_due_time_fires_years_late() -> None:
    """Nothing gives up on it."""
    yearly = schedule(cron="0 0 1 1 *", missed="skip")
    found = ask(yearly, 1_735_689_600_000, 1_767_225_600_000 + 300 * 86_400_000)
    assert found is not None
    assert found.nominals == (1_767_225_600_000,)


def test_latest_runs_the_newest_alone() -> None:
    """No flood, and the operator sees how many runs there were not."""
    found = ask(schedule(missed="latest"), 0, 10 * MINUTE + 5)
    assert found == Owed((10 * MINUTE,), 10 * MINUTE, 11 * MINUTE, 11 * MINUTE, {"policy": 9})


def test_earliest_runs_the_oldest_inside_the_window() -> None:
    """What lies outside the window has its own reason."""
    found = ask(schedule(missed="earliest"), 0, 10 * MINUTE)
    assert found is not None
    assert (found.nominals, found.missed, found.new_mark_ms) == ((MINUTE,), {"policy": 9}, 10 * MINUTE)
    found = ask(schedule(missed="earliest", catchup_window_ms=3 * MINUTE), 0, 10 * MINUTE)
    assert found is not None
    assert (found.nominals, found.missed) == ((7 * MINUTE,), {"window": 6, "policy": 3})


def test_all_runs_each_oldest_first() -> None:
    """An outage of a day with an hourly schedule catches up exactly once each."""
    hourly = schedule(every_ms=60 * MINUTE, missed="all")
    found = ask(hourly, 0, 24 * 60 * MINUTE)
    assert found is not None
    assert found.nominals == tuple(hour * 60 * MINUTE for hour in range(1, 25))
    assert found.missed == {}


def test_all_keeps_the_newest_up_to_its_cap_in_order() -> None:
    """The rest is counted with a reason of its own."""
    found = ask(schedule(missed="all", max_catchup=3), 0, 10 * MINUTE)
    assert found is not None
    assert (found.nominals, found.missed) == ((8 * MINUTE, 9 * MINUTE, 10 * MINUTE), {"cap": 7})


def test_skip_runs_only_what_is_within_the_grace() -> None:
    """An ordinary hand-over of a fast schedule is not a miss."""
    fast = schedule(every_ms=1000, missed="skip")
    found = ask(fast, 0, 4500)
    assert found is not None
    assert (found.nominals, found.missed) == ((1000, 2000, 3000, 4000), {})
    found = ask(fast, 0, 60_500)
    assert found is not None
    assert found.nominals == tuple(range(51_000, 61_000, 1000))
    assert found.missed == {"policy": 50}
    found = ask(schedule(missed="skip"), 0, 10 * MINUTE + GRACE)
    assert found is not None
    assert (found.nominals, found.missed) == ((), {"policy": 10})


def test_skip_is_capped_too() -> None:
    """A schedule of ten a second may not enqueue a hundred at once if its limit is five."""
    found = ask(schedule(every_ms=100, missed="skip", max_catchup=5), 0, 60_000)
    assert found is not None
    assert len(found.nominals) == 5
    assert found.missed == {"policy": 500, "cap": 95}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_older_than_the_window_is_never_run(policy: str) -> None:
    """Not even when it is the only one; the watermark passes it all the same."""
    found = ask(schedule(missed=policy, catchup_window_ms=30_000), 0, MINUTE + 30_001)
    assert found == Owed((), MINUTE, 2 * MINUTE, 2 * MINUTE, {"window": 1})
    found = ask(schedule(missed=policy, catchup_window_ms=30_000), 0, MINUTE + 30_000)
    assert found is not None
    assert found.nominals == (MINUTE,), "exactly as old as the window is inside"


def test_counts_are_exact_up_to_ten_thousand_and_then_at_least() -> None:
    """A schedule that slept for years costs no more than one that slept for a week."""
    second = schedule(every_ms=1000)
    for outage, counted in ((10_001, 10_000), (10_000, 9_999), (10_002, 10_000), (10**9, MISSED_MAX)):
        found = ask(second, 0, outage * 1000)
        assert found is not None
        assert found.missed == {"policy": counted}
    found = ask(schedule(every_ms=1000, missed="all", catchup_window_ms=5_000_000), 0, 10**12)
    assert found is not None
    assert found.missed == {"window": MISSED_MAX, "cap": 4001}
    assert len(found.nominals) == 1000


def test_a_clock_that_stepped_back_owes_nothing() -> None:
    """The watermark lies ahead of now; it is waited for."""
    assert ask(schedule(), 10 * MINUTE, 3 * MINUTE) is None
    assert ask(schedule(cron="* * * * *"), 10 * MINUTE, 3 * MINUTE) is None


def test_a_run_whose_jitter_has_not_passed_is_not_owed_yet() -> None:
    """Its nominal time has, but its fire is ahead: the one before it is the newest that is due."""
    jittered = schedule(jitter_ms=50_000, missed="all")
    fire = fire_at_ms(jittered, 2 * MINUTE, 3 * MINUTE)
    assert 2 * MINUTE < fire < 3 * MINUTE
    early = ask(jittered, 0, fire - 1)
    assert early is not None
    assert (early.nominals, early.new_mark_ms) == ((MINUTE,), MINUTE)
    assert (early.next_ms, early.next_fire_ms) == (2 * MINUTE, fire)
    assert ask(jittered, MINUTE, fire - 1) is None
    late = ask(jittered, MINUTE, fire)
    assert late is not None
    assert late.nominals == (2 * MINUTE,)


def test_the_end_of_a_schedule_leaves_no_next_fire() -> None:
    """The planner takes it out."""
    once = ScheduleDef(id="s", template=TEMPLATE, at_ms=5 * MINUTE, jitter_ms=MINUTE)
    fire = fire_at_ms(once, 5 * MINUTE, None)
    assert next_fire(once, trigger_of(once), 0) == (5 * MINUTE, fire)
    assert ask(once, 0, fire) == Owed((5 * MINUTE,), 5 * MINUTE, None, None, {})
    assert next_fire(once, trigger_of(once), 5 * MINUTE) is None


def test_a_gap_of_the_clock_owes_one_run() -> None:
    """02:30 does not exist that day: the run comes as the clock jumps, and none is missed."""
    jump_ms = 1_774_746_000_000  # 2026-03-29T01:00Z
    found = ask(schedule(cron="30 2 * * *", timezone="Europe/Berlin"), jump_ms - 3_600_000, jump_ms + 7_200_000)
    assert found == Owed((jump_ms,), jump_ms, 1_774_830_600_000, 1_774_830_600_000, {})


def test_a_schedule_that_excludes_everything_says_so() -> None:
    """The planner marks it, and goes on with the others."""
    never = schedule(exclude=(Exclusion(cron="* * * * *"),))
    with pytest.raises(OverExcludedError):
        ask(never, 0, MINUTE)
    with pytest.raises(OverExcludedError):
        next_fire(never, trigger_of(never), 0)


@table("policy", POLICIES)
def test_due_times_are_owed_although_exclusions_leave_none_behind_them(policy: str) -> None:
    """The search for one more is an error: it kept what was due before from being run, and from being counted."""
    dates = ((7, 1, ""), (11, 1, ""))
    thursdays = CalendarDays(calendar="a", is_only=True, weekdays=(3,), dates=dates)
    fridays = CalendarDays(calendar="b", is_only=True, weekdays=(4,), dates=dates)
    exclude = (Exclusion(days=thursdays), Exclusion(days=fridays))
    ending = schedule(cron="0 6 * * *", missed=policy, exclude=exclude)
    due = [7 * DAY + DAY // 4, 11 * DAY + DAY // 4]
    assert list(trigger_of(ending).nominals(7 * DAY, 14 * DAY)) == due
    assert trigger_of(ending).count(7 * DAY, 14 * DAY, 10) == 2
    found = ask(ending, 7 * DAY, 14 * DAY)

    assert found is not None
    assert len(found.nominals) + sum(found.missed.values()) == 2
    assert set(found.nominals) <= set(due)
    assert (found.new_mark_ms, found.next_ms) == (due[-1], None)


definitions = st.builds(
    lambda timing, policy, window, cap, jitter, bounds: ScheduleDef(
        id="property", template=TEMPLATE, missed=policy, catchup_window_ms=window, max_catchup=cap, jitter_ms=jitter[0],
        jitter_mode=jitter[1], end_at_ms=bounds, **timing,
    ),
    st.sampled_from([
        {"every_ms": 7_000}, {"every_ms": 100_000, "phase_ms": 3_000}, {"cron": "*/3 * * * *"},
        {"cron": "*/5 * * * *", "when": (When(every_ms=7 * MINUTE), When(at_ms=1_774_746_123_456))},
        {"every_ms": 30_000, "exclude": (Exclusion(cron="0-9 * * * *"), Exclusion(from_ms=1_774_746_000_000, until_ms=1_774_746_900_000))},
        {"cron": "0,20 2 * * *", "timezone": "Europe/Berlin", "dst_gap": "shift"},
    ]),
    st.sampled_from(POLICIES),
    st.sampled_from([None, 0, 5_000, 20 * MINUTE]),
    st.sampled_from([1, 3, 1000]),
    st.tuples(st.sampled_from([0, 2_000, 400_000]), st.sampled_from(["fixed", "per_fire"])),
    st.sampled_from([None, 1_774_747_000_000]),
)  # fmt: skip


def brute_force(definition: ScheduleDef, mark: int, now: int) -> tuple[list[int], Counter[str], list[int]]:
    """Go through every nominal time that passed, and judge each by the words of the specification."""
    trigger = trigger_of(definition)
    walked = list(trigger.nominals(mark, now))  # none fires before its nominal time
    following = [*walked[1:], trigger.next_ms(now)][: len(walked)]
    fires = {nominal: fire_at_ms(definition, nominal, after) for nominal, after in zip(walked, following, strict=True)}
    due = [nominal for nominal, fire in fires.items() if fire <= now]
    window = definition.catchup_window_ms
    inside = [nominal for nominal in due if window is None or fires[nominal] >= now - window]
    missed = Counter({"window": len(due) - len(inside)})
    if not inside or len(due) == 1:
        return inside, missed, due
    if definition.missed == "latest":
        chosen = inside[-1:]
    elif definition.missed == "earliest":
        chosen = inside[:1]
    else:
        wanted = [nominal for nominal in inside if definition.missed == "all" or now - fires[nominal] < GRACE]
        chosen = wanted[-definition.max_catchup :]
        missed["cap"] += len(wanted) - len(chosen)
        missed["policy"] += len(inside) - len(wanted)
        return chosen, missed, due
    missed["policy"] += len(inside) - len(chosen)
    return chosen, missed, due


@given(
    definition=definitions,
    mark=st.integers(1_774_740_000_000, 1_774_748_000_000),
    span=st.one_of(st.integers(0, 300_000), st.integers(0, 3_600_000 * 30)),
)
def test_what_is_owed_is_what_going_through_every_time_finds(definition: ScheduleDef, mark: int, span: int) -> None:
    """Every policy, window, cap and jitter, unions, exclusions, bounds and a change of the clock."""
    now = mark + span
    chosen, missed, due = brute_force(definition, mark, now)
    found = ask(definition, mark, now)
    if not due:
        assert found is None
        return
    assert found is not None
    assert list(found.nominals) == chosen
    assert found.new_mark_ms == due[-1]
    assert dict(found.missed) == {reason: min(count, MISSED_MAX) for reason, count in missed.items() if count}
    following = trigger_of(definition).next_ms(due[-1])
    assert found.next_ms == following
    if following is not None:
        assert found.next_fire_ms is not None
        assert found.next_fire_ms > now


@given(
    definition=definitions,
    mark=st.integers(1_774_740_000_000, 1_774_748_000_000),
    steps=st.lists(st.one_of(st.integers(0, 20_000), st.integers(0, 10**7)), max_size=8),
)
def test_every_nominal_time_is_owed_or_counted_once(definition: ScheduleDef, mark: int, steps: list[int]) -> None:
    """However the evaluations fall, runs and missed ones add up to the nominal times that passed."""
    now, accounted, start = mark, 0, mark
    for step in steps:
        now += step
        found = ask(definition, mark, now)
        if found is None:
            continue
        if MISSED_MAX in found.missed.values():
            return  # "at least": exact sums end here
        assert all(mark < nominal <= found.new_mark_ms <= now for nominal in found.nominals)
        assert list(found.nominals) == sorted(set(found.nominals))
        accounted += len(found.nominals) + sum(found.missed.values())
        mark = found.new_mark_ms
    assert accounted == trigger_of(definition).count(start, mark, 10**6)
