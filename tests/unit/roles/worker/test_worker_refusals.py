"""Runs that are not executed, and what becomes of them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.jobs.hooks import VetoedError
from supervisor.core.jobs.registry import job
from supervisor.core.model import Kind, Outcome
from supervisor.roles.worker.attempt import failure as module
from supervisor.roles.worker.attempt import run_memory
from supervisor.roles.worker.attempt.executor import Execution
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.settings.sections.models import Settings
from supervisor.store.wire.poll import BrokenRun, FetchedRun
from supervisor.telemetry import metrics
from tests.unit.roles.worker.executor_stage import Stage, fetched


def test_a_run_of_an_unknown_job_waits_uncharged_and_is_dead_after_ten_minutes(stage: Stage, logs: list[Any]) -> None:
    """A deploy may bring the job, or have taken it away; only this process' own clock counts."""
    run = fetched("newer")

    first = stage.refuse(run)
    stage.clock.wall_offset_ms += 10**12  # a wall clock that jumps changes nothing
    stage.clock.now_ns += 599 * 10**9
    second = stage.refuse(run)
    stage.clock.now_ns += 10**9
    last = stage.refuse(run)

    assert [(ack.outcome, ack.retry_delay_ms) for ack in (first, second)] == [(Outcome.GIVEBACK, 5000)] * 2
    assert last.outcome is Outcome.DEAD
    assert last.error is not None
    assert "no job is called 'newer'" in last.error["message"]
    assert [entry["log_level"] for entry in logs] == ["error"] * 3


def test_a_run_of_an_unknown_profile_is_dead_after_ten_minutes(stage: Stage) -> None:
    """As of an unknown job: its refusals count together, although its job is known."""
    stage.executor._calling = JobInvoker(kind=Kind.SYNC, pipeline=Pipeline(Settings(), stage.clock, Kind.SYNC))
    run = fetched(profile="gone")

    first = stage.refuse(run)
    stage.clock.now_ns += 600 * 10**9

    assert (first.outcome, stage.refuse(run).outcome) == (Outcome.GIVEBACK, Outcome.DEAD)


def test_an_unknown_job_that_becomes_known_starts_afresh(stage: Stage) -> None:
    """What the process remembers of refusals ends with them."""
    run = fetched("newer")
    stage.refuse(run)
    stage.registry._jobs["newer"] = stage.registry.get("work")
    stage.begin(run)
    del stage.registry._jobs["newer"]
    stage.clock.now_ns += 601 * 10**9

    assert stage.refuse(run).outcome is Outcome.GIVEBACK


@pytest.mark.parametrize("change", [{"attempt": 2}, {"crashes": 1}, {"interrupts": 1}, {"born": 7}], ids=str)
def test_a_run_that_was_executed_elsewhere_is_refused_anew(stage: Stage, change: dict[str, int]) -> None:
    """A worker that stays old for long met it before its retry, or before another life of its id, and ended it at once."""
    run = fetched("newer")
    stage.refuse(run)
    stage.clock.now_ns += 601 * 10**9

    assert stage.refuse(in_another_execution(run, **change)).outcome is Outcome.GIVEBACK


CODE = """
class Market:
    def gate(self, context): return "market is closed", "10m"
"""


