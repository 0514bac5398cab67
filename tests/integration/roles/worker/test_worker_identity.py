"""An execution is its queue, its id and its fence: whatever shares only a part of them is another one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from supervisor.core.model import Envelope
from supervisor.roles.worker.attempt.failure import STILL_HERE_DELAY_MS
from supervisor.store.queues.control import QueueControl
from tenure import job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


def named(shop: WorkerKit, job_name: str, run_id: str, queue: str = "default", **args: Any) -> Envelope:
    """Return a run of a registered job under an id of the caller's."""
    template = msgspec.structs.replace(shop.registry.get(job_name).template(args), queue=queue)
    return Envelope(id=run_id, template=template)


async def test_one_id_in_two_queues_is_two_runs_of_one_worker(shop: WorkerKit) -> None:
    """Each ends by itself, on its own record, and their neighbour goes on."""
    go = {"default": asyncio.Event(), "other": asyncio.Event()}

    @job("wait")
    async def wait(which: str) -> str:
        await go[which].wait()
        return which

    pool = shop.settings.workers["test"].model_copy(update={"queues": ("default", "other")})
    shop.settings = shop.settings.model_copy(update={"workers": {"test": pool}})
    for queue in go:
        shop.put(named(shop, "wait", "tenant-42", queue, which=queue))
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy == 2, what="both to run")
        go["other"].set()
        await until(lambda: shop.store.run(shop.queues.recent("other", 10)), what="the end of the one")
        assert (shop.board.rows[0].busy, shop.history()) == (1, [])
        go["default"].set()
        await until(lambda: shop.ended(1), what="the end of the other")
    for queue in go:
        assert [entry.outcome for entry in shop.store.run(shop.queues.recent(queue, 10))] == ["ok"]


async def test_the_end_of_an_execution_that_redis_let_go_of_is_not_the_end_of_a_later_one(shop: WorkerKit) -> None:
    """A coroutine may swallow its cancellation; the next run of its id waits for it, and has an end of its own."""
    may_end, calls = asyncio.Event(), []

    @job("stubborn")
    async def stubborn() -> str:
        calls.append(len(calls))
        number = calls[-1]
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return f"execution {number}"

    child = shop.child()
    shop.put(named(shop, "stubborn", "invoice-8"))
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy == 1, what="the first to run")
        shop.store.run(QueueControl(shop.server.keys).cancel([("", "invoice-8")], kill_ms=1))
        asked = shop.queues.unwanted([child.session])
        await until(lambda: any(run.is_killed for run in shop.store.run(asked)), what="Redis to let go of it")
        shop.put(named(shop, "stubborn", "invoice-8"))
        await until(lambda: shop.state("invoice-8") == "later", what="the second to be put off")
        may_end.set()
        await until(lambda: shop.board.rows[0].busy == 0, what="the end of the first")
        assert "ok" not in [outcome for _, outcome, _ in shop.history()]
        with shop.server.raw() as raw:
            assert raw.get(shop.server.keys.result("invoice-8")) is None
            (due_ms,) = [
                score for _, score in raw.zrange(shop.server.keys.queue("default").later, 0, -1, withscores=True)
            ]
            now_s, us = raw.time()
            assert 0 < due_ms - 1000 * now_s - us // 1000 <= STILL_HERE_DELAY_MS
        shop.store.run(QueueControl(shop.server.keys).hasten([("", "invoice-8")]))
        await until(lambda: ("invoice-8", "ok", 1) in shop.history(), what="the end of the second")
    with shop.server.raw() as raw:
        assert raw.get(shop.server.keys.result("invoice-8")) == b'"execution 1"'
    assert calls == [0, 1]
    shop.assert_clean()
