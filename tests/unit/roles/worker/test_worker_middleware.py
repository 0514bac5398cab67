"""What is refused as middleware, and how it hears of the end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs import registry
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt import middleware
from supervisor.roles.worker.attempt.invocation import JobInvoker
from tenure import Context, Middleware

told: list[str] = []


def _yields(self: Any, context: Context, call: Any) -> Any:
    yield call()


async def _yields_async(self: Any, context: Context, call: Any) -> Any:
    yield await call()


async def _is_coroutine(self: Any, context: Context, call: Any) -> Any:
    return call()


@pytest.mark.parametrize(
    ("method", "function"), [("around", _yields), ("around", _is_coroutine), ("around_async", _yields_async)]
)
def test_middleware_that_would_never_call_the_job_is_refused(method: str, function: Any) -> None:
    """Written like a context manager it returns a generator: every run would be recorded as ok, and none executed."""
    with pytest.raises(ValueError, match=rf"middleware .*:Wrong: {method} "):
        type("Wrong", (Middleware,), {method: function})().install()


class Leaver(Middleware):
    """Has something left to say."""

    def close(self, within_s: float) -> None:
        assert 0 <= within_s <= 1
        told.append("closed")
        raise OSError("nobody listens")


def test_a_middleware_is_told_when_the_worker_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, whatever it raises."""
    monkeypatch.setattr(middleware, "_installed", [])
    told.clear()
    Leaver().install()

    with capture_logs() as logs:
        JobInvoker(kind=Kind.SYNC).close(1.0)
        asyncio.run(JobInvoker(kind=Kind.ASYNC).close_async(1.0))

    assert told == ["closed", "closed"]
    assert [(entry["event"], entry["middleware"]) for entry in logs] == [("middleware_unclosed", "Leaver")] * 2


def test_a_machine_without_a_thread_keeps_no_worker_from_leaving_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """It left with an error although all was acknowledged, and a tree that stopped said that somebody was cut off."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(middleware, "_installed", [])
    Leaver().install()
    loop = asyncio.new_event_loop()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        loop.run_until_complete(JobInvoker(kind=Kind.ASYNC).close_async(1.0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


class Watcher(Middleware):
    """Notes how a job ends that it stands around."""

    async def around_async(self, context: Context, call: Any) -> Any:
        try:
            return await call()
        finally:
            told.append("closed")


def test_a_task_that_a_job_returns_is_awaited_within_its_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that it opened was closed while the work went on."""
    monkeypatch.setattr(middleware, "_installed", [])
    told.clear()
    Watcher().install()

    async def part() -> str:
        told.append("works")
        return "done"

    async def starts() -> Any:
        return asyncio.create_task(part())

    spec, context = registry._spec("starts", starts, {}, ()), Context(run_id="r", job="starts", kind=Kind.ASYNC)
    call = JobInvoker(kind=Kind.ASYNC).prepare(spec, context)
    assert asyncio.run(call()) == "done"
    assert told == ["works", "closed"]
