"""The slot state machine: every pair decided, no second process, no storm, no slot that waits for ever."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.supervision.shutdown import TreeExit, tree_verdict
from supervisor.core.supervision.slot import (
    STABLE_AFTER_NS,
    TRANSITIONS,
    Action,
    Cause,
    Group,
    ImpossibleSlotTransitionError,
    Slot,
    SlotEvent,
    SlotPolicy,
    SlotTransition,
    backoff_ns,
    exited,
    forgiven,
    recent_failures,
    step,
    still_working,
)
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from tests.kit.tables import table

POLICY = SlotPolicy(boot_timeout_ns=30 * SECOND_NS, grace_ns=20 * SECOND_NS, backoff_max_ns=30 * SECOND_NS)
T = 1000 * SECOND_NS
LIVE = (SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING, SlotState.KILLING)


def at(state: SlotState, **fields: object) -> Slot:
    ready_ns = T if state not in {SlotState.STOPPED, SlotState.STARTING} else 0
    return replace(Slot(state=state, generation=1, started_ns=T, ready_ns=ready_ns), **fields)  # type: ignore[arg-type]


def do(slot: Slot, event: SlotEvent, now_ns: int = T) -> SlotTransition:
    return step(slot, event, now_ns=now_ns, policy=POLICY)


def die(slot: Slot, status: int, now_ns: int = T, *, group: Group = Group.WORKER, is_wanted: bool = True) -> Slot:
    return exited(slot, status, now_ns=now_ns, group=group, policy=POLICY, is_wanted=is_wanted).slot


@table(("state", "event"), list(product(SlotState, SlotEvent)))
def test_every_pair_of_state_and_event_is_decided(state: SlotState, event: SlotEvent) -> None:
    """A pair is either in the table or refused: nothing falls through."""
    if (state, event) in TRANSITIONS:
        assert do(at(state), event).slot.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(ImpossibleSlotTransitionError, match=event.value):
            do(at(state), event)


@table(("state", "event"), sorted(TRANSITIONS, key=str))
def test_a_fork_happens_only_where_there_was_no_process(state: SlotState, event: SlotEvent) -> None:
    """Two processes in one slot would be two schedulers."""
    if Action.FORK in do(at(state), event).actions:
        assert not state.has_process


@table("state", [SlotState.STARTING, SlotState.KILLING])
@table("event", list(SlotEvent))
def test_nobody_waits_for_a_process_without_a_deadline(state: SlotState, event: SlotEvent) -> None:
    """A child that never answers must not hold its slot: whatever leads to these states sets a clock."""
    for before in SlotState:
        if TRANSITIONS.get((before, event)) is state:
            slot = at(before, deadline_ns=T + SECOND_NS if before.has_process else 0)
            assert do(slot, event).slot.deadline_ns > T


def test_a_child_that_does_not_get_ready_shows_its_stacks_and_is_killed() -> None:
    """SIGABRT makes faulthandler say where it hangs; two seconds later it dies either way."""
    aborted = do(at(SlotState.STARTING), SlotEvent.LATE)
    assert (aborted.actions, aborted.slot.cause) == ((Action.ABORT,), Cause.BOOT_TIMEOUT)
    assert aborted.slot.deadline_ns == T + 2 * SECOND_NS
    killed = do(aborted.slot, SlotEvent.LATE, T + 2 * SECOND_NS)
    assert (killed.actions, killed.slot.is_killed) == ((Action.KILL,), True)


def test_a_process_that_survives_sigkill_is_reported_again_and_again() -> None:
    """Uninterruptible sleep is the kernel's to end; the operator must know."""
    killed = do(at(SlotState.RUNNING), SlotEvent.KILL).slot
    later = do(killed, SlotEvent.LATE, killed.deadline_ns)
    assert later.actions == (Action.KILL, Action.REPORT_UNKILLABLE)
    assert later.slot.deadline_ns == killed.deadline_ns + 5 * SECOND_NS


def test_a_hang_is_told_apart_from_a_run_that_overran() -> None:
    """A hang shows its stacks first; a deadline is exact, so the group is killed at once."""
    assert do(at(SlotState.RUNNING), SlotEvent.HUNG).actions == (Action.ABORT,)
    overran = do(at(SlotState.RUNNING), SlotEvent.OVERRAN)
    assert (overran.actions, overran.slot.cause, overran.slot.is_killed) == ((Action.KILL,), Cause.OVERRUN, True)


