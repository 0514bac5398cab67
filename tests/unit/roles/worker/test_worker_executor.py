"""From a fetched run to a call, and from its end to an acknowledgement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from supervisor import Context, Retry
from supervisor.core.model import PAYLOAD_BYTES_MAX, Envelope, Kind, Outcome, Template
from supervisor.core.registry import Registry, job
from supervisor.roles.worker import executor as module
from supervisor.roles.worker.context import SoftTimeout
from supervisor.roles.worker.executor import Execution, Executor
from supervisor.store.queues import Ack, BrokenRun, FetchedRun


@dataclass
class StillClock:
    """Time that moves when the test says so."""

    elapsed: int = 5_000_000_000
    wall: int = 1_700_000_000_000

    def elapsed_ns(self) -> int:
        """Return the time for deadlines."""
        return self.elapsed

    def wall_ms(self) -> int:
        """Return the calendar's time."""
        return self.wall


@dataclass
class Stage:
    """An executor with its jobs and its clock."""

    registry: Registry
    clock: StillClock = field(default_factory=StillClock)
    kind: Kind = Kind.SYNC

    def __post_init__(self) -> None:
        self.executor = Executor(
            kind=self.kind, registry=self.registry, worker="w", clock=self.clock, uniform=lambda: 0.5
        )

    def begin(self, fetched: FetchedRun) -> Execution:
        """Prepare and begin a run that can be."""
        prepared = self.executor.prepare(fetched)
        assert isinstance(prepared, Execution)
        self.executor.begin(prepared)
        return prepared

    def refuse(self, fetched: FetchedRun) -> Ack:
        """Prepare a run that cannot be begun."""
        prepared = self.executor.prepare(fetched)
        assert isinstance(prepared, Ack)
        return prepared


def fetched(
    name: str = "work", args: dict[str, Any] | None = None, *, attempt: int = 1, crashes: int = 0, **template: Any
) -> FetchedRun:
    """Return a run as a turn brings it."""
    made = Template(job=name, kind=Kind.SYNC, args=args or {}, **template)
    return FetchedRun(
        queue="default",
        envelope=Envelope(id="r1", template=made, schedule="nightly", nominal_ms=1_699_999_999_000),
        attempt=attempt,
        crashes=crashes,
        interrupts=2 if crashes else 0,
        suspect=False,
    )


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """One job, ``work``, that takes a number."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.registry.registry", registry)

    @job("work")
    def work(context: Context, number: int = 0) -> int:
        return number

    @job("coroutine")
    async def coroutine() -> None: ...

    return Stage(registry)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries


def test_a_run_becomes_a_call_with_converted_arguments_and_a_context(stage: Stage) -> None:
    """The context tells which attempt of what this is, and until when."""
    execution = stage.begin(fetched(args={"number": "7"}, attempt=2, crashes=1, timeout_s=10.0))

    context = execution.arguments["context"]
    assert execution.arguments["number"] == 7
    assert (context.run_id, context.job, context.attempt, context.fence) == ("r1", "work", 2, 5)
    assert context.nominal.isoformat() == "2023-11-14T22:13:19+00:00"
    assert context.remaining_s() == 10.0
    assert (execution.soft_ns, execution.hard_ns) == (14_000_000_000, 15_000_000_000)


def test_success_carries_the_result_and_its_time_to_live(stage: Stage) -> None:
    """What the job returned is kept as JSON for as long as the envelope says."""
    execution = stage.begin(fetched(result_ttl_s=60.0))
    stage.clock.elapsed += 1_500_000_000

    ack = stage.executor.succeed(execution, {"rows": 3})

    assert (ack.outcome, ack.result, ack.result_ttl_ms) == (Outcome.OK, b'{"rows":3}', 60_000)
    assert ack.ended_ms - ack.started_ms == 1500
    assert (ack.schedule, ack.job) == ("nightly", "work")


@pytest.mark.parametrize(("value", "ttl_s"), [(None, 60.0), ({"rows": 3}, 0.0)])
def test_nothing_is_kept_of_no_result(stage: Stage, value: Any, ttl_s: float) -> None:
    """Most jobs return nothing; they should cost nothing."""
    assert stage.executor.succeed(stage.begin(fetched(result_ttl_s=ttl_s)), value).result is None


@pytest.mark.parametrize(
    "value",
    ["x" * PAYLOAD_BYTES_MAX, object(), {(1, 2): 3}, "\ud800", {"deep": {1, "a", object()}}],
    ids=["huge", "object", "key", "surrogate", "nested"],
)
def test_a_result_that_cannot_be_kept_does_not_fail_the_run(stage: Stage, value: Any, logs: list[Any]) -> None:
    """Its work is done, and a retry would do it again: a note stands in the result's place."""
    ack = stage.executor.succeed(stage.begin(fetched()), value)

    assert ack.outcome is Outcome.OK
    assert ack.result is not None
    assert "tenure_result_dropped" in msgspec.json.decode(ack.result)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["run_result_dropped"]


