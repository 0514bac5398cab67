"""Jobs, callbacks, hooks and resources that return their work instead of doing it."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind, Outcome
from supervisor.roles.worker.attempt import middleware
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.roles.worker.attempt.result_check import is_undone
from supervisor.roles.worker.process.resources import ResourceError
from supervisor.settings.sections.models import Settings
from tenure import Context, Resource, job
from tests.kit.clock import FakeClock
from tests.unit.roles.worker.executor_stage import Stage, fetched


class Request(Coroutine[Any, Any, None]):
    """Does its work when it is awaited, as a request of an HTTP library does."""

    def __await__(self) -> Generator[Any, Any, None]:
        raise AssertionError

    def send(self, value: Any) -> Any:
        raise AssertionError

    def throw(self, *error: Any) -> Any:
        raise AssertionError

    def close(self) -> None:
        """Do nothing: it was not begun."""


class Client:
    """Is open, and can be awaited, as clients of Redis and PostgreSQL can."""

    def __await__(self) -> Iterator[None]:
        raise AssertionError


class Pool(Resource):
    """Written like a context manager, so that ``open`` runs nothing."""

    def open(self) -> Any:
        yield self


class Cache(Resource):
    """Gives its client to whoever opens it."""

    async def open(self) -> Any:
        return Client()


def plan(ctx: Context) -> Generator[Any, None, None]:
    """Plan one run."""
    del ctx
    yield "other"


async def plan_slowly(ctx: Context) -> AsyncGenerator[Any, None]:
    """Plan one run in an event loop."""
    del ctx
    yield "other"


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as most do: what the function returns goes through."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def ended_once() -> Generator[None, None, None]:
    """Return a generator that was iterated to its end."""
    made = (None for _ in range(3))
    list(made)
    return made


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the test's own jobs."""
    fresh = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", fresh)
    monkeypatch.setattr(middleware, "_installed", [])
    return fresh


@pytest.mark.parametrize("planner", [plan, plan_slowly])
def test_a_planner_whose_decorator_hides_that_it_yields_fails(known: Registry, planner: Any) -> None:
    """Its runs were never planned, and the run was recorded ok."""
    job("subject")(logged(planner))
    spec = known.get("subject")
    context = Context(run_id="r", job="subject", kind=spec.kind)

    with pytest.raises(TypeError, match="of a planner @job decorates the function itself that yields"):
        JobInvoker(kind=spec.kind).prepare(spec, context)(ctx=context)


@pytest.mark.parametrize("has_context", [True, False])
def test_a_coroutine_job_that_returns_a_request_without_awaiting_it_fails(
    known: Registry, *, has_context: bool
) -> None:
    """Nothing was sent."""

    async def by_context(ctx: Context) -> Any:
        return Request()

    async def plain() -> Any:
        return Request()

    job("subject")(by_context if has_context else plain)
    stage = Stage(known, kind=Kind.ASYNC)
    execution = stage.begin(fetched("subject"))
    try:
        ack = stage.executor.succeed(execution, asyncio.run(execution.function(**execution.arguments)))
    except TypeError as error:
        ack = stage.executor.end(execution, error)

    assert ack.outcome is not Outcome.OK
    assert "returned an awaitable that nobody awaits; await it there" in str(ack.error)


def test_a_planner_that_returns_another_instead_of_yielding_from_it_fails(known: Registry) -> None:
    """And plans nothing: what it yielded before goes with it."""
    job("other")(lambda: None)

    @job("subject")
    def half(ctx: Context) -> Generator[Any, None, Any]:
        yield "other"
        return plan(ctx)

    spec = known.get("subject")
    context = Context(run_id="r", job="subject", kind=spec.kind)
    with pytest.raises(TypeError, match="returned a generator that nobody iterates"):
        JobInvoker(kind=spec.kind).prepare(spec, context)(ctx=context)


def test_a_generator_that_was_iterated_to_its_end_is_no_work_undone() -> None:
    """Its work is done: a failure would repeat it."""
    assert not is_undone(ended_once())
    begun = (each for each in range(3))
    next(begun)
    assert is_undone(begun)


def test_work_that_was_done_or_begun_is_not_repeated_for_what_is_returned() -> None:
    """A client that is open, a coroutine that was awaited, and what an executor was given."""

    async def done() -> None: ...

    async def awaited() -> Any:
        made = done()
        await made
        return made

    with ThreadPoolExecutor(1) as pool:
        begun = pool.map(str, range(3))
    assert not any(is_undone(value) for value in (Client(), asyncio.run(awaited()), begun))
    assert is_undone(Client(), Kind.SYNC), "a plain job can await nothing"