def test_a_run_that_overruns_while_it_is_being_cancelled_dies_at_its_deadline() -> None:
    """Two seconds to give runs back are not two more seconds for a run whose time is over."""
    cancelled = do(at(SlotState.STOPPING, cause=Cause.STOP), SlotEvent.CANCEL).slot
    overran = do(cancelled, SlotEvent.OVERRAN)
    assert (overran.actions, overran.slot.cause) == ((Action.KILL,), Cause.OVERRUN)
    assert do(overran.slot, SlotEvent.OVERRAN).actions == ()


def test_a_restart_that_was_asked_for_ends_in_a_fresh_process_without_blame() -> None:
    """TERM, its grace, QUIT, SIGKILL; and however it ended, nothing is counted."""
    told = do(at(SlotState.RUNNING), SlotEvent.RESTART)
    assert (told.actions, told.slot.deadline_ns) == ((Action.TERM,), T + POLICY.grace_ns)
    assert do(told.slot, SlotEvent.RESTART, T + SECOND_NS) == SlotTransition(told.slot)
    late = do(told.slot, SlotEvent.LATE, told.slot.deadline_ns)
    assert (late.actions, late.slot.cause) == ((Action.QUIT,), Cause.RESTART)
    assert die(late.slot, -9).streak == 0


def test_a_stop_of_the_tree_takes_over_a_restart() -> None:
    """The tree's own clock counts from then on, and no second TERM is sent."""
    told = do(at(SlotState.RUNNING), SlotEvent.RESTART).slot
    stopped = do(told, SlotEvent.STOP)
    assert (stopped.actions, stopped.slot.cause, stopped.slot.deadline_ns) == ((), Cause.STOP, 0)


@pytest.mark.parametrize("state", [SlotState.STOPPED, SlotState.BACKOFF, SlotState.FATAL])
def test_a_slot_without_a_process_stops_at_once(state: SlotState) -> None:
    """Nobody waits for a delay when the tree stops."""
    stopped = do(at(state, deadline_ns=T + 30 * SECOND_NS), SlotEvent.STOP)
    assert (stopped.slot.state, stopped.slot.deadline_ns, stopped.actions) == (SlotState.STOPPED, 0, ())


def test_a_failed_fork_is_a_failure_that_waits() -> None:
    """No process or memory to give is the machine's trouble: try again, ever more rarely."""
    slot = at(SlotState.STARTING)
    waits = []
    for _ in range(4):
        failed = do(slot, SlotEvent.FORK_FAILED).slot
        waits.append(failed.deadline_ns - T)
        slot = do(failed, SlotEvent.START).slot
    assert waits == [0, SECOND_NS // 10, SECOND_NS // 5, 2 * SECOND_NS // 5]


def test_the_first_failure_costs_no_time_and_each_further_one_twice_as_much() -> None:
    """A single crash must not be felt; a crash loop must not be a storm."""
    pauses = [backoff_ns(streak, cap_ns=30 * SECOND_NS, jitter=1.0) / SECOND_NS for streak in range(1, 13)]
    assert pauses == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]


