"""Plain jobs that return what can be awaited."""

from __future__ import annotations

from typing import Any

from tenure import Retry, Run, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit


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
