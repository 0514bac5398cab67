"""Progress: what a job says, how often Redis hears of it, and what an outage does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import PayloadTooLargeError, StoreUnavailableError
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt import progress as module
from supervisor.roles.worker.attempt.progress import Progress
from supervisor.store.keys import Keys
from supervisor.store.scripts import script
from tenure import Context
from tests.kit.clock import FakeClock
from tests.unit.roles.worker.test_worker_context import one_turn


class Recorder:
    """Takes calls, and is away when the test says so."""

    keys = Keys("test")

    def __init__(self) -> None:
        self.notes: list[list[str]] = []
        self.is_away = False
        self.sent = asyncio.Event()

    def run(self, call: Call[Any], *, timeout_s: float | None = None) -> None:
        if self.is_away:
            raise StoreUnavailableError("test: away")
        items = [bytes(item) for item in call.args[3::4] if isinstance(item, bytes)]
        self.notes.append([item.partition(b'"note":"')[2].partition(b'"')[0].decode() for item in items])
        self.sent.set()

    async def run_async(self, call: Call[Any]) -> None:
        await one_turn()
        self.run(call)


def context(kind: Kind, clock: Any, run_id: str = "r", **fields: Any) -> Context:
    """Return one of a run."""
    return Context(run_id=run_id, job="j", kind=kind, clock=clock, **fields)


def test_a_test_of_a_job_sees_what_it_said() -> None:
    """Without anything that sends."""
    subject = Context(run_id="r", job="j", attempt=2, fence=3)
    subject.progress((30, 100), "sorting")

    item = subject.last_progress
    assert item is not None
    assert (item.done, item.total, item.value, item.note, item.attempt, item.fence) == (30, 100, None, "sorting", 2, 3)
    subject.progress({"rows": 5})
    assert subject.last_progress is not None
    assert subject.last_progress.value == {"rows": 5}


@pytest.mark.parametrize(("value", "error"), [("x" * 5000, PayloadTooLargeError), (object(), TypeError)])
def test_what_cannot_be_kept_is_refused_where_it_is_said(value: Any, error: type[Exception]) -> None:
    """The job hears of it, not the log."""
    with pytest.raises(error):
        Context(run_id="r", job="j").progress(value)


@pytest.mark.parametrize(("ahead_s", "ttl_ms"), [(None, 100_000), (60, 160_000)])
def test_it_is_kept_as_long_as_a_result_after_the_latest_end(ahead_s: int | None, ttl_ms: int) -> None:
    """A job that says one thing at its start must not lose it while it runs."""
    clock = FakeClock()
    deadline_ns = None if ahead_s is None else clock.now_ns + ahead_s * 10**9
    subject = context(Kind.SYNC, clock, deadline_ns=deadline_ns, result_ttl_s=100.0)
    subject.progress(1)

    assert subject.last_progress is not None
    assert subject.last_progress.ttl_ms == ttl_ms


def test_a_plain_job_is_heard_once_a_second_and_at_its_end() -> None:
    """Between those only the newest value counts."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    run = context(Kind.SYNC, clock, progress_to=subject)

    for number in range(5):
        run.progress(note=f"{number}")
    clock.now_ns += module.EVERY_NS
    run.progress(note="5")
    run.progress(note="6")
    subject.ended(run)
    subject.ended(run)

    assert runner.notes == [["0"], ["5"], ["6"]]


def test_an_outage_costs_a_plain_job_one_call_in_ten_seconds() -> None:
    """Each may take the whole bound of a call."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    run = context(Kind.SYNC, clock, progress_to=subject)

    runner.is_away = True
    run.progress(note="lost")
    runner.is_away = False
    clock.now_ns += module.EVERY_NS
    run.progress(note="not sent")
    clock.now_ns += module.AFTER_FAILURE_NS
    run.progress(note="sent")

    assert runner.notes == [["sent"]]


async def test_coroutine_jobs_share_one_call() -> None:
    """Fifty runs that say something at once are one round trip."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    runs = [context(Kind.ASYNC, clock, f"r{number}", progress_to=subject) for number in range(50)]

    for run in runs:
        run.progress(note="first")
        run.progress(note=run.run_id)
    await runner.sent.wait()
    await subject.close_async(1.0)

    assert runner.notes == [[run.run_id for run in runs]]


async def test_what_a_job_changes_after_it_said_it_is_sent_as_it_was() -> None:
    """And keeps neither what others said nor the end of the process."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    rows: list[Any] = [1]
    context(Kind.ASYNC, clock, "a", progress_to=subject).progress(rows, "a")
    context(Kind.ASYNC, clock, "b", progress_to=subject).progress(2, "b")
    rows[:] = [object()]

    await subject.close_async(1.0)

    assert runner.notes == [["a", "b"]]


async def test_a_thread_of_a_coroutine_job_may_say_something() -> None:
    """What runs in ``asyncio.to_thread`` has no loop of its own."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    run = context(Kind.ASYNC, clock, progress_to=subject)

    await asyncio.to_thread(run.progress, note="from a thread")
    await runner.sent.wait()
    await subject.close_async(1.0)

    assert runner.notes == [["from a thread"]]


async def test_the_last_values_are_sent_when_the_process_leaves() -> None:
    """Also those of the second that has begun, and an outage does not hold it up."""
    clock, runner = FakeClock(), Recorder()
    subject = Progress(clock, runner)
    run = context(Kind.ASYNC, clock, progress_to=subject)
    run.progress(note="first")
    await runner.sent.wait()
    run.progress(note="last")

    await subject.close_async(1.0)
    assert runner.notes == [["first"], ["last"]]

    runner.is_away = True
    run.progress(note="lost")
    await subject.close_async(1.0)


async def test_a_value_that_is_under_way_when_the_process_leaves_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that carries it ends with its task."""
    clock, runner = FakeClock(), Recorder()
    subject, is_under_way = Progress(clock, runner), asyncio.Event()

    async def hang(_: Call[Any]) -> None:
        is_under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(runner, "run_async", hang)
    context(Kind.ASYNC, clock, progress_to=subject).progress(note="last")
    await is_under_way.wait()
    monkeypatch.undo()
    await subject.close_async(1.0)
    assert runner.notes == [["last"]]


def test_the_script_takes_what_is_sent() -> None:
    """The recorder above reads positions; the header is what they mean."""
    assert script("progress_write").arg_names == ()
