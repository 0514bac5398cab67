"""Output of attempts in a worker: which is kept, what is sent while they go on, and what an outage does."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.model import Outcome
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker import run_logs as module
from supervisor.roles.worker.attempt.executor import Execution
from supervisor.roles.worker.run_logs import OutputKeeping
from supervisor.store.keys import Keys
from supervisor.store.wire.poll import Ack
from tests.kit.waiting import wait_until
from tests.unit.roles.worker.executor_stage import Stage, fetched


class Recorder:
    """Takes calls, and is away when the test says so."""

    keys = Keys("test")

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.is_away = False
        self.before = lambda: None

    def run(self, call: Call[Any], *, timeout_s: float | None = None) -> int:
        self.before()
        if self.is_away:
            raise StoreUnavailableError("test: away")
        self.sent.append([msgspec.json.decode(body)["head"] for body in call.args[5::6]])  # type: ignore[arg-type]
        return len(self.sent[-1])


class Kept:
    """An executor whose attempts write."""

    def __init__(self, stage: Stage, policy: str, runner: Recorder | None = None) -> None:
        self.stage, self.runner = stage, runner
        self.outputs = OutputKeeping(policy, worker="w", clock=stage.clock, runner=runner)
        self.outputs._start = lambda: None  # type: ignore[method-assign] - the test sends
        stage.executor.outputs = self.outputs

    def attempt(self, *texts: str, **fields: Any) -> Execution:
        """Begin an attempt that writes these."""
        execution = self.stage.begin(fetched(**fields))
        for text in texts:
            self.write(execution, text)
        return execution

    def write(self, execution: Execution, text: str) -> None:
        self.outputs.of(execution).add(text)

    def end(self, execution: Execution, outcome: Outcome) -> Ack:
        """End it so."""
        if outcome is Outcome.OK:
            return self.stage.executor.succeed(execution, None)
        return self.stage.executor.fail(execution, ValueError("no"))


def said(ack: Ack) -> str | None:
    """Return the text of an acknowledgement; empty where it removes what was sent."""
    if ack.log is None:
        return None
    _, _, body = ack.log.split(b" ", 2)
    return str(msgspec.json.decode(body)["head"]) if body else ""


@pytest.mark.parametrize(
    ("policy", "outcome", "expected"),
    [
        ("failures", Outcome.RETRY, "text\n"),
        ("failures", Outcome.OK, None),
        ("all", Outcome.RETRY, "text\n"),
        ("all", Outcome.OK, "text\n"),
    ],
)
def test_the_policy_says_which_attempts_keep_theirs(
    stage: Stage, policy: str, outcome: Outcome, expected: str | None
) -> None:
    """What a person set; an attempt that wrote nothing has nothing to keep."""
    kept = Kept(stage, policy)
    assert said(kept.end(kept.attempt("text\n"), outcome)) == expected
    assert said(kept.end(kept.attempt(), outcome)) is None
    assert kept.outputs.is_on
    assert not OutputKeeping("none", worker="w", clock=stage.clock, runner=None).is_on


def test_an_acknowledgement_names_run_execution_and_attempt(stage: Stage) -> None:
    """After a crash, or for a dead run that is requeued, attempts have numbers that they had before."""
    kept = Kept(stage, "all")
    execution = kept.attempt(attempt=2, crashes=1)
    execution.fetched = msgspec.structs.replace(execution.fetched, fetched_ms=5)
    kept.write(execution, "x")
    born, number, body = (kept.end(execution, Outcome.RETRY).log or b"").split(b" ", 2)
    log = msgspec.json.decode(body)
    assert (born, number) == (b"0", b"5")
    assert (log["number"], log["attempt"], log["job"], log["queue"], log["is_open"]) == (5, 2, "work", "default", False)


def test_what_goes_on_is_sent_after_a_second_and_again_when_there_is_more(stage: Stage) -> None:
    """One call for all attempts, whole lines, and nothing twice."""
    runner = Recorder()
    kept = Kept(stage, "failures", runner)
    first, second = kept.attempt("one\n"), kept.attempt("two\nhalf a li")
    kept.outputs.send()
    assert runner.sent == []
    stage.clock.advance(1)
    kept.outputs.send()
    kept.outputs.send()
    assert runner.sent == [["one\n", "two\n"]]
    kept.write(second, "ne\n")
    kept.outputs.send()
    assert runner.sent[1:] == [["two\nhalf a line\n"]]

    assert said(kept.end(first, Outcome.OK)) == "", "what was sent of a success is removed"
    assert said(kept.end(second, Outcome.RETRY)) == "two\nhalf a line\n"
    stage.clock.advance(1)
    kept.outputs.send()
    assert len(runner.sent) == 2


def test_two_that_write_first_at_once_write_to_one_output(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread of a job, or a handler of a signal, may write while the first begins the output."""
    kept = Kept(stage, "all")
    execution = kept.attempt()
    others: list[Any] = []
    make = module.RunOutput

    def interrupted() -> Any:
        monkeypatch.setattr(module, "RunOutput", make)
        others.append(kept.outputs.of(execution))
        return make()

    monkeypatch.setattr(module, "RunOutput", interrupted)

    assert [kept.outputs.of(execution)] == others


