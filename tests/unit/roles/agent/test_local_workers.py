"""Which worker processes died, of what, and with which table, as read from the board."""

from __future__ import annotations

import pytest

from supervisor.core.supervision.crash_blame import Death
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import Phase, RunState, SlotState
from supervisor.roles.agent.sessions.local_workers import GENERATIONS_MAX, LocalWorkers

NAMES = ("agent", "worker-io-0", "worker-cpu-0")


@pytest.fixture
def board() -> Board:
    """A board on which generation 1 of both workers runs."""
    made = Board(memoryview(bytearray(8 * board_words(slots=3, inflight=4))).cast("Q"), slots=3, inflight=4)
    made.header.phase = Phase.READY
    for row in made.rows[1:]:
        row.state, row.generation, row.child_generation = SlotState.RUNNING, 1, 1
    made.inflight[1].put(0, execution=7, attempt=1, state=RunState.STARTED)
    return made


def workers(board: Board) -> LocalWorkers:
    return LocalWorkers(board, NAMES, "r1")


def test_processes_that_may_be_alive_are_beaten_for(board: Board) -> None:
    """Also one that is being stopped: its runs are still its own."""
    board.rows[2].state = SlotState.STOPPING

    assert workers(board).live() == ["r1/worker-io-0/1", "r1/worker-cpu-0/1"]
    assert workers(board).dead() == []


@pytest.mark.parametrize(
    ("cause", "phase", "death"),
    [
        (Cause.NONE, Phase.READY, Death.CRASHED),
        (Cause.HANG, Phase.READY, Death.CRASHED),
        (Cause.OVERRUN, Phase.READY, Death.OVERRUN),
        (Cause.RESTART, Phase.READY, Death.STOPPED),
        (Cause.FORCED, Phase.READY, Death.STOPPED),
        (Cause.NONE, Phase.DRAINING, Death.STOPPED),
        (Cause.OVERRUN, Phase.KILLING, Death.STOPPED),
    ],
)
def test_the_parent_says_why_it_died(board: Board, cause: Cause, phase: Phase, death: Death) -> None:
    """While the tree stops nobody is blamed."""
    board.rows[1].ended_generation, board.rows[1].cause, board.header.phase = 1, cause, phase
    (dead,) = workers(board).dead()

    assert (dead.session, dead.death) == ("r1/worker-io-0/1", death)
    assert [entry.state for entry in dead.table] == [RunState.STARTED]


def test_the_board_says_when_its_loop_last_turned_and_what_it_read(board: Board) -> None:
    """Whether it stood still at a deadline depends on it; the beat of the next process says nothing."""
    board.rows[1].ended_generation, board.rows[1].cause, board.rows[1].beat_ns = 1, Cause.OVERRUN, 5
    board.rows[1].turn_ms = 6
    assert [(each.turned_ns, each.turn_ms) for each in workers(board).dead()] == [(5, 6)]
    row = board.rows[1]
    row.generation = row.child_generation = row.ended_generation = 2
    assert [(each.turned_ns, each.turn_ms) for each in workers(board).dead()] == [(0, None), (5, 6)]


@pytest.mark.parametrize("went_on", [False, True])
def test_a_process_that_left_because_of_redis_is_no_crash(board: Board, *, went_on: bool) -> None:
    """Nor is it one when its slot went on; the next death of the slot is judged by itself."""
    row = board.rows[1]
    row.severed_generation, row.last_exit = 1, 75
    row.ended_generation, row.generation = 1, 2 if went_on else 1
    (dead,) = workers(board).dead()
    assert (dead.generation, dead.death, dead.how) == (1, Death.STOPPED, "left because of Redis")

    row.generation = row.child_generation = row.ended_generation = 2
    row.reclaimed_generation = 1
    assert [each.death for each in workers(board).dead()] == [Death.CRASHED]


def test_a_table_of_the_next_process_is_not_used(board: Board) -> None:
    """The parent did not wait: what the table says now is about other runs."""
    board.rows[1].generation, board.rows[1].ended_generation = 2, 1
    (dead,) = workers(board).dead()

    assert (dead.generation, dead.death, dead.table) == (1, Death.CRASHED, None)


def test_the_parent_is_woken_once_the_next_process_need_not_wait(board: Board) -> None:
    """It holds the fork back until then; without this it would look only at the end of its patience."""
    board.rows[1].ended_generation = 1
    seen: list[int] = []
    local = LocalWorkers(board, NAMES, "r1", wake_parent=lambda: seen.append(board.rows[1].reclaimed_generation))
    local.mark_reclaimed(local.dead()[0])
    assert seen == [1]  # the word first


def test_a_death_is_told_until_it_is_marked(board: Board) -> None:
    """An agent that died in between leaves it to the next."""
    board.rows[1].ended_generation = 1
    local = workers(board)
    (dead,) = local.dead()
    assert len(local.dead()) == 1
    local.mark_reclaimed(dead)

    assert local.dead() == []
    assert board.rows[1].reclaimed_generation == 1


def test_the_deaths_of_a_slot_are_bounded(board: Board) -> None:
    """A slot that died a thousand times while no agent lived costs sixteen looks."""
    board.rows[1].generation, board.rows[1].ended_generation = 1000, 999

    assert len(workers(board).dead()) == GENERATIONS_MAX


def test_sessions_of_this_replica_are_known_by_their_name(board: Board) -> None:
    """Also those of processes that no row remembers."""
    assert workers(board).owns("r1/worker-io-0/77")
    assert not workers(board).owns("r10/worker-io-0/1")


@pytest.mark.parametrize(
    ("session", "is_over"),
    [
        ("r1/worker-io-0/2", True),
        ("r1/worker-io-0/3", False),
        ("r1/worker-io-0/4", False),
        ("r1/worker-gone-0/1", False),
        ("r2/worker-io-0/1", False),
        ("nonsense", False),
    ],
)
def test_only_a_process_that_is_certainly_gone_is_over(board: Board, session: str, *, is_over: bool) -> None:
    """A generation that the board does not show yet may be on its way: the parent was stopped after its fork."""
    board.rows[1].generation, board.rows[1].ended_generation = 3, 2

    assert workers(board).is_over(session) is is_over


def test_the_board_says_how_it_died(board: Board) -> None:
    """The text goes into the record of each run that it held; of an earlier process nothing is known any more."""
    board.rows[1].ended_generation, board.rows[1].last_exit = 1, 256 + 9
    assert workers(board).dead()[0].how == "SIGKILL from outside"
    board.rows[1].oom_generation = 1
    assert workers(board).dead()[0].how == "SIGKILL, out of memory"
    row = board.rows[1]
    row.generation = row.child_generation = row.ended_generation = 2

    assert [dead.how for dead in workers(board).dead()] == ["died", "SIGKILL from outside"]
