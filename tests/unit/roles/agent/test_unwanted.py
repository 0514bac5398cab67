"""A run that must give way: who is asked, and who is killed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from supervisor.core.supervision.scoreboard import Board, Row, board_words, execution_hash
from supervisor.core.supervision.states import Phase, RunState, SlotState, UnwantedReason, Verb
from supervisor.roles.agent.sessions import local_workers
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.tasks import BETWEEN_NS, UNWANTED_PERIOD_NS, Unwanted
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import EndedRun, Queues, UnwantedPage, UnwantedRun
from supervisor.store.wire.poll import HISTORY

NAMES = ("agent", "worker-io-0", "worker-cpu-0")
IO, CPU = 1, 2


class Stage:
    """An agent, two workers that execute run ``x``, and what Redis asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        words = memoryview(bytearray(8 * board_words(slots=3, inflight=4))).cast("Q")
        self.board = Board(words, slots=3, inflight=4)
        self.board.header.phase = Phase.READY
        for slot in (IO, CPU):
            row = self.board.rows[slot]
            row.state, row.generation, row.pid, row.busy = SlotState.RUNNING, 7, 1000 + slot, 1
            self.board.inflight[slot].put(
                0, execution=execution_hash(("default", "x"), 5), attempt=1, state=RunState.STARTED
            )
        self.signalled: list[int] = []
        monkeypatch.setattr(local_workers.os, "kill", lambda pid, _number: self.signalled.append(pid))
        self.asked: list[list[str]] = []
        self.requests: list[UnwantedRun] = []
        self.woken = 0
        self.told: list[dict[str, Any]] = []
        self.unwanted = Unwanted(
            call=self.answer,
            queues=Queues(Keys("t")),
            workers=LocalWorkers(self.board, NAMES, "r1"),
            row=self.agent,
            wake_parent=self.wake,
            exclusive=[CPU],
            history=HISTORY,
            report=lambda event, **fields: self.told.append({"event": event, **fields}),
        )

    @property
    def agent(self) -> Row:
        """The agent's own row."""
        return self.board.rows[0]

    def answer(self, call: Any) -> Any:
        """Be Redis."""
        self.asked.append(list(call.args))
        return UnwantedPage(self.requests)

    def wake(self) -> None:
        """Be the parent's wake-up."""
        self.woken += 1

    def look(self, *requests: UnwantedRun) -> None:
        """Let Redis want this, and the agent look."""
        self.requests = list(requests)
        self.unwanted.run(0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Everybody at work."""
    return Stage(monkeypatch)


def request(slot: int, *, kill: bool = False, run_id: str = "x") -> UnwantedRun:
    """Return what Redis says of a run."""
    return UnwantedRun("default", run_id, f"r1/{NAMES[slot]}/7", kill, fetched_ms=5)


def test_an_idle_replica_asks_nothing(stage: Stage) -> None:
    """No command is spent while nothing is executed."""
    for slot in (IO, CPU):
        stage.board.rows[slot].busy = 0
    stage.look(request(IO))
    assert stage.asked == []


@pytest.mark.parametrize("slot", [IO, CPU])
def test_a_worker_is_told_which_run_must_end(stage: Stage, slot: int) -> None:
    """By the scoreboard, and by a signal that a coroutine pool ignores."""
    stage.look(request(slot))

    row = stage.board.rows[slot]
    assert (row.unwanted_hash, row.unwanted_number) == (execution_hash(("default", "x"), 5), 1)
    assert stage.signalled == [1000 + slot]
    assert stage.asked == [[10_000, "", "0", "r1/worker-cpu-0/7", "r1/worker-io-0/7"]]
    assert (stage.agent.request_number, stage.woken) == (0, 0)


def test_a_run_that_is_not_executed_there_any_more_disturbs_nobody(stage: Stage) -> None:
    """It has ended, waits to begin, or is another one by now."""
    stage.board.inflight[CPU].put(0, execution=execution_hash(("default", "x"), 5), attempt=1, state=RunState.DONE)
    stage.look(request(IO, run_id="y"), request(CPU, kill=True))

    assert stage.signalled == []
    assert stage.told == []
    assert (stage.board.rows[IO].unwanted_number, stage.agent.request_number) == (0, 0)


def test_the_end_of_a_run_whose_process_is_killed_for_it_is_told(stage: Stage) -> None:
    """A coroutine's worker lives on, and tells its end when it comes to it."""
    ends = {slot: EndedRun("default", "x", "cancelled", 1, "j", "") for slot in (IO, CPU)}
    stage.look(*(replace(request(slot, kill=True), ended=ends[slot]) for slot in (IO, CPU)))

    (told,) = [each for each in stage.told if each["event"] == "runs_ended"]
    assert told["runs"] == [ends[CPU]]
    assert told["runs"][0] is ends[CPU]
    stage.look(request(CPU, kill=True))
    assert len([each for each in stage.told if each["event"] == "runs_ended"]) == 1


def test_ends_are_told_one_by_one_as_their_processes_are_killed(stage: Stage) -> None:
    """The parent kills one at a time; meanwhile the others may end by themselves, and their workers tell it."""
    stage.unwanted._exclusive = frozenset({IO, CPU})
    ends = [EndedRun("default", "x", "cancelled", 1, name, "") for name in ("first", "second")]
    stage.look(*(replace(request(slot, kill=True), ended=end) for slot, end in zip((IO, CPU), ends, strict=True)))

    def told() -> list[EndedRun]:
        return [run for each in stage.told if each["event"] == "runs_ended" for run in each["runs"]]

    assert told() == ends[:1]
    stage.unwanted.run(0)
    assert told() == ends[:1], "the parent has not killed the first"
    stage.agent.handled_number = stage.agent.request_number
    stage.unwanted.run(0)
    assert told() == ends
    assert stage.agent.request_slot == CPU


def test_a_process_of_one_run_is_killed_by_the_parent_when_its_time_is_over(stage: Stage) -> None:
    """The agent asks; only the parent kills."""
    stage.look(request(CPU, kill=True))

    agent = stage.agent
    assert (agent.request_verb, agent.request_slot, agent.request_generation) == (Verb.KILL, CPU, 7)
    assert (agent.request_number, stage.woken) == (1, 1)

    stage.look(request(CPU, kill=True))
    assert agent.request_number == 1, "the parent has not seen the first one"
    agent.handled_number = 1
    stage.look(request(CPU, kill=True))
    assert agent.request_number == 2


def test_neighbours_of_a_coroutine_are_not_killed_with_it(stage: Stage) -> None:
    """It is cancelled, again and again; what it reports later is refused."""
    stage.look(request(IO, kill=True))
    stage.look(request(IO, kill=True))

    assert stage.board.rows[IO].unwanted_number == 2
    assert (stage.agent.request_number, stage.woken) == (0, 0)


def test_a_worker_that_died_meanwhile_is_no_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may go between the look and the signal."""

    def gone(_pid: int, _number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    stage.look(request(CPU))
    assert stage.told[0]["event"] == "run_unwanted"


def test_a_worker_is_told_why(stage: Stage) -> None:
    """A cancelled run ends as cancelled, not as replaced."""
    stage.look(UnwantedRun("default", "x", f"r1/{NAMES[IO]}/7", is_killed=False, is_cancelled=True, fetched_ms=5))

    assert stage.board.rows[IO].unwanted_reason == UnwantedReason.CANCELLED
    assert stage.told[0]["why"] == "cancelled"

    stage.look(request(IO))
    assert stage.board.rows[IO].unwanted_reason == UnwantedReason.REPLACED


def test_several_runs_of_one_worker_are_named_one_after_the_other(stage: Stage) -> None:
    """There is one place for a request; the second would hide the first."""
    table, row = stage.board.inflight[IO], stage.board.rows[IO]
    for index, run_id in enumerate(("a", "b", "c")):
        table.put(index, execution=execution_hash(("default", run_id), 5), attempt=1, state=RunState.STARTED)
    heard = []
    stage.look(*(request(IO, run_id=run_id) for run_id in ("a", "gone", "b", "c")))
    heard.append(row.unwanted_hash)
    assert stage.unwanted.period_ns == BETWEEN_NS
    for _ in range(2):
        stage.unwanted.run(0)
        heard.append(row.unwanted_hash)

    assert heard == [
        execution_hash(("default", "a"), 5),
        execution_hash(("default", "b"), 5),
        execution_hash(("default", "c"), 5),
    ]
    assert (len(stage.asked), stage.unwanted.period_ns) == (1, UNWANTED_PERIOD_NS)
