"""Whether the scheduler beside the elector makes progress."""

from __future__ import annotations

import pytest

from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.roles.agent.election.context import TreeView
from tests.kit.clock import FakeClock
from tests.unit.roles.agent.elector_stepper import S


@pytest.fixture
def board() -> Board:
    """A board with a scheduler in row 0."""
    made = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
    made.header.phase = Phase.READY
    made.rows[0].state, made.rows[0].generation = SlotState.RUNNING, 1
    return made


def test_two_silent_seconds_are_too_many(board: Board) -> None:
    """Looked at once a second: the parent ends it at the same limit."""
    clock = FakeClock()
    tree = TreeView(board, board.rows[0], clock)
    seen = []
    for _ in range(4):
        seen.append(tree.can_schedule())
        clock.now_ns += S

    assert seen == [True, True, False, False]


def test_the_process_that_a_term_is_for_is_the_living_one_or_the_next(board: Board) -> None:
    """The parent shows a death only after it has reaped the process, so the next number is a promise."""
    tree = TreeView(board, board.rows[0], FakeClock())
    board.rows[0].generation, board.rows[0].ended_generation = 4, 3
    assert tree.incarnation() == 4
    board.rows[0].ended_generation = 4
    assert tree.incarnation() == 5
    board.rows[0].generation = 5
    assert tree.incarnation() == 5


def test_any_progress_clears_it(board: Board) -> None:
    """The counter moved, however little."""
    clock = FakeClock()
    tree = TreeView(board, board.rows[0], clock)
    for _ in range(100):
        clock.now_ns += 5 * S
        board.rows[0].progress += 1
        assert tree.can_schedule()


def test_a_suspended_machine_is_no_silent_scheduler(board: Board) -> None:
    """Both slept. The first look afterwards must not cost the lease."""
    clock = FakeClock()
    tree = TreeView(board, board.rows[0], clock)
    clock.now_ns += 3600 * S

    assert tree.can_schedule()


def test_it_stops_with_the_tree_or_by_itself(board: Board) -> None:
    """A draining tree stops the elector long before the agent is told to end."""
    tree = TreeView(board, board.rows[0], FakeClock())
    assert not tree.is_stopping()
    board.header.phase = Phase.DRAINING
    assert tree.is_stopping()
    board.header.phase = Phase.READY
    tree.is_ending = True
    assert tree.is_stopping()
    board.rows[0].generation = 1
    assert not tree.is_scheduler_gone()
    board.rows[0].ended_generation = 1
    assert tree.is_scheduler_gone()
