"""A run that a newer one of its schedule replaces: it is asked to stop, and is neither failed nor tried again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.supervision.scoreboard import execution_hash
from supervisor.core.supervision.states import RunState, UnwantedReason
from supervisor.store.wire.poll import fence_parts
from tenure import Context, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import wait_until
from tests.kit.waiting import linger


def ask(shop: WorkerKit, run_id: str) -> None:
    """Ask as the agent does."""
    with shop.server.raw() as raw:
        token = raw.hget(shop.server.keys.queue("default").run, run_id)
    ask_for(shop, execution_hash(("default", run_id), fence_parts(token or b"")[2]))


def ask_for(shop: WorkerKit, execution: int) -> None:
    """Ask for the end of an execution, by what stands for it on the board."""
    row = shop.board.rows[0]
    row.unwanted_hash = execution
    row.unwanted_number += 1


async def test_a_coroutine_is_cancelled_and_ends_replaced(shop: WorkerKit) -> None:
    """Its neighbour goes on; a request for a run that is not here does nothing."""
    cleaned = []
    go = asyncio.Event()

    @job("long")
    async def long(context: Context) -> None:
        try:
            await go.wait()
        finally:
            cleaned.append((context.run_id, context.is_cancelled))

    unwanted, neighbour = shop.enqueue("long"), shop.enqueue("long")
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy == 2, what="both to run")
        ask(shop, "somebody-else")
        seen_ns = shop.board.rows[0].beat_ns
        await until(lambda: shop.board.rows[0].beat_ns > seen_ns, what="a look at the board")
        ask(shop, unwanted)
        await until(lambda: shop.ended(1), what="the end of the one")
        assert cleaned == [(unwanted, True)]
        go.set()
        await until(lambda: shop.ended(2), what="the end of the other")

    assert shop.history() == [(unwanted, "replaced", 1), (neighbour, "ok", 1)]
    shop.assert_clean()


async def test_a_coroutine_that_a_person_cancels_ends_cancelled(shop: WorkerKit) -> None:
    """Also one that was not begun yet when it was asked, and nothing of either is left to run again."""
    seen = []

    @job("long")
    async def long(context: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append((context.is_cancelled, context.is_replaced))

    run_id = shop.enqueue("long")
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy, what="the run")
        shop.board.rows[0].unwanted_reason = UnwantedReason.CANCELLED
        ask(shop, run_id)
        await until(lambda: shop.ended(1), what="its end")

    assert seen == [(True, False)]
    assert shop.history() == [(run_id, "cancelled", 1)]
    shop.assert_clean()


async def test_a_coroutine_that_makes_room_and_that_a_person_cancels_ends_cancelled(shop: WorkerKit) -> None:
    """It is not cancelled again: what it does to clean up is not interrupted. But it ends for the reason that counts."""
    seen = []
    go, is_cleaning = asyncio.Event(), asyncio.Event()

    @job("long")
    async def long(context: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_cleaning.set()
            await go.wait()
            seen.append((context.is_cancelled, context.is_replaced))

    run_id = shop.enqueue("long")
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy, what="the run")
        ask(shop, run_id)
        await until(is_cleaning.is_set, what="its cancellation")
        shop.board.rows[0].unwanted_reason = UnwantedReason.CANCELLED
        seen_ns = shop.board.rows[0].beat_ns
        ask(shop, run_id)
        await until(lambda: shop.board.rows[0].beat_ns > seen_ns, what="a look at the board")
        go.set()
        await until(lambda: shop.ended(1), what="its end")

    assert seen == [(True, False)]
    assert shop.history() == [(run_id, "cancelled", 1)]
    shop.assert_clean()


async def test_a_coroutine_that_is_unwanted_before_its_first_step_ends_too(shop: WorkerKit) -> None:
    """Nothing of it is ever called, so its end must be noted by somebody else."""

    @job("never")
    async def never() -> None:
        raise AssertionError

    run_id = shop.enqueue("never")
    async with shop.worker() as pool:
        accept = pool._runs.accept

        def accept_and_cancel(runs: Any) -> None:
            accept(runs)
            for run in runs:
                pool._runs.end_unwanted(
                    execution_hash((run.queue, run.envelope.id), run.fetched_ms), UnwantedReason.CANCELLED
                )

        pool._runs.accept = accept_and_cancel  # type: ignore[method-assign]
        await until(lambda: shop.ended(1), what="its end")

    assert shop.history() == [(run_id, "cancelled", 1)]
    shop.assert_clean()


async def test_a_coroutine_that_returns_all_the_same_has_finished(shop: WorkerKit) -> None:
    """It was asked, not told; what it did counts."""

    @job("stubborn")
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    run_id = shop.enqueue("stubborn")
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy, what="the run")
        ask(shop, run_id)
        await until(lambda: shop.ended(1), what="its end")
    assert shop.history() == [(run_id, "ok", 1)]


@pytest.mark.parametrize("reason", list(UnwantedReason))
def test_a_plain_function_is_interrupted_and_ends_as_it_was_asked_to(
    sync_shop: WorkerKit, reason: UnwantedReason
) -> None:
    """Out of whatever it waits for; a signal that was meant for another run leaves it alone."""

    @job("long", timeout=600)
    def long() -> None:
        linger()

    @job("after")
    def after() -> None:
        """Show that the process goes on."""

    run_id = sync_shop.enqueue("long")
    worker = fork(sync_shop, ended=2)

    def is_running() -> bool:
        return any(entry.state is RunState.STARTED for entry in sync_shop.board.inflight[0].entries())

    wait_until(is_running, what="the run")
    ask(sync_shop, "somebody-else")
    worker.signal(signal.SIGUSR2)
    wait_until(lambda: is_running() and os.kill(worker.pid, 0) is None, what="it to go on")
    if sync_shop.server.is_real:
        follower = sync_shop.enqueue("after")
    sync_shop.board.rows[0].unwanted_reason = reason
    (begun,) = sync_shop.board.inflight[0].entries()
    ask_for(sync_shop, begun.execution)
    worker.signal(signal.SIGUSR2)
    if not sync_shop.server.is_real:  # the worker has a server of its own, and no second run
        wait_until(lambda: not is_running(), what="its end")
        worker.signal(signal.SIGTERM)
        assert worker.report().history == [(run_id, reason.name.lower(), 1)]
        return
    assert worker.report().history == [(run_id, reason.name.lower(), 1), (follower, "ok", 1)]


def test_a_plain_function_that_makes_room_and_that_a_person_cancels_ends_cancelled(
    sync_shop: WorkerKit, tmp_path: Path
) -> None:
    """What it does to clean up is not interrupted by the second request, which decides how the run ends."""

    @job("long", timeout=600)
    def long() -> None:
        try:
            linger()
        finally:
            (tmp_path / "cleans").touch()
            wait_until((tmp_path / "go").exists, what="the second request")

    run_id = sync_shop.enqueue("long")
    worker = fork(sync_shop, ended=1)
    row = sync_shop.board.rows[0]
    wait_until(lambda: any(each.state is RunState.STARTED for each in sync_shop.board.inflight[0].entries()), what="it")
    (begun,) = sync_shop.board.inflight[0].entries()
    ask_for(sync_shop, begun.execution)
    worker.signal(signal.SIGUSR2)
    wait_until((tmp_path / "cleans").exists, what="its interruption")
    row.unwanted_reason = UnwantedReason.CANCELLED
    ask_for(sync_shop, begun.execution)
    worker.signal(signal.SIGUSR2)
    (tmp_path / "go").touch()
    assert worker.report().history == [(run_id, "cancelled", 1)]
