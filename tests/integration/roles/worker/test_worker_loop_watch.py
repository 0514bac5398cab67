"""Who blocks an event loop is named, in a worker process of its own: the watch takes its SIGALRM."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from types import FrameType
from typing import Any

from structlog.testing import capture_logs

from supervisor.roles.worker.process import loop_monitor
from supervisor.roles.worker.process.loop_monitor import LoopWatch
from supervisor.telemetry import metrics
from supervisor.telemetry.run_context import enter_run
from tenure import Context, job
from tests.integration.roles.worker.forked import in_async_worker
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


def blocked(job_name: str) -> float:
    """Return how often a job was counted."""
    (family,) = metrics.JOB_BLOCKED_LOOP.collect()
    ours = [sample for sample in family.samples if sample.labels["job"] == job_name]
    return sum(sample.value for sample in ours if sample.name.endswith("_total"))


def test_the_job_that_blocks_is_named_with_its_place_and_its_neighbours_are_not(shop: WorkerKit) -> None:
    """Also when it blocks in a task that it started; all of them run at the time."""

    @job("neighbour")
    async def neighbour() -> None:
        await asyncio.sleep(0.4)

    @job("blocking")
    async def blocking(context: Context) -> None:
        async def part() -> None:
            threading.Event().wait(0.25)

        await asyncio.sleep(0.01)
        await asyncio.create_task(part())

    shop.enqueue("neighbour")
    run_id = shop.enqueue("blocking")
    shop.enqueue("neighbour")

    def check(logs: list[Any]) -> None:
        (line,) = [line for line in logs if line["event"] == "job_blocks_loop"]
        assert (line["job"], line["run"]) == ("blocking", run_id)
        assert line["lag_s"] >= loop_monitor.BLOCK_S
        assert "threading.py" in line["where"]
        assert (blocked("blocking"), blocked("neighbour")) == (1, 0)

    in_async_worker(shop, check, runs=3)


def test_a_handler_of_the_alarm_that_a_job_leaves_is_not_called_in_another(shop: WorkerKit) -> None:
    """The usual limit of a time raises in whatever is executed, also while the process is never without a run."""
    is_left = asyncio.Event()

    def expire(_number: int, frame: FrameType | None) -> None:
        while frame is not None:  # it may come before it is taken back, while the test looks at Redis in this loop
            if frame.f_code.co_name == "computing":
                raise TimeoutError("of another job")
            frame = frame.f_back

    @job("limited")
    async def limited() -> None:
        signal.signal(signal.SIGALRM, expire)
        is_left.set()

    @job("computing")
    async def computing() -> str:
        await is_left.wait()
        await asyncio.sleep(3 * loop_monitor.TICK_S)
        threading.Event().wait(2 * (loop_monitor.TICK_S + loop_monitor.BLOCK_S))
        return "computed"

    run_id = shop.enqueue("computing")
    shop.enqueue("limited")
    assert in_async_worker(shop, lambda _logs: None, runs=2).results[run_id] == "computed"


async def test_a_job_that_blocks_again_and_again_is_told_once_a_minute() -> None:
    """And how often meanwhile; the metric counts each."""
    watch = LoopWatch(running=lambda: ["a"], queue_of=lambda _: "q", is_sampling=False)
    now_s = 0.0
    with capture_logs() as logs:
        for step_s in (0.0, 1.0, 1.0, loop_monitor.TELL_EVERY_S):
            now_s += step_s
            watch._culprit = loop_monitor.Culprit("r", "again", "q", "here")
            watch._tell(0.2, now_s)

    assert [(line["event"], line["further"]) for line in logs] == [("job_blocks_loop", 0), ("job_blocks_loop", 2)]
    assert blocked("again") == 4


async def test_who_is_sampled_is_the_run_whose_code_was_interrupted() -> None:
    """Code that belongs to no run, or to one that is no longer here, is nobody's fault."""
    watch = LoopWatch(running=list, queue_of={"r1": "q"}.get, is_sampling=False)
    seen = []
    for run in (None, "gone", "r1"):

        async def code(run: str | None = run) -> None:
            enter_run(None if run is None else {"run": run, "job": "j"})
            watch._sample(0, sys._getframe())

        await asyncio.create_task(code())
        seen.append(watch._culprit and watch._culprit.run)

    assert seen == [None, None, "r1"]


async def test_the_watch_sleeps_while_nothing_runs() -> None:
    """An idle process is woken by nothing of it."""
    running = ["a"]
    watch = LoopWatch(running=lambda: running, queue_of=lambda _: None, is_sampling=False)
    watch.watch()
    assert watch._tick_timer is not None
    running.clear()
    await until(lambda: watch._tick_timer is None, what="the last tick")
