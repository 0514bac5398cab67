"""What stands around a job, and in which order."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt import middleware as middleware_module
from supervisor.roles.worker.attempt.invocation import JobInvoker
from tenure import Context, Middleware, Resource, job
from tests.unit.roles.worker.odd_ends import Table
from tests.unit.roles.worker.test_worker_context import one_turn

trace: list[str] = []


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry, no middleware, no trace."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)
    monkeypatch.setattr(middleware_module, "_installed", [])
    trace.clear()
    return registry


class Spy(Middleware):
    """Notes when the rest begins and how it ends."""

    def __init__(self, name: str = "spy") -> None:
        self.name = name

    def _note(self, what: str) -> None:
        trace.append(f"{self.name} {what}")

    def around(self, context: Context, call: Any) -> Any:
        self._note("in")
        try:
            return call()
        except BaseException as error:
            self._note(type(error).__name__)
            raise
        finally:
            self._note("out")

    async def around_async(self, context: Context, call: Any) -> Any:
        self._note("in")
        try:
            return await call()
        except BaseException as error:
            self._note(type(error).__name__)
            raise
        finally:
            self._note("out")


class Other(Spy):
    """Another class: each is installed once."""


class Database(Resource):
    """Notes when it is opened."""

    def open(self) -> None:
        trace.append("open")


class Client(Resource):
    """The same for coroutine jobs."""

    async def open(self) -> None:
        trace.append("open")


def attempt(known: Registry, name: str = "subject", **arguments: Any) -> Any:
    """Call a registered job as the pool of its kind does."""
    spec = known.get(name)
    calling = JobInvoker(kind=spec.kind)
    context = Context(run_id="r", job=name, kind=spec.kind)
    if spec.context_parameter is not None:
        arguments[spec.context_parameter] = context
    function = calling.prepare(spec, context)
    return asyncio.run(function(**arguments)) if spec.kind is Kind.ASYNC else function(**arguments)


@pytest.fixture(params=["plain", "coroutine"])
def subject(request: pytest.FixtureRequest) -> Any:
    """Return a decorator that makes a job ``subject`` of a body, of either kind, with a resource."""

    def make(body: Any, **options: Any) -> None:
        if request.param == "plain":

            @job("subject", **options)
            def plain(context: Context, database: Database, number: int = 0) -> Any:
                trace.append("job")
                return body(context, number)

        else:

            @job("subject", **options)
            async def coroutine(context: Context, database: Client, number: int = 0) -> Any:
                trace.append("job")
                return body(context, number)

    return make


def fail(error: BaseException) -> Any:
    """Return a body that raises ``error``."""

    def body(_context: Context, _number: int) -> None:
        raise error

    return body


def test_a_job_without_surroundings_is_called_as_it_is(known: Registry) -> None:
    """Nothing is paid for what is not used."""

    @job("subject")
    def bare(number: int) -> None: ...

    spec = known.get("subject")
    calling = JobInvoker(kind=Kind.SYNC)

    assert calling.prepare(spec, Context(run_id="r", job="subject")) is bare
    assert calling.is_plain(spec)


def test_the_order_is_that_of_installation_then_resources_then_the_job(known: Registry, subject: Any) -> None:
    """The first installed sees all of the attempt."""
    Spy("first").install()
    Other("second").install()
    subject(lambda _context, number: number + 1)

    assert attempt(known, number=4) == 5
    assert trace == ["first in", "second in", "open", "job", "second out", "first out"]


def test_an_error_passes_through_all_of_them(known: Registry, subject: Any) -> None:
    """What is undone is undone when all of them have seen it."""
    Spy("first").install()

    def body(context: Context, _number: int) -> None:
        context.on_failure(trace.append, "undone")
        raise ValueError("no")

    subject(body)

    with pytest.raises(ValueError, match="no"):
        attempt(known)
    assert trace == ["first in", "open", "job", "first ValueError", "first out", "undone"]


def test_a_plain_job_that_raises_stop_iteration_fails_by_just_that(known: Registry) -> None:
    """``next()`` on an empty iterator is a common fault, and its record names it; the frames are the job's."""

    @job("subject")
    def plain(context: Context) -> None:
        next(iter([]))

    with pytest.raises(StopIteration) as caught:
        attempt(known)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "plain"
    assert "enter" not in frames


def test_a_job_may_go_without_one(known: Registry, subject: Any) -> None:
    """Its subclasses go too."""
    Spy("first").install()
    Other("second").install()
    subject(lambda *_: None, without=[Other])

    attempt(known)

    assert trace == ["first in", "open", "job", "first out"]


def test_one_that_defines_only_the_other_kind_costs_nothing(known: Registry) -> None:
    """A plain middleware does not stand around coroutine jobs."""

    class Plain(Middleware):
        def around(self, context: Context, call: Any) -> Any:
            return call()

    @job("subject")
    async def coroutine() -> None: ...

    Plain().install()

    assert JobInvoker(kind=Kind.ASYNC).is_plain(known.get("subject"))


