"""Reservations of a run that is asked to end while its hooks take them or give them back."""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs import registry as jobs_registry
from supervisor.core.model import Kind
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.worker.attempt.hook_chain import time_after
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.settings.sections.models import Settings
from tenure import Again, Context
from tests.kit.clock import FakeClock

CODE = """
import asyncio

trace, asked, run = [], [], None

async def meanwhile(point, hook):
    \"\"\"Note that a call begins, have the run cancelled if the test says so, and note that the call ends.\"\"\"
    trace.append(f"{point} {hook}")
    while f"{point} {hook}" in asked:
        asked.remove(f"{point} {hook}")
        run.cancel()
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()
    trace.append("done")

class First:
    async def reserve(self, context): await meanwhile("take", "first")
    async def unreserve(self, context): await meanwhile("give back", "first")

class Second:
    async def reserve(self, context): await meanwhile("take", "second")
    async def unreserve(self, context): await meanwhile("give back", "second")

class Told:
    async def after(self, context, outcome, error): trace.append(f"{outcome} {error}")

class Deaf:
    async def reserve(self, context): ...
    async def unreserve(self, context):
        trace.append("give back")
        await asyncio.Event().wait()
    async def after(self, context, outcome, error):
        trace.append(outcome)
        await asyncio.Event().wait()
"""


@pytest.fixture
def seats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with two hooks, which have their run cancelled where the test says so."""
    (tmp_path / "tseats.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("tseats")
    del sys.modules["tseats"]


def attempt(
    seats: Any, *enabled: str, may_have_left: bool = False, near_its_end: bool = False, error: Exception | None = None
) -> None:
    """Let one attempt of a job that fails pass, in an async pool."""
    hooks = {"enabled": [f"tseats:{name}" for name in enabled or ("First", "Second")]}
    settings = Settings.model_validate({"profiles": {"default": {}, "p": {"hooks": hooks}}}, strict=False)
    clock = FakeClock()
    calling = JobInvoker(kind=Kind.ASYNC, clock=clock, pipeline=Pipeline(settings, clock, Kind.ASYNC))
    context = Context(run_id="r1", job="j", kind=Kind.ASYNC, clock=clock)
    if near_its_end:
        context.soft_deadline_ns = clock.elapsed_ns()
        context.deadline_ns = context.soft_deadline_ns + 100 * MILLISECOND_NS

    async def coroutine() -> None:
        if near_its_end:
            context.on_failure(asyncio.sleep, 3600)
        raise error or ValueError("no luck")

    spec = jobs_registry._spec("j", coroutine, {}, ())

    async def task() -> None:
        seats.run = asyncio.current_task()
        await calling.prepare(spec, context, "p", may_have_left=may_have_left)()

    asyncio.run(task())


TAKEN = ["take first", "done", "take second", "done"]
GIVEN_BACK = ["give back second", "done", "give back first", "done"]


def test_a_reservation_that_is_cut_off_is_undone_too(seats: Any) -> None:
    """A soft timeout may come between the taking and the answer."""
    seats.asked[:] = ["take second"]

    with pytest.raises(asyncio.CancelledError):
        attempt(seats)
    assert seats.trace == [*TAKEN[:3], *GIVEN_BACK]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("hook", ["first", "second"])
def test_a_stop_that_comes_while_a_reservation_is_undone_does_not_cut_that_off(
    seats: Any, hook: str, times: int
) -> None:
    """A seat stayed taken where the soft timeout, or a person's cancel, came just then; the job ends as it did."""
    seats.asked[:] = [f"give back {hook}"] * times

    with pytest.raises(ValueError, match="no luck"):
        attempt(seats)
    assert seats.trace == [*TAKEN, *GIVEN_BACK]


def test_a_stop_that_comes_while_an_earlier_attempt_is_undone_ends_this_one(seats: Any) -> None:
    """Else a run that a person cancels would be executed all the same."""
    seats.asked[:] = ["give back second"]

    with pytest.raises(asyncio.CancelledError):
        attempt(seats, may_have_left=True)
    assert seats.trace == [*GIVEN_BACK[:2], *GIVEN_BACK]


def test_what_hangs_after_the_end_of_a_job_is_given_up_before_the_hard_timeout(seats: Any) -> None:
    """A webhook whose receiver was gone made of each soft timeout a kill of the process, with all its other runs."""
    with capture_logs() as logs, pytest.raises(ValueError, match="no luck"):
        attempt(seats, "Deaf", near_its_end=True)

    assert seats.trace == ["give back", "failed"]
    assert [(line["event"], line.get("note") or line["error"]) for line in logs] == [
        ("on_failure_failed", "TimeoutError()"),
        ("hook_failed", "unreserve HookFailedError: did not answer within 0.05 s"),  # and one more, counted
    ]


@pytest.mark.parametrize(("soft_s", "hard_s", "time_s"), [(9, 10, 9.7), (9.8, 10, 9.9), (-9, 0.3, 0.1), (-2, -1, 0)])
def test_calls_after_the_end_of_a_job_have_the_time_to_its_hard_timeout_but_a_rest(
    soft_s: float, hard_s: float, time_s: float
) -> None:
    """However many of them hang, each in turn: of the rest each has a third, so that it is never used up."""
    clock = FakeClock()
    context = Context(run_id="r1", job="j", kind=Kind.ASYNC, clock=clock)
    assert time_after(context) == math.inf
    context.soft_deadline_ns, context.deadline_ns = (
        clock.elapsed_ns() + round(s * SECOND_NS) for s in (soft_s, hard_s)
    )
    assert time_after(context) == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionError("postgres://app:hunter2@db is down"), "failed ConnectionError: postgres://***@db is down"),
        (Again("1m", "password=hunter2 is refused"), "again password=*** is refused"),
    ],
)
def test_hooks_are_told_errors_without_their_secrets(seats: Any, error: Exception, told: str) -> None:
    """A webhook hands them to another program, which keeps them."""
    with pytest.raises(type(error)):
        attempt(seats, "Told", error=error)
    assert seats.trace == [told]
