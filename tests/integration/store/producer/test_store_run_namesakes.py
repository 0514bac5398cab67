"""Waiting for runs where ids are used twice, runs are moved, and the thread that hears of ends meets errors."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Outcome
from supervisor.store.queues.control import QueueControl
from tenure import Run, RunPhase
from tests.integration.store.producer.shop import LONG_S, Report, S, Shop
from tests.kit.builders import envelope
from tests.kit.waiting import wait_until


def test_an_unexpected_error_of_the_listener_is_logged_and_its_waiters_get_their_result(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One thread hears of all ends: without it every waiter of the process would wait for ever."""
    run, waits, faults = shop.enqueue(), shop.producer.asking.waits, [ValueError("a reply of another shape")] * 2
    step = waits.step

    def fail_first(store: Any, block_s: float) -> None:
        if faults:
            raise faults.pop()
        step(store, block_s)

    monkeypatch.setattr(waits, "step", fail_first)

    def end_after_the_faults() -> None:
        wait_until(lambda: not faults, what="the faults")
        shop.end(run, result=b'{"path":"/r.pdf","pages":3}')

    acting = shop.later(run, end_after_the_faults)
    assert run.result(timeout=LONG_S) == Report("/r.pdf", 3)
    acting.join()
    assert [record.name for record in caplog.records if record.exc_info] == ["tenure.producer"], "once"


@pytest.mark.parametrize("is_dead", [False, True], ids=["waits", "is dead"])
def test_a_run_of_the_same_id_in_another_queue_is_not_taken_for_this_one(shop: Shop, *, is_dead: bool) -> None:
    """Its handle knows the queue; a namesake neither ends its wait, nor keeps it waiting, nor is cancelled for it."""
    run = shop.enqueue(run_id="invoice-8")
    shop.end(run)  # nobody waited, so its end is in the history alone
    shop.calls.enqueue(envelope("invoice-8", queue="archive"))
    if is_dead:
        shop.calls.fetch(S, queues=["archive"])
        shop.calls.ack(S, run.id, Outcome.DEAD, queue="archive", error={"type": "ValueError", "message": "other"})

    assert run.result(timeout=LONG_S) is None
    assert run.status().state is RunPhase.OK
    assert not run.cancel()
    namesake = Run("invoice-8", "report", "archive", shop.producer)
    assert namesake.status().state is (RunPhase.DEAD if is_dead else RunPhase.WAITING)


def test_a_run_that_was_moved_is_awaited_where_it_is(shop: Shop) -> None:
    """Its handle names the queue that it was put into."""
    run = shop.enqueue()

    def move_and_end() -> None:
        shop.calls.run(QueueControl(shop.calls.keys).move("default", "archive", "ready:a:1"))
        shop.calls.fetch(S, queues=["archive"])
        answer = {"job": "report", "result": b'{"path":"/r.pdf","pages":3}', "result_ttl_ms": 60_000}
        shop.calls.ack(S, run.id, queue="archive", **answer)

    acting = shop.later(run, move_and_end)
    assert run.result(timeout=LONG_S) == Report("/r.pdf", 3)
    acting.join()