def test_a_middleware_may_map_errors_results_and_arguments(known: Registry) -> None:
    """It stands between the pool and the job, in both directions."""

    class Mapping(Middleware):
        def around(self, context: Context, call: Any) -> Any:
            context.arguments["number"] *= 10
            try:
                return call() + 1
            except KeyError as error:
                raise LookupError("mapped") from error

    Mapping().install()

    @job("subject")
    def plain(number: int) -> int:
        return {70: 7}[number]

    assert attempt(known, number=7) == 8
    with pytest.raises(LookupError, match="mapped"):
        attempt(known, number=8)


def test_a_class_is_installed_once(known: Registry) -> None:
    """Twice is a mistake of two modules; importing a module again is none."""
    Spy().install()
    with pytest.raises(ValueError, match=r"Spy is installed twice"):
        Spy().install()

    newer = type("Spy", (Middleware,), {"__module__": Spy.__module__})
    newer().install()

    assert [type(item) for item in middleware_module._installed] == [newer]


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), SystemExit(Table()), Context.SoftTimeout("late"), KeyboardInterrupt()]
)
def test_what_was_given_is_called_last_first_each_once(known: Registry, subject: Any, error: BaseException) -> None:
    """Whatever ended the attempt; one that fails is logged, and stops no other, nor changes the error."""

    def body(context: Context, _number: int) -> None:
        context.on_failure(trace.append, "first given")
        context.on_failure(lambda: 1 / 0)
        context.on_failure(trace.append, "last given")
        raise error

    subject(body)

    with capture_logs() as lines, pytest.raises(type(error)):
        attempt(known)
    assert trace == ["open", "job", "last given", "first given"]
    assert [line["error"] for line in lines if line["event"] == "on_failure_failed"] == [
        "ZeroDivisionError('division by zero')"
    ]


@pytest.mark.parametrize("end", [lambda: None, lambda: sys.exit(0), sys.exit])
def test_a_job_that_succeeds_undoes_nothing(known: Registry, subject: Any, end: Any) -> None:
    """``sys.exit(0)`` is how scripts say that they are done."""

    def body(context: Context, _number: int) -> None:
        context.on_failure(trace.append, "undone")
        end()

    subject(body)

    try:
        attempt(known)
    except SystemExit:
        trace.append("left")
    assert "undone" not in trace


def test_a_coroutine_job_undoes_with_coroutines_although_it_is_cancelled(known: Registry) -> None:
    """A soft timeout and a stop are cancellations; a second one skips only what it hits."""
    asked = asyncio.Event

    async def scenario() -> None:
        started, undoing = asked(), asked()

        async def undo() -> None:
            undoing.set()
            await one_turn()
            await asyncio.Event().wait()

        @job("subject")
        async def subject(context: Context) -> None:
            context.on_failure(trace.append, "first given")
            context.on_failure(undo)
            started.set()
            await asyncio.Event().wait()

        spec = known.get("subject")
        context = Context(run_id="r", job="subject", kind=Kind.ASYNC)
        task = asyncio.create_task(JobInvoker(kind=Kind.ASYNC).prepare(spec, context)(context=context))
        await started.wait()
        task.cancel()
        await undoing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert trace == ["first given"]


def test_a_plain_job_cannot_undo_with_a_coroutine(known: Registry, subject: Any) -> None:
    """Nobody could await it: the log says so, and the rest is undone."""

    async def undo() -> None: ...

    @job("subject")
    def plain(context: Context) -> None:
        context.on_failure(trace.append, "undone")
        context.on_failure(undo)
        raise ValueError("no")

    with capture_logs() as lines, pytest.raises(ValueError, match="no"):
        attempt(known)
    assert trace == ["undone"]
    assert "give on_failure a plain function" in lines[0]["error"]


def test_a_resource_that_cannot_be_opened_fails_the_run_and_is_tried_again(known: Registry, subject: Any) -> None:
    """By name, so that nobody looks for the fault in the job."""
    subject(lambda *_: "done")
    spec = known.get("subject")
    kind = spec.resources[0][1]
    calling, context = JobInvoker(kind=spec.kind), Context(run_id="r", job="subject", kind=spec.kind)

    async def one() -> Any:
        function = calling.prepare(spec, context)
        value = function(context=context)
        return await value if spec.kind is Kind.ASYNC else value

    opened = kind.open

    def refuse(_self: Any) -> None:
        raise OSError("no route")

    kind.open = refuse  # type: ignore[method-assign]
    try:
        with pytest.raises(Exception, match=r"resource .*:(Database|Client) cannot be opened: OSError: no route"):
            asyncio.run(one())
    finally:
        kind.open = opened  # type: ignore[method-assign]
    assert asyncio.run(one()) == "done"
