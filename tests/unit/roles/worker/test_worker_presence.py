"""What a worker writes on the scoreboard, and in which order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.core.supervision.scoreboard import Board, InflightTable, board_words
from supervisor.core.supervision.states import ChildState, Phase, RunState, UnwantedReason
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.process import heartbeat as module
from supervisor.roles.worker.process.heartbeat import WorkerHeartbeat
from supervisor.settings.sections.models import Settings
from tests.kit.clock import FakeClock


@dataclass
class Stage:
    """A worker's words on a board of its own, and the signals that its parent got."""

    clock: FakeClock = field(default_factory=FakeClock)
    signals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        words = memoryview(bytearray(board_words(slots=1, inflight=3) * 8)).cast("Q")
        self.board = Board(words, slots=1, inflight=3)
        child = ChildContext(
            settings=Settings(),
            replica="r",
            name="worker-a-0",
            slot=0,
            generation=4,
            board=self.board,
            slot_names=("worker-a-0",),
            parent_pid=1,
            clock=self.clock,
            redis_url="",
        )
        self.subject = WorkerHeartbeat(child)

    @property
    def entries(self) -> list[tuple[RunState, int, int]]:
        """State, attempt and deadline of what the worker holds."""
        return [(entry.state, entry.attempt, entry.deadline_ns) for entry in self.board.inflight[0].entries()]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage whose parent is only counted."""
    stage = Stage()

    def kill(pid: int, number: int) -> None:
        assert pid == 1
        stage.signals.append(number)

    monkeypatch.setattr(os, "kill", kill)
    return stage


def test_ready_clears_what_an_older_generation_left(stage: Stage) -> None:
    """And says whose words these are, and wakes the parent."""
    stage.board.inflight[0].put(0, execution=77, attempt=1, state=RunState.STARTED)

    stage.subject.ready()

    row = stage.board.rows[0]
    assert stage.entries == []
    assert (row.child_generation, row.child_state, row.beat_ns) == (4, ChildState.READY, stage.clock.now_ns)
    assert len(stage.signals) == 1


def test_a_run_passes_through_its_states(stage: Stage) -> None:
    """Fetched, started, done, forgotten; the deadline stands exactly while user code runs."""
    subject, row = stage.subject, stage.board.rows[0]
    subject.fetched(("q", "r1"), 2, 5)
    assert stage.entries == [(RunState.FETCHED, 2, 0)]
    subject.started(("q", "r1"), 90_000_000_000)
    assert stage.entries == [(RunState.STARTED, 2, 90_000_000_000)]
    assert (row.busy, row.deadline_ns, row.done) == (1, 90_000_000_000, 0)
    subject.done(("q", "r1"))
    assert stage.entries == [(RunState.DONE, 2, 0)]
    assert (row.busy, row.deadline_ns, row.done) == (0, 0, 1)
    subject.settled(("q", "r1"), 2, 5)
    assert stage.entries == []


def test_the_earliest_deadline_stands(stage: Stage) -> None:
    """The parent kills by one word."""
    subject, row = stage.subject, stage.board.rows[0]
    for run_id, deadline_ns in (("a", 30), ("b", 20), ("c", 40)):
        subject.fetched(("q", run_id), 1, 5)
        subject.started(("q", run_id), deadline_ns * 10**9)
    assert row.deadline_ns == 20 * 10**9
    subject.done(("q", "b"))
    assert row.deadline_ns == 30 * 10**9
    subject.done(("q", "a"))
    subject.done(("q", "c"))
    assert row.deadline_ns == 0


def test_only_a_near_deadline_wakes_the_parent(stage: Stage) -> None:
    """It looks every half second by itself."""
    for number, (ahead_ns, signals) in enumerate([(module.NEAR_NS, 0), (module.NEAR_NS - 1, 1)]):
        stage.subject.fetched(("q", f"r{number}"), 1, 5)
        stage.subject.started(("q", f"r{number}"), stage.clock.now_ns + ahead_ns)
        assert len(stage.signals) == signals


def test_a_fresh_beat_stands_before_the_deadline_that_excused_it_goes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two stores the parent would see an old beat and no deadline: a hang that is none."""
    subject, row = stage.subject, stage.board.rows[0]
    subject.fetched(("q", "r1"), 1, 5)
    subject.started(("q", "r1"), 10**12)
    stage.clock.now_ns += 10**11
    seen: list[int] = []

    class Deadlines(list[int]):
        def __delitem__(self, index: Any) -> None:
            seen.extend((row.beat_ns, row.deadline_ns))
            super().__delitem__(index)

    monkeypatch.setattr(subject, "_deadlines", Deadlines(subject._deadlines))

    subject.done(("q", "r1"))

    assert seen == [stage.clock.now_ns, 10**12]
    assert row.deadline_ns == 0