def test_a_failure_is_retried_with_half_of_its_ceiling_for_a_draw_of_half(stage: Stage) -> None:
    """Full jitter, drawn by the worker."""
    execution = stage.begin(fetched(attempt=2, retry=Retry(attempts=3, base_s=4)))

    ack = stage.executor.fail(execution, ValueError("no"))

    assert (ack.outcome, ack.retry_delay_ms) == (Outcome.RETRY, 4000)
    assert ack.error is not None
    assert (ack.error["type"], ack.error["message"], ack.error["worker"]) == ("ValueError", "no", "w")


def test_the_last_attempt_ends_dead(stage: Stage) -> None:
    """Kept for inspection, with the reason in one line of the history."""
    ack = stage.executor.fail(stage.begin(fetched(attempt=3)), ValueError("no"))

    assert (ack.outcome, ack.history_note) == (Outcome.DEAD, "ValueError: no")


def test_at_most_once_is_never_retried(stage: Stage) -> None:
    """Whatever the envelope's retry says: a schedule may have been written by hand."""
    ack = stage.executor.fail(stage.begin(fetched(at_most_once=True, retry=Retry(attempts=5))), ValueError())

    assert ack.outcome is Outcome.DEAD


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (SystemExit(), Outcome.OK),
        (SystemExit(0), Outcome.OK),
        (SystemExit(1), Outcome.RETRY),
        (SystemExit("usage: work"), Outcome.RETRY),
        (KeyboardInterrupt(), Outcome.RETRY),
        (GeneratorExit(), Outcome.RETRY),
        (asyncio.CancelledError(), Outcome.RETRY),
        (SoftTimeout("late"), Outcome.RETRY),
        (MemoryError(), Outcome.RETRY),
    ],
    ids=repr,
)
def test_exceptions_that_end_a_process_end_only_the_run(stage: Stage, error: BaseException, outcome: Outcome) -> None:
    """A script's main that says sys.exit(0) is done; every other one failed."""
    assert stage.executor.end(stage.begin(fetched()), error).outcome is outcome


def test_a_run_of_an_unknown_job_waits_uncharged_and_is_dead_after_ten_minutes(stage: Stage, logs: list[Any]) -> None:
    """A deploy may bring the job, or have taken it away; only this process' own clock counts."""
    run = fetched("newer")

    first = stage.refuse(run)
    stage.clock.wall += 10**12  # a wall clock that jumps changes nothing
    stage.clock.elapsed += 599 * 10**9
    second = stage.refuse(run)
    stage.clock.elapsed += 10**9
    last = stage.refuse(run)

    assert [(ack.outcome, ack.retry_delay_ms) for ack in (first, second)] == [(Outcome.GIVEBACK, 5000)] * 2
    assert last.outcome is Outcome.DEAD
    assert last.error is not None
    assert "no job is called 'newer'" in last.error["message"]
    assert [entry["log_level"] for entry in logs] == ["error"] * 3


def test_an_unknown_job_that_becomes_known_starts_afresh(stage: Stage) -> None:
    """What the process remembers of refusals ends with them."""
    run = fetched("newer")
    stage.refuse(run)
    stage.registry._jobs["newer"] = stage.registry.get("work")
    stage.begin(run)
    del stage.registry._jobs["newer"]
    stage.clock.elapsed += 601 * 10**9

    assert stage.refuse(run).outcome is Outcome.GIVEBACK


