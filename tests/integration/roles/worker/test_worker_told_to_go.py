"""Workers that are told to go: while a job has their signals the board says it too, and nothing that they hold stays."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from supervisor.core.supervision.states import RunState, SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.polling.poll import Pace
from supervisor.roles.worker.pools import sync_pool
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import wait_until


async def test_a_worker_that_was_told_to_go_drains_also_where_a_job_took_the_signal(shop: WorkerKit) -> None:
    """A library may have made it ignored; the worker worked on beside its successor, for as long as there was work."""
    async with shop.worker() as pool:
        shop.board.rows[0].state = SlotState.RUNNING
        pool.poll_board()
        assert not pool._is_draining
        shop.board.rows[0].state = SlotState.STOPPING
        await until(lambda: pool._is_draining, what="the worker to drain")


def test_a_plain_job_with_a_handler_of_its_own_keeps_no_worker_from_going(sync_shop: WorkerKit) -> None:
    """Batches have one for SIGTERM; then the worker hears nothing of it, and the parent does not say it twice."""
    taken: list[int] = []

    @job("batch")
    def batch(number: int) -> None:
        before = signal.signal(signal.SIGTERM, lambda number, _: taken.append(number))
        if number == 1:
            sync_shop.board.rows[0].state = SlotState.STOPPING
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: taken, what="the signal")
        signal.signal(signal.SIGTERM, before)

    def stop_in_the_end(script: str) -> str:
        if script == "ring":
            os.kill(os.getpid(), signal.SIGTERM)
        return ""

    ids = [sync_shop.enqueue("batch", number=number) for number in range(4)]
    found = fork(sync_shop, fault=stop_in_the_end).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids[:2]], found.errors
    assert (found.sessions, found.fsck) == ([], [])


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_what_was_about_to_begin_goes_back_with_a_quit(
    sync_shop: WorkerKit, delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while those before the run are acknowledged: the session ends, and must not hold it any more."""
    monkeypatch.setattr(Pace, "want", 2)
    monkeypatch.setattr(Pace, "is_fast", lambda _pace, job: job == "fast")
    monkeypatch.setattr(sync_pool, "PATIENCE_NS", 600 * SECOND_NS)

    @job("fast")
    def fast() -> None: ...

    @job("slow", delivery=delivery)
    def slow() -> None: ...

    def quit_before(script: str) -> str:
        if script == "turn" and RunState.DONE in [entry.state for entry in sync_shop.board.inflight[0].entries()]:
            os.kill(os.getpid(), signal.SIGQUIT)
            sum(range(1000))
        return ""

    fast_id, slow_id = sync_shop.enqueue("fast"), sync_shop.enqueue("slow")
    sync_shop.ask_to_go()
    found = fork(sync_shop, fault=quit_before).report()

    assert found.history == [(fast_id, "ok", 1)]
    assert (found.states[slow_id], found.charges, found.sessions, found.fsck) == ("queued", {}, [], [])
