"""What a job sees of its run."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from supervisor.core.model import Kind
from supervisor.roles.worker.run_reporting import identity
from tenure import Context
from tests.kit.clock import FakeClock
from tests.unit.roles.worker.executor_stage import Stage, fetched


async def one_turn() -> None:
    """Let everything that is ready run once."""
    turned = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


def test_a_test_of_a_job_needs_only_two_names() -> None:
    """Jobs are functions; calling one in a test should be one line."""
    context = Context(run_id="r", job="j")

    assert (context.attempt, context.nominal, context.deadline, context.is_cancelled) == (1, None, None, False)
    assert context.remaining_s() == float("inf")


def test_the_time_that_remains_never_goes_below_nothing() -> None:
    """On the clock that counts a suspended machine; the calendar's deadline is for others."""
    clock = FakeClock()
    context = Context(run_id="r", job="j", clock=clock, deadline_ns=clock.now_ns + 3_000_000_000)

    assert context.remaining_s() == 3.0
    assert context.deadline is not None
    assert context.deadline.isoformat() == "2023-11-14T22:13:23+00:00"
    clock.wall_offset_ms -= 3_600_000  # set back: what remains does not change
    assert context.remaining_s() == 3.0
    clock.now_ns += 10_000_000_000
    assert context.remaining_s() == 0.0


def test_the_time_until_the_job_is_asked_to_stop_is_told_apart(stage: Stage) -> None:
    """By its soft timeout, written or 90 % of the other: what a job that stops by itself has to go by."""
    for soft_s, wanted_s in ((None, 270.0), (20.0, 20.0)):
        context = stage.begin(fetched(timeout_s=300.0, soft_timeout_s=soft_s)).context
        assert context is not None
        assert (context.soft_remaining_s(), context.remaining_s()) == (wanted_s, 300.0)
    stage.clock.now_ns += 25_000_000_000
    assert (context.soft_remaining_s(), context.remaining_s()) == (0.0, 275.0)
    assert Context(run_id="r", job="j").soft_remaining_s() == float("inf")


def test_a_job_and_the_lines_of_its_end_know_that_it_may_have_run_before(stage: Stage) -> None:
    """Its effect is then to be looked for first; lines of all other runs stay as short as they were."""
    for is_flagged in (True, False):
        run = fetched(maybe_duplicate=is_flagged)
        context = stage.begin(run).context
        assert context is not None
        assert context.maybe_duplicate is is_flagged
        assert identity(run).get("maybe_duplicate", False) is is_flagged
    assert not Context(run_id="r", job="j").maybe_duplicate


def test_every_line_names_the_run() -> None:
    """Without the job having to say so."""
    with capture_logs() as lines:
        Context(run_id="r", job="j", attempt=2, schedule="s").log.info("working")
        Context(run_id="r", job="j").log.info("working")

    assert lines[0] == {
        "event": "working",
        "log_level": "info",
        "run": "r",
        "job": "j",
        "attempt": 2,
        "schedule": "s",
    }
    assert "schedule" not in lines[1]


def test_a_context_without_a_worker_says_how_to_enqueue() -> None:
    """In a test of a job there is no Redis."""
    with pytest.raises(RuntimeError, match="producer="):
        Context(run_id="r", job="j").enqueue("other")
    with pytest.raises(RuntimeError, match="enqueue_async"):
        Context(run_id="r", job="j", kind=Kind.ASYNC).enqueue("other")


@pytest.mark.parametrize(("kind", "error"), [(Kind.SYNC, Context.SoftTimeout), (Kind.ASYNC, asyncio.CancelledError)])
def test_a_job_may_ask_whether_it_is_to_stop(kind: Kind, error: type[BaseException]) -> None:
    """For threads, and for loops that swallowed the request; it ends as the pool would have ended it."""
    context = Context(run_id="r", job="j", kind=kind)
    context.raise_if_cancelled()
    context.is_cancelled = True

    with pytest.raises(error):
        context.raise_if_cancelled()
