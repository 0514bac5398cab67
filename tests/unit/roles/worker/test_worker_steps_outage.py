"""Steps while Redis does not answer: a finished one is noted when it is back, and charges nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from supervisor.core.errors import StoreFullError, StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt import steps as steps_module
from supervisor.roles.worker.attempt.steps import Steps
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.run_records import StepCalls
from tenure import Context
from tests.kit.clock import FakeClock


class Away:
    """A way to Redis on which so many calls of a script get no answer, or this error."""

    def __init__(self, error: TenureError | None = None, **silent: int) -> None:
        self.silent = silent
        self.error = error or StoreUnavailableError("Redis does not answer")
        self.asked: list[str] = []

    def run(self, call: Any) -> Any:
        self.asked.append(call.script)
        if self.silent.get(call.script, 0) > 0:
            self.silent[call.script] -= 1
            raise self.error
        return {} if call.script == "step_read" else 1

    async def run_async(self, call: Any) -> Any:
        return self.run(call)


@pytest.fixture(params=list(Kind), autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A plain job, then a coroutine one."""
    monkeypatch.setattr(steps_module, "AGAIN_S", 0)
    found: Kind = request.param
    return found


def step(kind: Kind, way: Away, called: list[str], error: Exception | None = None, *, was_asked: bool = False) -> Any:
    """Call a step of a job of this kind, which notes that it was called."""

    def work() -> int:
        called.append("work")
        if error is not None:
            raise error
        return 7

    def make() -> Steps:
        calls = StepCalls(Keys("t"), run_id="r", queue="default", fence="s|1|1", born="1")
        return Steps(attempt=1, clock=FakeClock(), calls=calls, runner=cast("Producer", way))

    context = Context(run_id="r", job="j", kind=kind, make_steps=make, is_cancelled=was_asked)
    if kind is Kind.ASYNC:
        return asyncio.run(context.step_async("n", work))
    return context.step("n", work)


@pytest.mark.parametrize(
    "error",
    [None, StoreFullError("no memory"), StoreRefusedError("NOPERM", concerns_client=True)],
    ids=["away", "full", "no right"],
)
def test_a_finished_step_is_noted_when_redis_is_back(kind: Kind, error: TenureError | None) -> None:
    """The outage was raised into the job: an attempt was charged, and the next one called the step again."""
    way, called = Away(error, step_read=2, step_write=3), []

    assert step(kind, way, called) == 7
    assert called == ["work"]
    assert way.asked == ["step_read"] * 3 + ["step_write"] * 4


def test_a_note_that_redis_will_never_take_is_not_tried_again(kind: Kind) -> None:
    """A key of another type is in its place."""
    way = Away(StoreRefusedError("WRONGTYPE"), step_write=1)
    with pytest.raises(StoreRefusedError):
        step(kind, way, [])
    assert way.asked == ["step_read", "step_write"]


def test_a_job_that_was_asked_to_end_does_not_wait(kind: Kind) -> None:
    """It would be killed at its hard timeout, with its process."""
    called: list[str] = []
    with pytest.raises(StoreUnavailableError):
        step(kind, Away(step_write=1), called, was_asked=True)
    assert called == ["work"]


def test_a_step_that_failed_says_so_at_once(kind: Kind) -> None:
    """Its note is for people alone."""
    way = Away(step_write=9)
    with pytest.raises(ValueError, match="no"):
        step(kind, way, [], ValueError("no"))
    assert way.asked == ["step_read", "step_write"]
