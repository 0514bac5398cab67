"""From a fetched run to a call, and from its end to an acknowledgement."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import TenureError
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import PAYLOAD_BYTES_MAX, Outcome
from supervisor.core.supervision.states import UnwantedReason
from supervisor.roles.worker.attempt.context import SoftTimeout
from tenure import Again, Context, Retry
from tests.unit.roles.worker.executor_stage import Stage, fetched
from tests.unit.roles.worker.odd_ends import Table


def test_a_run_becomes_a_call_with_converted_arguments_and_a_context(stage: Stage) -> None:
    """The context tells which attempt of what this is, and until when."""
    execution = stage.begin(fetched(args={"number": "7"}, attempt=2, crashes=1, timeout_s=10.0))

    context = execution.arguments["context"]
    assert execution.arguments["number"] == 7
    assert (context.run_id, context.job, context.attempt, context.fence) == ("r1", "work", 2, 5)
    assert context.nominal.isoformat() == "2023-11-14T22:13:19+00:00"
    assert context.remaining_s() == 10.0
    soft_ns, hard_ns = (execution.soft_ns - stage.clock.now_ns, execution.hard_ns - stage.clock.now_ns)
    assert (soft_ns, hard_ns) == (9_000_000_000, 10_000_000_000)


@pytest.mark.parametrize(
    ("timeout_s", "soft_timeout_s", "soft_ms", "hard_ms"),
    [
        (0.0, None, 10, 210),
        (1e-9, None, 10, 210),
        (0.01, 0.01, 10, 210),
        (0.3, None, 150, 350),
        (0.4, None, 200, 400),
        (60.0, 60.0, 60_000, 60_200),
        (60.0, 0.0, 10, 60_000),
    ],
)
def test_between_being_asked_and_being_killed_a_job_has_the_time_to_end(
    stage: Stage, timeout_s: float, soft_timeout_s: float | None, soft_ms: int, hard_ms: int
) -> None:
    """Each hard timeout costs a process, and what was written by hand must not cost one for every run."""
    execution = stage.begin(fetched(timeout_s=timeout_s, soft_timeout_s=soft_timeout_s))

    found = execution.soft_ns - stage.clock.now_ns, execution.hard_ns - stage.clock.now_ns
    assert found == (soft_ms * 1_000_000, hard_ms * 1_000_000)


def test_success_carries_the_result_and_its_time_to_live(stage: Stage) -> None:
    """What the job returned is kept as JSON for as long as the envelope says."""
    execution = stage.begin(fetched(result_ttl_s=60.0))
    stage.clock.now_ns += 1_500_000_000

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


def test_a_run_whose_job_returned_a_coroutine_failed(stage: Stage) -> None:
    """Nobody awaits it, as where a middleware forgets to: the work was not done, and is not told as done."""

    async def work() -> None:
        raise AssertionError

    ack = stage.executor.succeed(stage.begin(fetched()), work())

    assert ack.outcome is not Outcome.OK
    assert "returned an awaitable that nobody awaits" in str(ack.error)


class Nameless(Exception):  # noqa: N818 - a name that says what it is
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Model:
    """A model whose serializer raises what it was given."""

    model_validate_json = None

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def model_dump(self, mode: str) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error", [Nameless(), SystemExit(1), KeyboardInterrupt(), ValueError("x" * 10**6), OSError("\ud800")], ids=type
)
def test_a_result_whose_own_code_breaks_does_not_end_the_worker(stage: Stage, error: BaseException) -> None:
    """An exception that cannot be shown, or is none of ``Exception``, ended the process and the runs beside it."""
    ack = stage.executor.succeed(stage.begin(fetched()), Model(error))

    assert ack.outcome is Outcome.OK
    assert ack.result is not None
    assert "tenure_result_dropped" in msgspec.json.decode(ack.result)
    assert len(ack.result) < 2000


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


def test_an_error_that_every_attempt_would_meet_ends_the_run(stage: Stage) -> None:
    """A class that is not installed, a malformed message: the record says so at once, and not after three attempts."""

    class GoneError(TenureError):
        """What no further attempt finds."""

        ends_run = True

    ack = stage.executor.fail(stage.begin(fetched(attempt=1, retry=Retry(attempts=5))), GoneError("no such class"))

    assert (ack.outcome, ack.history_note) == (Outcome.DEAD, "GoneError: no such class")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (SystemExit(), Outcome.OK),
        (SystemExit(0), Outcome.OK),
        (SystemExit(1), Outcome.RETRY),
        (SystemExit("usage: work"), Outcome.RETRY),
        (SystemExit(Table()), Outcome.RETRY),
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


def test_a_wall_clock_that_is_set_back_leaves_no_negative_duration(stage: Stage) -> None:
    """Durations are measured on the clock that never goes back."""
    execution = stage.begin(fetched())
    stage.clock.now_ns += 2_000_000_000
    stage.clock.wall_offset_ms -= 3_600_000

    ack = stage.executor.succeed(execution, None)

    assert ack.ended_ms - ack.started_ms == 2000


@pytest.mark.parametrize(
    ("reason", "outcome", "note"),
    [
        (UnwantedReason.CANCELLED, Outcome.CANCELLED, "a person asked for its end"),
        (UnwantedReason.REPLACED, Outcome.REPLACED, "asked to make room for a newer run"),
    ],
)
def test_a_run_that_was_asked_to_end_and_fails_ends_as_it_was_asked_to(
    stage: Stage, reason: UnwantedReason, outcome: Outcome, note: str
) -> None:
    """It is neither failed nor tried again; and its job could see that it was asked."""
    execution = stage.begin(fetched())
    execution.cancel(reason)

    ack = stage.executor.end(execution, asyncio.CancelledError())

    assert (ack.outcome, ack.history_note, ack.error) == (outcome, note, None)
    context = execution.arguments["context"]
    assert (context.is_cancelled, context.is_replaced) == (True, reason is UnwantedReason.REPLACED)


@pytest.mark.parametrize("reasons", list(permutations(UnwantedReason)), ids=str)
def test_a_run_that_a_person_cancels_too_ends_cancelled(stage: Stage, reasons: tuple[UnwantedReason, ...]) -> None:
    """Whichever of the two its worker heard of first; and its job sees no more that a newer one takes its place."""
    execution = stage.begin(fetched())
    for reason in reasons:
        execution.cancel(reason)

    assert stage.executor.end(execution, asyncio.CancelledError()).outcome is Outcome.CANCELLED
    context = execution.arguments["context"]
    assert (context.is_cancelled, context.is_replaced) == (True, False)


def test_a_run_that_was_asked_to_end_and_finishes_has_finished(stage: Stage) -> None:
    """What it did counts."""
    execution = stage.begin(fetched())
    execution.cancel(UnwantedReason.CANCELLED)

    assert stage.executor.succeed(execution, None).outcome is Outcome.OK


class Busy(Again):
    """Leaves out ``__init__`` of its base."""

    def __init__(self, *delay: Any) -> None:
        for delay_s in delay:
            self.delay_s = delay_s


class Unreadable(Exception):  # noqa: N818 - a name that says what it is
    """Answers the first question by an exception that no ``except Exception`` takes."""

    @property
    def __class__(self) -> Any:
        raise SystemExit

    @__class__.setter
    def __class__(self, _: Any) -> None: ...


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Busy(), "Again: delay must be seconds"),
        (Busy(-5), "Again: delay must be 0 seconds"),
        (Busy(float("nan")), "Again: delay must be at most"),
        (SyntaxError("no such tag", ("page", 5, 1, b"{{")), "cannot be read: <class 'SyntaxError'>"),
        (Unreadable(), "Unreadable'>"),
    ],
    ids=["no delay", "negative", "nan", "line of bytes", "class"],
)
def test_an_exception_that_is_broken_itself_fails_its_run_and_nothing_else(
    stage: Stage, error: BaseException, told: str
) -> None:
    """It ended the worker's process, or its acknowledgement was refused by Redis for ever."""
    ack = stage.executor.end(stage.begin(fetched()), error)

    assert ack.outcome is Outcome.RETRY
    assert ack.error is not None
    assert told in ack.error["message"]