def test_a_resource_may_return_a_client_that_can_be_awaited(known: Registry) -> None:
    """It is open, whatever awaiting it again would do."""

    @job("subject")
    async def subject(cache: Cache) -> str:
        return type(cache).__name__

    spec = known.get("subject")
    context = Context(run_id="r", job="subject", kind=spec.kind)
    assert asyncio.run(JobInvoker(kind=spec.kind).prepare(spec, context)()) == "Cache"


def test_a_generator_that_a_job_began_is_closed_when_its_run_fails(known: Registry) -> None:
    """So that what it holds is given back before the next attempt."""
    closed = []

    def rows() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            closed.append(True)

    @job("subject")
    def subject() -> Any:
        found = rows()
        next(found)
        return found

    stage = Stage(known)
    stage.executor.succeed(stage.begin(fetched("subject")), subject())
    assert closed == [True]


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(
    "undo", [lambda: plan(Context(run_id="r", job="j")), Request, Client], ids=["generator", "request", "client"]
)
def test_a_callback_of_on_failure_that_undoes_nothing_is_told_of(known: Registry, kind: Kind, undo: Any) -> None:
    """Silence would mean that it was undone. A coroutine job awaits what can be awaited."""
    if kind is Kind.SYNC:

        @job("subject")
        def plain(ctx: Context) -> None:
            ctx.on_failure(undo)
            raise ValueError("no luck")

    else:

        @job("subject")
        async def coroutine(ctx: Context) -> None:
            ctx.on_failure(undo)
            raise ValueError("no luck")

    context = Context(run_id="r", job="subject", kind=kind)
    call = JobInvoker(kind=kind).prepare(known.get("subject"), context)
    with capture_logs() as lines, pytest.raises(ValueError, match="no luck"):
        asyncio.run(call(ctx=context)) if kind is Kind.ASYNC else call(ctx=context)
    told = [line["error"] for line in lines if line["event"] == "on_failure_failed"]
    assert len(told) == 1
    assert "give on_failure a plain function" in told[0] or (kind is Kind.ASYNC and undo in {Request, Client})


def test_a_resource_whose_open_only_returned_its_work_cannot_be_opened(known: Registry) -> None:
    """The job would be given one that is not connected."""

    @job("subject")
    def subject(pool: Pool) -> None: ...

    spec = known.get("subject")
    context = Context(run_id="r", job="subject", kind=spec.kind)
    with pytest.raises(ResourceError, match="Pool cannot be opened: TypeError: it returned a generator"):
        JobInvoker(kind=spec.kind).prepare(spec, context)()


HOOKS = """
import collections.abc

class Request(collections.abc.Coroutine):
    def __await__(self): raise AssertionError
    def send(self, value): raise AssertionError
    def throw(self, *error): raise AssertionError
    def close(self): ...

class Lazy:
    def reserve(self, context): ...
    def unreserve(self, context): return Request()
    def after(self, context, outcome, error): yield outcome
"""


@pytest.mark.parametrize("kind", list(Kind))
def test_a_hook_that_only_returned_its_work_failed(
    known: Registry, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reserved is not given back, which nobody was told."""
    (tmp_path / "tlazy.py").write_text(HOOKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("tlazy")
    recorded = list[tuple[str, str]]()
    monkeypatch.setattr("supervisor.telemetry.events.record", lambda event, text, **_: recorded.append((event, text)))

    def plain() -> None:
        raise ValueError("no luck")

    async def coroutine() -> None:
        raise ValueError("no luck")

    job("subject")(plain if kind is Kind.SYNC else coroutine)
    enabled = {"profiles": {"p": {"hooks": {"enabled": ["tlazy:Lazy"]}}}}
    pipeline = Pipeline(Settings.model_validate(enabled, strict=False), FakeClock(), kind)
    context = Context(run_id="r", job="subject", kind=kind)
    call = JobInvoker(kind=kind, pipeline=pipeline).prepare(known.get("subject"), context, "p")
    try:
        with pytest.raises(ValueError, match="no luck"):
            asyncio.run(call()) if kind is Kind.ASYNC else call()
    finally:
        asyncio.run(pipeline.close_async(1))
        del sys.modules["tlazy"]
    told = [text for event, text in recorded if event == "hook_failed"]
    assert "unreserve HookFailedError: it returned an awaitable that nobody awaits" in told[0]
    assert "after HookFailedError: it returned a generator that nobody iterates" in told[1]
