"""Shares of queues in an async worker (`max_share`)."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core.model import Kind
from supervisor.roles.worker.pools import async_pool
from tenure import job
from tests.integration.roles.worker.test_worker_pacing import setup_pool
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


async def test_a_queue_holds_its_share_of_the_slots_and_no_more(shop: WorkerKit) -> None:
    """Long jobs of one queue must not keep those of another from running."""
    setup_pool(shop, Kind.ASYNC, concurrency=4, queues=("default", "other"), max_share={"default": 0.5})
    finish = asyncio.Event()
    started: list[str] = []

    @job("long")
    async def long() -> None:
        started.append("long")
        await finish.wait()

    @job("other", queue="other")
    async def other() -> None:
        started.append("other")
        await finish.wait()

    for _ in range(5):
        shop.enqueue("long")
    async with shop.worker():
        await until(lambda: len(started) == 2, what="two of them")
        for count in (1, 2):  # the second, too, although no more slots are free than its queue has already
            shop.enqueue("other")
            await until(lambda count=count: started.count("other") == count, what=f"{count} of the other queue")
        assert started.count("long") == 2
        finish.set()
        await until(lambda: shop.ended(5), what="the rest")
    shop.assert_clean()


async def test_a_run_of_a_queue_whose_share_was_used_up_is_not_left_waiting_once_it_is_free(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker began to listen without the bell of that queue."""
    monkeypatch.setattr(async_pool, "RING_S", 600.0)
    setup_pool(shop, Kind.ASYNC, concurrency=4, queues=("default", "other"), max_share={"default": 0.5})
    finish = asyncio.Event()

    @job("held")
    async def held() -> None:
        await finish.wait()

    for _ in range(2):
        shop.enqueue("held")
    async with shop.worker() as pool:
        await until(lambda: pool._runs.count == 2, what="both")
        await asyncio.sleep(3 * async_pool.BEAT_S)  # it listens for the other queue alone
        finish.set()
        await until(lambda: shop.ended(2), what="their ends")
        await asyncio.sleep(3 * async_pool.BEAT_S)
        shop.enqueue("held")
        await until(lambda: shop.ended(3), what="the third")
    shop.assert_clean()
