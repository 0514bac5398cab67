"""The async pool when it is told to stop: it finishes, gives back, or hands back, and never loses."""

from __future__ import annotations

import asyncio
import signal

import pytest
from structlog.testing import capture_logs

from supervisor.core.model import Kind
from supervisor.core.supervision.states import ChildState, Phase, RunState
from supervisor.roles.worker.pools import async_pool
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.telemetry import events, metrics
from supervisor.telemetry.events import Mailbox
from tenure import Retry, job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.mailboxes import arrived


async def test_a_drain_finishes_what_runs_and_leaves_the_rest_in_the_queue(shop: WorkerKit) -> None:
    """Nothing more is fetched once the parent says so on the scoreboard."""
    started, finish = asyncio.Event(), asyncio.Event()

    @job("long")
    async def long() -> None:
        started.set()
        await finish.wait()

    run_id = shop.enqueue("long")
    async with shop.worker():
        await until(started.is_set, what="the start")
        shop.board.header.phase = Phase.DRAINING
        await until(lambda: shop.board.rows[0].child_state == ChildState.DRAINING, what="the drain")
        waiting_id = shop.enqueue("long")
        finish.set()

    assert shop.history() == [(run_id, "ok", 1)]
    assert shop.state(waiting_id) == "queued"
    shop.assert_clean()


async def test_runs_that_arrive_while_draining_go_back_untouched(shop: WorkerKit) -> None:
    """The drain began while the turn that fetched them was on its way."""
    called = []

    @job("never")
    async def never() -> None:
        called.append(1)

    ids = [shop.enqueue("never") for _ in range(3)]

    def drain_at_the_turn(script: str) -> str:
        if script == "turn":
            pool.drain()
        return ""

    async with shop.worker(fault=drain_at_the_turn) as pool:
        pass

    ready = shop.server.keys.queue("default").ready(Kind.ASYNC, 1)
    assert called == []
    assert shop.store.raw.lrange(ready, 0, -1) == [run_id.encode() for run_id in ids]
    shop.assert_clean()


async def test_quitting_hands_runs_back_uncharged(shop: WorkerKit) -> None:
    """They were cut off by a stop, not by a fault of theirs."""
    started = asyncio.Event()

    @job("endless", retry=Retry(attempts=1))
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("clean-up failed")

    run_id = shop.enqueue("endless")
    async with shop.worker() as pool:
        await until(started.is_set, what="the start")
        shop.ask_to_go()
        pool.quit()

    assert shop.state(run_id) == "queued"
    assert shop.store.raw.hget(shop.server.keys.queue("default").att, run_id) == b"0,0,1"
    shop.assert_clean()


async def test_a_run_that_must_not_run_twice_is_told_as_dead_by_the_process_that_a_stop_ends(
    shop: WorkerKit, mailbox: Mailbox
) -> None:
    """It is lost by the very call that hands it back, and no agent will find it."""
    events.attach(mailbox.write_fd, replica="r1", role="worker-io-0")
    started = asyncio.Event()

    @job("once", delivery="at_most_once")
    async def once() -> None:
        started.set()
        await asyncio.Event().wait()

    run_id = shop.enqueue("once")
    counter = metrics.RUNS_FINISHED.labels("default", "once", "dead")
    before = counter._value.get()
    with capture_logs() as lines:
        async with shop.worker() as pool:
            await until(started.is_set, what="the start")
            shop.ask_to_go()
            pool.quit()

    assert shop.state(run_id) == "dead"
    (line,) = [each for each in lines if each["event"] == "run_dead"]
    assert (line["log_level"], line["run"], line["job"], line["error"]) == ("error", run_id, "once", "lost")
    assert counter._value.get() == before + 1
    assert [(each.reason, each.subject, each.note) for each in arrived(mailbox)] == [("run_dead", "once", "lost")]


async def test_a_process_that_nobody_asked_to_quit_leaves_its_runs_to_whoever_judges_its_death(shop: WorkerKit) -> None:
    """One of them may have sent the signal; handed back uncharged, it would take down one process after the other."""
    started, release = asyncio.Event(), asyncio.Event()

    @job("waits")
    async def waits() -> None:
        started.set()
        await release.wait()

    run_id = shop.enqueue("waits")
    pool = AsyncPool(shop.runtime(), shop.server.async_store())
    task = asyncio.create_task(pool.run())
    await until(started.is_set, what="the start")
    pool.quit()

    assert await task == 128 + signal.SIGQUIT
    assert shop.state(run_id) == "running"
    assert list(shop.store.run(shop.sessions.list())) == ["r.000001/worker-test-0/1"]
    assert [entry.state for entry in shop.board.inflight[0].entries()] == [RunState.DONE]


async def test_a_job_that_refuses_to_be_cancelled_does_not_delay_a_quit(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool leaves without it; its agent hands the run back once the process is gone."""
    monkeypatch.setattr(async_pool, "CANCEL_S", 0.05)
    started, release = asyncio.Event(), asyncio.Event()

    @job("stubborn")
    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    run_id = shop.enqueue("stubborn")
    async with shop.worker() as pool:
        await until(started.is_set, what="the start")
        shop.ask_to_go()
        pool.quit()

    assert shop.state(run_id) == "running"
    assert list(shop.store.run(shop.sessions.list())) == ["r.000001/worker-test-0/1"]
    release.set()
    await until(lambda: shop.board.rows[0].busy == 0, what="its end")


@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_job_that_ends_while_a_quit_hands_back_the_others_is_not_left_behind(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch, *, is_finished: bool
) -> None:
    """The session was closed over it: half a minute later somebody found it, and executed it once more."""
    monkeypatch.setattr(async_pool, "CANCEL_S", 0.05)
    started, release = [], asyncio.Event()

    @job("obedient")
    async def obedient() -> None:
        started.append("obedient")
        await asyncio.Event().wait()

    @job("slow")
    async def slow() -> None:
        started.append("slow")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            if not is_finished:
                raise

    def ends_meanwhile(script: str) -> str:
        if script == "release_runs":
            release.set()
        return ""

    run_ids = [shop.enqueue("obedient"), shop.enqueue("slow")]
    async with shop.worker(fault=ends_meanwhile) as pool:
        await until(lambda: len(started) == 2, what="both starts")
        shop.ask_to_go()
        pool.quit()

    assert [shop.state(run_id) for run_id in run_ids] == ["queued", "finished" if is_finished else "queued"]
    shop.assert_clean()