@pytest.mark.parametrize("change", [{"attempt": 2}, {"crashes": 1}, {"interrupts": 1}, {"born": 7}], ids=str)
def test_a_run_that_was_executed_elsewhere_is_put_off_anew(
    stage: Stage, change: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One veto an hour before its retry, or before another life of its id, was enough for the next to reject it."""
    (tmp_path / "tmarket.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings.model_validate({"profiles": {"p": {"hooks": {"enabled": ["tmarket:Market"]}}}}, strict=False)
    pipeline = Pipeline(settings, stage.clock, Kind.SYNC)
    stage.executor._calling = JobInvoker(kind=Kind.SYNC, clock=stage.clock, pipeline=pipeline)
    run = fetched(profile="p")
    delays = []
    for each in (run, in_another_execution(run, **change), run):
        execution = stage.begin(each)
        with pytest.raises(VetoedError) as caught:
            execution.function(**execution.arguments)
        delays.append(caught.value.veto.delay_s)
        stage.clock.now_ns += 3600 * 10**9
    asyncio.run(pipeline.close_async(1))
    del sys.modules["tmarket"]

    assert delays == [600.0, 600.0, None]


def in_another_execution(run: FetchedRun, *, born: int = 0, **charges: int) -> FetchedRun:
    """Return ``run`` after another process executed it, or in another life of its id."""
    envelope = msgspec.structs.replace(run.envelope, enqueued_ms=born)
    return msgspec.structs.replace(run, envelope=envelope, **charges)


def test_refusals_are_remembered_for_a_bounded_number_of_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue full of strangers must not fill this process."""
    monkeypatch.setattr(run_memory, "RUNS_MAX", 10)
    for number in range(100):
        run = fetched("newer")
        stage.refuse(msgspec_replace(run, f"r{number}"))

    assert len(stage.executor.refusals.unknown_runs) == 10


def test_of_more_unknown_runs_than_are_remembered_each_is_dead_in_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a job that a deploy took away would come back every five seconds for ever."""
    monkeypatch.setattr(run_memory, "RUNS_MAX", 10)
    left = [msgspec_replace(fetched("newer"), f"r{number}") for number in range(25)]
    ends = []
    for _ in range(7):
        left = [run for run in left if stage.refuse(run).outcome is not Outcome.DEAD]
        ends.append(len(left))
        stage.clock.now_ns += 300 * 10**9

    assert ends == [25, 25, 15, 15, 5, 5, 0]


def test_what_ended_elsewhere_leaves_its_place_to_an_unknown_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person cancelled it, or another process had it."""
    monkeypatch.setattr(run_memory, "RUNS_MAX", 1)
    gone, run = fetched("newer"), msgspec_replace(fetched("newer"), "later")
    stage.refuse(gone)
    stage.clock.now_ns += 1200 * 10**9
    first = stage.refuse(run)
    stage.clock.now_ns += 600 * 10**9

    assert (first.outcome, stage.refuse(run).outcome) == (Outcome.GIVEBACK, Outcome.DEAD)


def msgspec_replace(run: FetchedRun, run_id: str) -> FetchedRun:
    """Return ``run`` under another id."""
    envelope = msgspec.structs.replace(run.envelope, id=run_id)
    return FetchedRun(queue=run.queue, envelope=envelope, attempt=1, crashes=0, interrupts=0, suspect=False)


def test_a_run_of_the_other_kind_goes_back_with_its_kind_put_right(stage: Stage) -> None:
    """A deploy may turn a function into a coroutine while runs of it wait."""
    ack = stage.refuse(fetched("coroutine"))

    assert (ack.outcome, ack.kind, ack.retry_delay_ms) == (Outcome.GIVEBACK, Kind.ASYNC, 0)


def test_a_run_of_the_other_kind_that_comes_again_is_put_off(stage: Stage) -> None:
    """Two versions that disagree about a job would throw its runs at each other as fast as they can."""
    delays = [stage.refuse(fetched("coroutine")).retry_delay_ms for _ in range(3)]
    elsewhere = msgspec.structs.replace(fetched("coroutine"), queue="other")

    assert delays == [0, module.UNKNOWN_DELAY_MS, module.UNKNOWN_DELAY_MS]
    assert stage.refuse(elsewhere).retry_delay_ms == 0


def test_of_more_runs_of_the_other_kind_than_are_remembered_none_comes_again_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each made the oldest forgotten, so that two versions threw all of them at each other as fast as they could."""
    monkeypatch.setattr(run_memory, "RUNS_MAX", 10)
    runs = [msgspec_replace(fetched("coroutine"), f"r{number}") for number in range(12)]
    delays = [{stage.refuse(run).retry_delay_ms for run in some} for some in (runs[:10], runs[10:], runs)]
    stage.clock.now_ns += 1200 * 10**9

    assert delays == [{0}, {module.UNKNOWN_DELAY_MS}, {module.UNKNOWN_DELAY_MS}]
    assert stage.refuse(msgspec_replace(fetched("coroutine"), "later")).retry_delay_ms == 0


def test_arguments_that_do_not_fit_end_the_run_at_once(stage: Stage) -> None:
    """The same arguments fit no better next time."""
    ack = stage.refuse(fetched(args={"number": "many"}))

    assert ack.outcome is Outcome.DEAD
    assert ack.error is not None
    assert ack.error["type"] == "ArgumentsError"
    assert "number" in ack.error["message"]


def test_a_run_that_cannot_be_read_is_dead(stage: Stage) -> None:
    """It would come back for ever."""
    ack = stage.executor.refusals.bury(
        BrokenRun(queue="default", run_id="r1", attempt=1, fetched_ms=5, reason="not JSON")
    )

    assert (ack.outcome, ack.run_id, ack.fetched_ms) == (Outcome.DEAD, "r1", 5)


def late(not_after_ms: int | None, **fields: Any) -> FetchedRun:
    """Return a run that was fetched at 1,700,000,000,000 by Redis' time."""
    run = fetched()
    envelope = msgspec.structs.replace(run.envelope, not_after_ms=not_after_ms)
    return msgspec.structs.replace(run, envelope=envelope, fetched_ms=1_700_000_000_000, **fields)


def test_a_run_that_is_too_late_to_start_ends_expired(stage: Stage) -> None:
    """Nothing failed: it is told in the history, its schedule may go on, and nobody is paged."""
    ack = stage.refuse(late(1_699_999_999_000))

    assert (ack.outcome, ack.schedule, ack.error, ack.job) == (Outcome.EXPIRED, "nightly", None, "work")
    assert ack.history_note == "not started within its start deadline, 1 s too late"


def test_a_late_run_of_a_job_that_nobody_registered_is_no_series(stage: Stage) -> None:
    """Whoever may enqueue by Redis invents names, and a deadline that has passed."""
    known = {labels[1] for labels in metrics.RUNS_FINISHED._metrics}
    run = late(1_699_999_999_000)
    template = msgspec.structs.replace(run.envelope.template, job="invented")
    stage.refuse(msgspec.structs.replace(run, envelope=msgspec.structs.replace(run.envelope, template=template)))

    assert {labels[1] for labels in metrics.RUNS_FINISHED._metrics} - known <= {metrics.UNKNOWN_JOB}


@pytest.mark.parametrize(
    "run",
    [
        late(None),
        late(1_700_000_000_000),
        late(1_699_999_999_000, attempt=2),
        late(1_699_999_999_000, crashes=1),
        late(1_699_999_999_000, interrupts=1),
    ],
)
def test_a_run_that_is_in_time_or_has_begun_before_is_started(stage: Stage, run: FetchedRun) -> None:
    """The deadline is for the start; a retry after it is still the run that started in time."""
    assert isinstance(stage.executor.prepare(run), Execution)


@dataclass
class Leaver:
    """A type whose code leaves."""

    name: str

    def __post_init__(self) -> None:
        sys.exit("no such name")


def test_arguments_whose_types_exit_end_their_own_run(stage: Stage) -> None:
    """SystemExit of a validator ended the worker's process, and the runs beside it."""

    @job("leave")
    def leave(who: Leaver) -> None: ...

    ack = stage.refuse(fetched("leave", {"who": {"name": "x"}}))

    assert ack.outcome is Outcome.DEAD
    assert ack.error is not None
    assert "the code of its types raised SystemExit" in ack.error["message"]