@given(streak=st.integers(1, 10**6), jitter=st.floats(1, 1.25), cap_ns=st.integers(SECOND_NS // 10, 600 * SECOND_NS))
def test_a_pause_never_exceeds_its_cap_and_jitter(streak: int, jitter: float, cap_ns: int) -> None:
    """However long a streak is, the number stays small and positive."""
    assert 0 <= backoff_ns(streak, cap_ns=cap_ns, jitter=jitter) <= cap_ns * jitter


def test_more_than_five_failures_in_two_minutes_are_a_crash_loop() -> None:
    """The sixth gives up; a role that the tree can do without is retried at the longest pause."""
    slot = at(SlotState.RUNNING)
    states = []
    for n in range(7):
        slot = die(replace(slot, started_ns=T + n * SECOND_NS, ready_ns=T + n * SECOND_NS), 70, T + n * SECOND_NS)
        states.append(slot.state)
        last = slot
        slot = do(slot, SlotEvent.START, T + n * SECOND_NS).slot
    assert states == [SlotState.BACKOFF] * 5 + [SlotState.FATAL] * 2
    assert last.deadline_ns == T + 6 * SECOND_NS + POLICY.backoff_max_ns


def test_failures_spread_over_more_than_two_minutes_are_no_loop() -> None:
    """A child that dies every half minute is slow, not looping; its pauses grow all the same."""
    slot = at(SlotState.RUNNING)
    for n in range(12):
        now_ns = T + n * 30 * SECOND_NS
        slot = die(replace(slot, started_ns=now_ns, ready_ns=now_ns), 70, now_ns)
        assert slot.state is SlotState.BACKOFF
        slot = do(slot, SlotEvent.START, now_ns).slot


def test_a_minute_of_running_forgives_everything() -> None:
    """What failed long ago says nothing about now, a crash loop included."""
    slot = at(SlotState.RUNNING, streak=9, failures=(T,) * 6, is_crash_looping=True)
    almost = die(slot, 70, T + STABLE_AFTER_NS - 1)
    assert (almost.state, almost.streak) == (SlotState.FATAL, 10)
    stable = die(slot, 70, T + STABLE_AFTER_NS)
    assert (stable.state, stable.streak, stable.deadline_ns) == (SlotState.BACKOFF, 1, T + STABLE_AFTER_NS)


@table("status", [77, 78])
@table("group", list(Group))
def test_a_refusal_gives_up_at_once(status: int, group: Group) -> None:
    """Wrong configuration and missing permission do not heal by trying five times in a second."""
    slot = die(at(SlotState.STARTING), status, group=group)
    assert slot.state is SlotState.FATAL
    assert (slot.deadline_ns == 0) == group.ends_tree


@pytest.mark.parametrize(
    ("status", "cause"), [(0, Cause.NONE), (75, Cause.NONE), (-9, Cause.OVERRUN), (0, Cause.RESTART)]
)
def test_some_exits_count_against_nobody_but_are_paced(status: int, cause: Cause) -> None:
    """A recycle, a clean restart and a job that overran are not the worker's failure; once a second is enough."""
    slot = die(at(SlotState.RUNNING, cause=cause, streak=2), status, T + SECOND_NS // 4)
    assert (slot.state, slot.streak, slot.deadline_ns) == (SlotState.BACKOFF, 2, T + SECOND_NS)


@pytest.mark.parametrize("status", [3, 70, 78, -9, -11])
def test_a_worker_that_died_of_its_runs_comes_back_within_a_second_however_often(status: int) -> None:
    """The runs are charged and end; a slot that were given up for them would take the pool away from all others."""
    slot = at(SlotState.RUNNING, streak=2)
    for number in range(50):
        now_ns = T + number * SECOND_NS // 10
        running = replace(slot, state=SlotState.RUNNING, started_ns=now_ns, ready_ns=now_ns)
        slot = exited(
            running, status, now_ns=now_ns, group=Group.WORKER, policy=POLICY, is_wanted=True, is_runs_fault=True
        ).slot
        assert (slot.state, slot.streak, slot.failures) == (SlotState.BACKOFF, 2, ())
        assert slot.deadline_ns - now_ns <= SECOND_NS


def test_leaving_politely_before_being_ready_is_a_failure() -> None:
    """Else a child that does nothing would be started for ever, and never counted."""
    assert die(at(SlotState.STARTING), 0).streak == 1


@pytest.mark.parametrize("cause", [Cause.HANG, Cause.BOOT_TIMEOUT])
def test_a_hang_counts_even_if_the_child_then_leaves_politely(cause: Cause) -> None:
    """The stack dump ends a process by signal, but a handler may turn that into exit 0."""
    assert die(at(SlotState.KILLING, cause=cause), 0).streak == 1


@table(("state", "status"), list(product(LIVE, [0, 1, 70, 75, 78, -6, -9])))
def test_nothing_comes_back_once_the_tree_stops(state: SlotState, status: int) -> None:
    """Desired down wins over every policy."""
    assert die(at(state), status, is_wanted=False).state is SlotState.STOPPED


def test_before_the_tree_was_ready_three_failures_end_it() -> None:
    """A broken release fails at once, not after the service manager lost patience."""
    slot = at(SlotState.STARTING)
    for n in range(1, 4):
        slot = die(slot, 1)
        verdict = tree_verdict(slot, 1, name="io", group=Group.WORKER, is_tree_ready=False)
        assert (verdict is not None) == (n == 3)
        slot = do(slot, SlotEvent.START).slot
    assert verdict is not None
    assert verdict.code == 70


def test_a_refusal_before_the_tree_was_ready_is_a_configuration_error() -> None:
    """78 keeps the service manager from trying again (RestartPreventExitStatus)."""
    slot = die(at(SlotState.STARTING), 78)
    verdict = tree_verdict(slot, 78, name="io", group=Group.WORKER, is_tree_ready=False)
    assert verdict == TreeExit(78, "io refused to start with exit code 78")


@table("group", list(Group))
@table("status", [70, 78, -11])
def test_a_crash_loop_ends_a_ready_tree_only_for_roles_it_cannot_do_without(group: Group, status: int) -> None:
    """Without a scheduler or a worker the rest of the replica is still worth having."""
    slot = die(at(SlotState.RUNNING, streak=5, failures=(T,) * 5), status, group=group)
    verdict = tree_verdict(slot, status, name=group, group=group, is_tree_ready=True)
    assert slot.state is SlotState.FATAL
    assert (verdict.code if verdict else 0) == (70 if group in {"agent", "web", "embedded"} else 0)


@pytest.mark.parametrize("is_tree_ready", [False, True])
def test_a_place_that_takes_nothing_ends_the_tree_by_its_own_code(is_tree_ready: bool) -> None:  # noqa: FBT001
    """A disk that fills up between the check at the start and the server's own: 73, as at the start."""
    slot = die(at(SlotState.RUNNING, streak=5, failures=(T,) * 5), 73, group=Group.EMBEDDED)
    verdict = tree_verdict(slot, 73, name="embedded", group=Group.EMBEDDED, is_tree_ready=is_tree_ready)
    assert (verdict.code if verdict else 0) == 73


def test_a_single_failure_of_a_ready_tree_ends_nothing() -> None:
    """That is what restarts are for."""
    slot = die(at(SlotState.RUNNING), 70, group=Group.AGENT)
    assert tree_verdict(slot, 70, name="agent", group=Group.AGENT, is_tree_ready=True) is None


@given(
    events=st.lists(st.sampled_from(list(SlotEvent)), max_size=60),
    gaps=st.lists(st.integers(0, 90 * SECOND_NS), min_size=60),
)
def test_generations_only_grow_and_each_has_one_fork(events: list[SlotEvent], gaps: list[int]) -> None:
    """The generation is what fences words on the board, so it may never repeat."""
    slot, now_ns, forked = Slot(), T, []
    for event, gap_ns in zip(events, gaps, strict=False):
        now_ns += gap_ns
        if (slot.state, event) not in TRANSITIONS:
            continue
        change = do(slot, event, now_ns)
        slot = change.slot
        forked += [slot.generation] * change.actions.count(Action.FORK)
    assert all(after == before + 1 for before, after in pairwise([0, *forked]))


@pytest.mark.parametrize(
    ("failed_s", "count"),
    [((), 0), ((5,), 1), ((5, 30, 64), 3), ((5, 30, 66), 2), ((0, 1, 2, 3, 4, 5), 6), ((5, 200), 1)],
)
def test_deaths_of_one_minute_are_counted_back_from_the_last(failed_s: tuple[int, ...], count: int) -> None:
    """The agent lets another replica lead at the third of the scheduler's."""
    slot = Slot(failures=tuple(T + seconds * SECOND_NS for seconds in failed_s))

    assert recent_failures(slot) == count


@pytest.mark.parametrize("state", LIVE)
def test_a_process_that_retires_is_told_once_and_comes_back_for_nobody(state: SlotState) -> None:
    """Its place is another's; what it ends with counts against nobody."""
    told = do(at(state), SlotEvent.RETIRE)
    assert told.actions == ((Action.TERM,) if state in {SlotState.STARTING, SlotState.RUNNING} else ())
    assert do(told.slot, SlotEvent.RETIRE).actions == ()
    assert die(told.slot, -9, is_wanted=False).state is SlotState.STOPPED
    if told.actions:
        assert (told.slot.cause, die(told.slot, 70).streak) == (Cause.RETIRED, 0)


def test_a_process_that_retires_may_finish_a_run_however_long_it_takes() -> None:
    """The grace counts from the last look at which it had one."""
    told = do(at(SlotState.RUNNING), SlotEvent.RETIRE).slot
    working = still_working(told, now_ns=T + 3600 * SECOND_NS, policy=POLICY)
    assert working.deadline_ns == T + 3600 * SECOND_NS + POLICY.grace_ns
    stopped = do(working, SlotEvent.STOP).slot
    assert still_working(stopped, now_ns=T, policy=POLICY) == stopped
    restarting = do(at(SlotState.RUNNING), SlotEvent.RESTART).slot
    assert still_working(restarting, now_ns=T + 3600 * SECOND_NS, policy=POLICY) == restarting


@pytest.mark.parametrize("state", [SlotState.BACKOFF, SlotState.FATAL])
def test_a_slot_whose_cause_of_failure_has_changed_is_tried_at_once(state: SlotState) -> None:
    """A reload that mends the configuration must not wait for the pause of the broken one."""
    slot = forgiven(
        at(state, streak=9, failures=(T,) * 6, is_crash_looping=True, ended_ns=T, deadline_ns=T + 30 * SECOND_NS)
    )
    assert (slot.state, slot.streak, slot.failures, slot.is_crash_looping) == (state, 0, (), False)
    assert slot.deadline_ns == T
    running = at(SlotState.RUNNING, streak=9)
    assert forgiven(running) == running