def test_entries_are_used_again(stage: Stage) -> None:
    """The table is as large as the pool, and a worker lives long."""
    for number in range(20):
        stage.subject.fetched(("q", f"r{number}"), 1, 5)
        stage.subject.settled(("q", f"r{number}"), 1, 5)
    for number in range(3):
        stage.subject.fetched(("q", f"s{number}"), 1, 5)

    assert len(stage.entries) == 3


def test_one_id_in_two_queues_is_two_runs(stage: Stage) -> None:
    """The end of one leaves the other, its deadline and its entry."""
    subject, row = stage.subject, stage.board.rows[0]
    for queue, deadline_ns in (("q", 30), ("p", 20)):
        assert subject.fetched((queue, "r"), 1, 5)
        subject.started((queue, "r"), deadline_ns * 10**9)
    subject.done(("p", "r"))
    subject.settled(("p", "r"), 1, 5)
    assert (row.busy, row.deadline_ns) == (1, 30 * 10**9)
    assert stage.entries == [(RunState.STARTED, 1, 30 * 10**9)]


def test_a_later_execution_of_a_run_that_is_here_is_noted_and_not_begun(stage: Stage) -> None:
    """Redis let go of the earlier one, which goes on: each is settled by itself."""
    subject = stage.subject
    assert subject.fetched(("q", "r"), 1, 5)
    subject.started(("q", "r"), 30)
    assert not subject.fetched(("q", "r"), 1, 6)
    assert [state for state, *_ in stage.entries] == [RunState.STARTED, RunState.FETCHED]
    subject.settled(("q", "r"), 1, 6)
    assert stage.entries == [(RunState.STARTED, 1, 30)]
    subject.done(("q", "r"))
    subject.settled(("q", "r"), 1, 5)
    assert stage.entries == []
    assert subject.room == stage.board.inflight[0].size


def test_a_parent_that_is_gone_is_no_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its death signal is on the way."""

    def gone(*_: Any) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)

    stage.subject.draining()

    assert stage.board.rows[0].child_state == ChildState.DRAINING


def test_it_reads_the_phase_of_the_tree(stage: Stage) -> None:
    """A drain is on the board before any signal arrives."""
    stage.board.header.phase = Phase.DRAINING

    assert stage.subject.phase is Phase.DRAINING
    assert isinstance(stage.board.inflight[0], InflightTable)


def test_a_question_stands_until_a_turn_is_answered(stage: Stage) -> None:
    """A bell that rings says that Redis lives, and not that this worker's turns are answered."""
    subject, row = stage.subject, stage.board.rows[0]
    subject.asks()
    asked_ns = stage.clock.now_ns
    stage.clock.now_ns += 1
    subject.asks()
    subject.redis_answered(is_turn=False)
    assert (row.asking_ns, row.redis_ok_ns) == (asked_ns, stage.clock.now_ns)

    subject.redis_answered()

    assert row.asking_ns == 0


def test_what_the_agent_asks_is_told_once_with_its_reason(stage: Stage) -> None:
    """A reason of a later version is taken for the older one."""
    row = stage.board.rows[0]
    assert stage.subject.unwanted() is None
    for number, (word, reason) in enumerate([(0, "REPLACED"), (1, "CANCELLED"), (7, "REPLACED")], start=1):
        row.unwanted_hash, row.unwanted_reason, row.unwanted_number = 77, word, number
        assert stage.subject.unwanted() == (77, UnwantedReason[reason])
        assert stage.subject.unwanted() is None


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_a_parent_that_cannot_be_woken_is_no_fault_of_the_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """It died; or a job gave up root, and may no longer send it a signal."""

    def refuse(_pid: int, _number: int) -> None:
        raise error

    monkeypatch.setattr(os, "kill", refuse)
    stage.subject.draining()
    assert stage.board.rows[0].child_state == ChildState.DRAINING
