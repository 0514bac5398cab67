"""Jobs that return what can be awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Context, Retry, Run, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


def test_an_awaitable_from_a_plain_function_is_a_failure_that_says_so(sync_shop: WorkerKit) -> None:
    """Nobody would ever await it, and the run would look finished."""

    async def forgotten() -> None: ...

    @job("forgetful", retry=Retry(attempts=1))
    def forgetful() -> Any:
        return forgotten()

    run_id = sync_shop.enqueue("forgetful")
    found = fork(sync_shop, ended=1).report()

    assert "async def" in found.errors[run_id]["message"]


def test_a_plain_job_may_return_the_handle_of_a_run(sync_shop: WorkerKit) -> None:
    """It can be awaited, and yet the work is done: a failure would repeat it, and what it enqueued."""

    @job("orders")
    def orders() -> Run[None]:
        return Run("other")

    run_id = sync_shop.enqueue("orders")
    found = fork(sync_shop, ended=1).report()

    assert found.history == [(run_id, "ok", 1)]


@pytest.mark.parametrize("has_context", [False, True])
async def test_a_coroutine_job_that_returns_its_tasks_ends_with_them(shop: WorkerKit, *, has_context: bool) -> None:
    """Its run ended ok at once, and that a part failed was told to nobody but the log."""
    go_on, ends = asyncio.Event(), []

    async def part(number: int) -> int:
        await go_on.wait()
        ends.append(number)
        if number < 0:
            raise ValueError("no luck")
        return number

    async def both(first: int, second: int) -> Any:
        return asyncio.gather(part(first), part(second))

    async def both_by_context(context: Context, first: int, second: int) -> Any:
        del context
        return await both(first, second)

    job("both", retry=Retry(attempts=1))(both_by_context if has_context else both)
    good, bad = shop.enqueue("both", first=1, second=2), shop.enqueue("both", first=-1, second=-1)
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy == 2, what="both runs")
        go_on.set()
        await until(lambda: shop.ended(2), what="their ends")

    assert sorted(shop.history()) == sorted([(good, "ok", 1), (bad, "dead", 1)])
    assert sorted(ends) == [-1, -1, 1, 2]


async def test_the_soft_timeout_of_a_job_ends_the_task_that_it_returned(shop: WorkerKit) -> None:
    """As where it awaits it."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    @job("slow", timeout=60, soft_timeout=0.5, retry=Retry(attempts=1))
    async def slow() -> Any:
        return asyncio.create_task(work())

    run_id = shop.enqueue("slow")
    async with shop.worker():
        await until(lambda: shop.ended(1), what="its end")
    assert shop.history() == [(run_id, "dead", 1)]
    assert ended == ["cleaned up"]
