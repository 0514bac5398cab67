"""Ids that are used twice, runs that are moved while somebody waits, and errors of the thread that hears of ends."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

import pytest

from supervisor.core.model import Outcome
from supervisor.store.producer.bulk import Totals
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Enqueued
from tenure import Run, RunPhase, job
from tenure.errors import RunIdTakenError
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


@pytest.mark.share(3)
@pytest.mark.parametrize("state", ["waits", "has ended", "waits since more than an hour"])
def test_an_id_of_another_job_or_of_other_arguments_is_refused(shop: Shop, state: str) -> None:
    """Two programs chose the same id: the second would take the run of the first for its own, and its result too."""

    @job("bill", queue="default")
    async def bill(month: int) -> None: ...

    producer = shop.producer
    run = shop.enqueue(run_id="mine")
    if state == "has ended":
        shop.end(run)
    elif state == "waits since more than an hour":
        shop.calls.raw.delete(f"{shop.calls.keys.queue('default').prefix}ran:mine")

    with pytest.raises(RunIdTakenError, match=r"run id mine is taken in queue default: .* choose another run_id"):
        producer.put("bill", {"month": 7}, run_id="mine")

    async def put() -> None:
        with pytest.raises(RunIdTakenError):
            await producer.put_async("bill", {"month": 7}, run_id="mine")
        await producer.close_async()

    asyncio.run(put())
    if state != "waits since more than an hour":  # its arguments are not compared any more
        with pytest.raises(RunIdTakenError):
            producer.put("report", {"month": 8}, run_id="mine")
    assert not producer.put("report", {"month": 7}, run_id="mine", priority="low", delay="1h").is_new


def test_of_many_runs_those_whose_id_is_taken_are_counted_apart(shop: Shop) -> None:
    """The others are in, and the caller learns that some are not."""
    answers: list[Enqueued] = []
    many = [{"month": 1}, {"month": 2}, {"month": 13}]
    totals = shop.producer.enqueue_many(
        "report", many, run_id=lambda args: f"m{args['month'] % 12}", each=answers.extend
    )

    assert totals == Totals(new=2, taken=1)
    assert (totals.done, [each.is_taken for each in answers]) == (3, [False, False, True])


def test_an_id_that_a_former_version_remembers_is_known_whatever_its_arguments(shop: Shop) -> None:
    """Its memory holds no digest, and both versions enqueue while replicas are replaced."""
    shop.enqueue(run_id="mine")
    shop.calls.raw.set(f"{shop.calls.keys.queue('default').prefix}ran:mine", "")

    assert not shop.producer.put("report", {"month": 8}, run_id="mine").is_new


class Colour(Enum):
    """A key of a mapping."""

    RED = "red"


@pytest.mark.parametrize("rows", [{1: "a"}, {Colour.RED: "a"}], ids=["numbers", "members"])
def test_arguments_by_other_keys_may_have_an_id_of_ones_own(shop: Shop, rows: Any) -> None:
    """Their run is known again; of many, all are in, and of "everything" as a key one is."""

    @job("import", unique="*")
    async def load(rows: Any) -> None: ...

    producer = shop.producer
    assert [producer.enqueue("import", {"rows": rows}, run_id="r-1") for _ in range(2)] == ["r-1", "r-1"]
    with pytest.raises(RunIdTakenError):
        producer.enqueue("import", {"rows": [rows]}, run_id="r-1")
    many = [{"rows": [number]} for number in range(1300)] + [{"rows": [rows]}] + [{"rows": "last"}]
    assert producer.enqueue_many("import", many, run_id=lambda args: f"m-{many.index(args)}") == Totals(new=1302)