def test_refusals_are_remembered_for_a_bounded_number_of_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue full of strangers must not fill this process."""
    monkeypatch.setattr(module, "UNKNOWN_RUNS_MAX", 10)
    for number in range(100):
        run = fetched("newer")
        stage.refuse(msgspec_replace(run, f"r{number}"))

    assert len(stage.executor._refused_since) == 10


def msgspec_replace(run: FetchedRun, run_id: str) -> FetchedRun:
    """Return ``run`` under another id."""
    envelope = msgspec.structs.replace(run.envelope, id=run_id)
    return FetchedRun(queue=run.queue, envelope=envelope, attempt=1, crashes=0, interrupts=0, suspect=False)


def test_a_run_of_the_other_kind_goes_back_with_its_kind_put_right(stage: Stage) -> None:
    """A deploy may turn a function into a coroutine while runs of it wait."""
    ack = stage.refuse(fetched("coroutine"))

    assert (ack.outcome, ack.kind, ack.retry_delay_ms) == (Outcome.GIVEBACK, Kind.ASYNC, 0)


def test_arguments_that_do_not_fit_end_the_run_at_once(stage: Stage) -> None:
    """The same arguments fit no better next time."""
    ack = stage.refuse(fetched(args={"number": "many"}))

    assert ack.outcome is Outcome.DEAD
    assert ack.error is not None
    assert ack.error["type"] == "ArgumentsError"
    assert "number" in ack.error["message"]


def test_a_run_that_cannot_be_read_is_dead(stage: Stage) -> None:
    """It would come back for ever."""
    ack = stage.executor.bury(BrokenRun(queue="default", run_id="r1", attempt=1, reason="not JSON"))

    assert (ack.outcome, ack.run_id) == (Outcome.DEAD, "r1")


def test_a_wall_clock_that_is_set_back_leaves_no_negative_duration(stage: Stage) -> None:
    """Durations are measured on the clock that never goes back."""
    execution = stage.begin(fetched())
    stage.clock.elapsed += 2_000_000_000
    stage.clock.wall -= 3_600_000

    ack = stage.executor.succeed(execution, None)

    assert ack.ended_ms - ack.started_ms == 2000


def test_one_line_is_logged_for_an_end(stage: Stage, logs: list[Any]) -> None:
    """With its duration, and never with arguments or results: they may be secret."""
    stage.executor.succeed(stage.begin(fetched(args={"number": 7})), "secret")

    lines = [entry for entry in logs if entry["log_level"] != "debug"]
    assert [(line["event"], line["run"], line["job"], line["schedule"]) for line in lines] == [
        ("run_finished", "r1", "work", "nightly")
    ]
    assert "secret" not in str(lines)


def late(not_after_ms: int | None, **fields: Any) -> FetchedRun:
    """Return a run that was fetched at 1,700,000,000,000 by Redis' time."""
    run = fetched()
    envelope = msgspec.structs.replace(run.envelope, not_after_ms=not_after_ms)
    return replace(run, envelope=envelope, fetched_ms=1_700_000_000_000, **fields)


def test_a_run_that_is_too_late_to_start_ends_expired(stage: Stage) -> None:
    """Nothing failed: it is told in the history, its schedule may go on, and nobody is paged."""
    ack = stage.refuse(late(1_699_999_999_000))

    assert (ack.outcome, ack.schedule, ack.error, ack.job) == (Outcome.EXPIRED, "nightly", None, "work")
    assert ack.history_note == "not started within its start deadline, 1 s too late"


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


def test_what_a_run_spawned_goes_with_its_end_and_only_if_it_finished() -> None:
    """A failed attempt is repeated, and spawns again then."""
    registry = Registry()

    def plan(ctx: Context) -> None:
        ctx.spawn("plan")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.core.registry.registry", registry)
        job("plan")(plan)
    stage = Stage(registry)
    for end in (lambda run: stage.executor.succeed(run, None), lambda run: stage.executor.end(run, SystemExit(0))):
        execution = stage.begin(fetched("plan"))
        plan(**execution.arguments)
        assert [child.packed.run_id for child in end(execution).children] == ["r1/0"]
    execution = stage.begin(fetched("plan"))
    plan(**execution.arguments)
    assert stage.executor.fail(execution, ValueError("x")).children == ()


def test_a_child_knows_its_parent() -> None:
    """And may name it in what it writes."""
    registry = Registry()

    def work(ctx: Context) -> None:
        """Take its context."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.core.registry.registry", registry)
        job("work")(work)
    run = fetched("work")
    run = replace(run, envelope=msgspec.structs.replace(run.envelope, parent="p", schedule=None))
    assert Stage(registry).begin(run).context.parent == "p"
