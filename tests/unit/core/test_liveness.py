"""When a silent child is hung, when it is just working, and when the parent has no right to judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.supervision.liveness import PauseGuard, hang_deadline_ns, judge, silence_ns
from supervisor.core.supervision.scoreboard import ROW_WORDS, Row
from supervisor.core.supervision.slot import Slot, SlotEvent
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS

T = 1000 * SECOND_NS
LIMIT_NS = 15 * SECOND_NS
RUNNING = Slot(state=SlotState.RUNNING, generation=3, started_ns=T - SECOND_NS, ready_ns=T)


def make_row(*, generation: int = 3, beat_ns: int = T, deadline_ns: int = 0) -> Row:
    row = Row(memoryview(bytearray(8 * ROW_WORDS)).cast("Q"))
    row.child_generation, row.beat_ns, row.deadline_ns = generation, beat_ns, deadline_ns
    return row


def verdict(
    row: Row, now_ns: int, slot: Slot = RUNNING, *, limit_ns: int | None = LIMIT_NS, guard: PauseGuard | None = None
) -> SlotEvent | None:
    return judge(slot, row, now_ns=now_ns, hang_after_ns=limit_ns, guard=guard or PauseGuard())


def test_a_child_that_beats_is_alive_and_one_that_stopped_is_hung() -> None:
    """The limit is exact: not at it, but past it."""
    assert verdict(make_row(), T + LIMIT_NS) is None
    assert verdict(make_row(), T + LIMIT_NS + 1) is SlotEvent.HUNG


def test_a_child_without_a_limit_never_hangs() -> None:
    """The embedded server does not know the board."""
    assert verdict(make_row(), T + 3600 * SECOND_NS, limit_ns=None) is None


def test_a_missing_beat_is_fine_while_a_run_may_still_take_its_time() -> None:
    """Ten minutes of computing inside a deadline of an hour is work, not a hang."""
    row = make_row(deadline_ns=T + 3600 * SECOND_NS)
    assert verdict(row, T + 600 * SECOND_NS) is None


def test_a_deadline_is_exact_whatever_else_goes_on() -> None:
    """Not before, not after, not held back by a pause, and even if the loop beats."""
    guard = PauseGuard()
    guard.woke(asked_ns=T, now_ns=T + 10 * SECOND_NS)
    row = make_row(beat_ns=T + 10 * SECOND_NS, deadline_ns=T + 10 * SECOND_NS)
    assert verdict(row, T + 10 * SECOND_NS - 1, guard=guard) is None
    assert verdict(row, T + 10 * SECOND_NS, guard=guard) is SlotEvent.OVERRAN


def test_words_of_a_dead_generation_prove_nothing() -> None:
    """Neither life nor an overdue run of the predecessor is the new child's."""
    row = make_row(generation=2, beat_ns=T + 20 * SECOND_NS, deadline_ns=T - 5 * SECOND_NS)
    assert verdict(row, T) is None
    assert verdict(row, T + LIMIT_NS + 1) is SlotEvent.HUNG


def test_the_limit_counts_from_ready_when_no_beat_came_since() -> None:
    """A child that was slow to boot is not hung at its first breath."""
    slot = replace(RUNNING, ready_ns=T + 60 * SECOND_NS)
    assert silence_ns(slot, make_row(beat_ns=T), T + 61 * SECOND_NS) == SECOND_NS


@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.KILLING])
def test_booting_and_dying_have_clocks_of_their_own(state: SlotState) -> None:
    """A hang limit on top would only blur the cause."""
    slot = replace(RUNNING, state=state, is_killed=state is SlotState.KILLING)
    assert verdict(make_row(deadline_ns=T), T + 100 * SECOND_NS, slot) is None


def test_a_run_overruns_while_its_worker_is_being_cancelled() -> None:
    """QUIT gives two seconds to hand runs back, not two more seconds to a run."""
    slot = replace(RUNNING, state=SlotState.KILLING)
    assert verdict(make_row(deadline_ns=T + SECOND_NS), T + SECOND_NS, slot) is SlotEvent.OVERRAN
    assert verdict(make_row(), T + 100 * SECOND_NS, slot) is None


@pytest.mark.parametrize(("late_s", "limit_s", "held_s"), [(0.5, 15, 0), (0.6, 15, 7.5), (0.6, 2, 1.5), (30, 60, 30)])
def test_a_parent_that_woke_late_holds_its_judgement(late_s: float, limit_s: float, held_s: float) -> None:
    """Whoever stopped us, stopped the children too: they get time to beat before they are judged."""
    guard = PauseGuard()
    now_ns = T + int(late_s * SECOND_NS)
    assert bool(guard.woke(asked_ns=T, now_ns=now_ns)) == (late_s > 0.5)
    limit_ns, held_ns = int(limit_s * SECOND_NS), int(held_s * SECOND_NS)
    silent = make_row(beat_ns=1)
    slot = replace(RUNNING, started_ns=1, ready_ns=1)
    if held_ns:
        assert verdict(silent, now_ns + held_ns - 1, slot, limit_ns=limit_ns, guard=guard) is None
    assert verdict(silent, now_ns + held_ns, slot, limit_ns=limit_ns, guard=guard) is SlotEvent.HUNG


@pytest.mark.parametrize("late_ns", [0, 10 * SECOND_NS])
def test_the_parent_knows_when_to_look_again(late_ns: int) -> None:
    """At that moment the verdict falls, and not before; after a pause it falls later."""
    guard = PauseGuard()
    guard.woke(asked_ns=T, now_ns=T + late_ns)
    due_ns = hang_deadline_ns(RUNNING, make_row(), hang_after_ns=LIMIT_NS, guard=guard)
    assert due_ns == T + max(LIMIT_NS + 1, late_ns + LIMIT_NS // 2 if late_ns else 0)
    assert verdict(make_row(), due_ns - 1, guard=guard) is None
    assert verdict(make_row(), due_ns, guard=guard) is SlotEvent.HUNG


def test_what_cannot_hang_needs_no_look() -> None:
    """One that boots, that is being killed, that has no limit, or whose run has time."""
    for state in (SlotState.STARTING, SlotState.KILLING):
        slot = replace(RUNNING, state=state)
        assert hang_deadline_ns(slot, make_row(), hang_after_ns=LIMIT_NS, guard=PauseGuard()) == 0
    assert hang_deadline_ns(RUNNING, make_row(), hang_after_ns=None, guard=PauseGuard()) == 0
    busy = make_row(deadline_ns=T + 3600 * SECOND_NS)
    assert hang_deadline_ns(RUNNING, busy, hang_after_ns=LIMIT_NS, guard=PauseGuard()) == 0