def test_a_call_that_is_under_way_when_its_attempt_ends_is_made_good(stage: Stage) -> None:
    """The acknowledgement comes after it or refuses it: either way nothing of a success stays."""
    runner = Recorder()
    kept = Kept(stage, "failures", runner)
    execution = kept.attempt("one\n")
    acks: list[Ack] = []
    runner.before = lambda: acks.append(kept.end(execution, Outcome.OK))
    stage.clock.advance(1)
    kept.outputs.send()
    assert [said(ack) for ack in acks] == [""]


def test_an_outage_is_told_once_and_then_left_alone(stage: Stage) -> None:
    """For ten seconds; then the newest is sent."""
    runner = Recorder()
    kept = Kept(stage, "failures", runner)
    execution = kept.attempt("one\n")
    runner.is_away = True
    with capture_logs() as logs:
        for _ in range(5):
            stage.clock.advance(1)
            kept.outputs.send()
    assert [entry["event"] for entry in logs] == ["run_output_unsent"]
    runner.is_away = False
    kept.write(execution, "two\n")
    stage.clock.advance(10)
    kept.outputs.send()
    assert runner.sent == [["one\ntwo\n"]]


def test_one_call_carries_a_bounded_part_and_the_next_the_rest(stage: Stage) -> None:
    """Many attempts that write much make no call that holds the server up."""
    runner = Recorder()
    kept = Kept(stage, "failures", runner)
    running = [kept.attempt(f"{number}" + ("x" * 99 + "\n") * 600) for number in range(20)]
    stage.clock.advance(1)
    for _ in range(4):
        kept.outputs.send()
        for execution in running:  # those that were sent write on, and do not push in
            kept.write(execution, "more\n")
    assert sorted(int(text.partition("x")[0]) for call in runner.sent for text in call) == list(range(20))
    assert max(map(len, runner.sent)) <= 1 + module.BATCH_BYTES // 60_000


def test_the_thread_is_there_only_while_somebody_writes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose jobs are silent has none; one that writes again gets another."""
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    runner = Recorder()
    outputs = OutputKeeping("failures", worker="w", clock=stage.clock, runner=runner)
    stage.executor.outputs = outputs

    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "tenure-run-logs"]

    for _ in range(2):
        execution = stage.begin(fetched())
        assert names() == []
        outputs.of(execution).add("text\n")
        assert names() == ["tenure-run-logs"]
        stage.clock.now_ns += 2 * SECOND_NS
        count = len(runner.sent)
        wait_until(lambda count=count: len(runner.sent) > count, what="the text to be sent")
        stage.executor.succeed(execution, None)
        wait_until(lambda: not names(), what="the thread to go")
    outputs.of(stage.begin(fetched())).add("text\n")
    outputs.close()
    wait_until(lambda: not names(), what="the thread to go")
    outputs.of(stage.begin(fetched())).add("text\n")
    assert names() == []