def test_the_delay_of_a_kind_of_again_is_read_as_that_of_again_itself(stage: Stage) -> None:
    """Also where a subclass sets it itself."""
    ack = stage.executor.end(stage.begin(fetched()), Busy("5m"))

    assert (ack.outcome, ack.retry_delay_ms) == (Outcome.AGAIN, 300_000)


def test_one_line_is_logged_for_an_end(stage: Stage, logs: list[Any]) -> None:
    """With its duration, and never with arguments or results: they may be secret."""
    stage.executor.succeed(stage.begin(fetched(args={"number": 7})), "secret")

    lines = [entry for entry in logs if entry["log_level"] != "debug"]
    assert [(line["event"], line["run"], line["job"], line["schedule"]) for line in lines] == [
        ("run_succeeded", "r1", "work", "nightly")
    ]
    assert "secret" not in str(lines)


def test_what_a_run_spawned_goes_with_its_end_and_only_if_it_finished() -> None:
    """A failed attempt is repeated, and spawns again then."""
    registry = Registry()

    def plan(ctx: Context) -> None:
        ctx.spawn("plan")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.core.jobs.registry.registry", registry)
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
        patch.setattr("supervisor.core.jobs.registry.registry", registry)
        job("work")(work)
    run = fetched("work")
    run = msgspec.structs.replace(run, envelope=msgspec.structs.replace(run.envelope, parent="p", schedule=None))
    assert Stage(registry).begin(run).context.parent == "p"
