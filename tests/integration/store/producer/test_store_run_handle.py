"""Handles of runs: their results reach whoever waits, by one connection, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import pickle
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, field_serializer

from supervisor.core.model import Outcome
from supervisor.roles.worker.attempt.failure import encoded_result
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.control import QueueControl
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Child
from tenure import Run, RunPhase, job
from tenure.errors import (
    JobFailedError,
    ResultGoneError,
    ResultTypeError,
    RunCancelledError,
    RunTimeoutError,
    StoreUnavailableError,
)
from tests.integration.store.producer.shop import LONG_S, Report, S, Shop
from tests.kit.builders import envelope
from tests.kit.servers import Server
from tests.kit.waiting import wait_until
from tests.unit.roles.worker.executor_stage import fetched


def test_a_result_reaches_its_waiter_in_the_type_of_the_annotation(shop: Shop) -> None:
    """The caller goes on with the value, not with JSON."""
    run = shop.enqueue()
    acting = shop.later(run, lambda: shop.end(run, result=b'{"path":"/r.pdf","pages":3}'))
    assert run.result(timeout=LONG_S) == Report("/r.pdf", 3)
    acting.join()
    assert run.result(timeout="1s") == Report("/r.pdf", 3), "also for those who ask later"


class Invoice(BaseModel):
    """A pydantic model, which msgspec does not know."""

    number: UUID
    total: Decimal
    paid: datetime | None = None

    @field_serializer("paid")
    def _paid(self, paid: datetime | None) -> str | None:
        return paid.astimezone(UTC).isoformat() if paid is not None else {}["unpaid"]  # type: ignore[misc]


NUMBER, PAID = UUID(int=7), datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_pydantic_model_that_a_job_returns_reaches_its_waiter(shop: Shop) -> None:
    """Alone, and inside of a list; a model whose serializer raises costs the result, not the run."""

    @job("bill", queue="default")
    async def bill() -> Invoice: ...

    @job("bills", queue="default")
    async def bills() -> list[Invoice]: ...

    @job("unpaid", queue="default")
    async def unpaid() -> Invoice: ...

    invoice = Invoice(number=NUMBER, total=Decimal("9.90"), paid=PAID)

    def outcome(name: str, returned: Any) -> Any:
        run = Run[Any](shop.producer.enqueue(name), name, "default", shop.producer)
        shop.end(run, job=name, result=encoded_result(fetched(name), returned))
        return run.result(timeout=LONG_S)

    assert outcome("bill", invoice) == invoice
    assert outcome("bills", [invoice, invoice]) == [invoice, invoice]
    with pytest.raises(ResultGoneError, match="KeyError: 'unpaid'"):
        outcome("unpaid", Invoice(number=NUMBER, total=Decimal(1)))


def test_many_waiters_share_one_connection(shop: Shop, server: Server) -> None:
    """A hundred coroutines that wait cost one thread and one connection, beside that of the loop's own calls."""

    async def scenario() -> list[Any]:
        runs = [Run[Report](await shop.producer.enqueue_async("report", {"month": n})) for n in range(100)]
        waiting = [asyncio.create_task(_awaited(Run(run.id, producer=shop.producer))) for run in runs]
        awaited = shop.calls.keys.awaited
        while shop.calls.raw.hlen(awaited) < len(runs):
            await asyncio.wait(waiting, timeout=0.01)
        assert [each.name for each in threading.enumerate()].count("tenure-waits") == 1
        if server.is_real:
            names = [client for client in shop.calls.raw.client_list() if client["cmd"] in {"blpop", "evalsha", "eval"}]
            assert len([client for client in names if client["cmd"] == "blpop"]) <= 1
        shop.calls.fetch(S, want=100)
        for run in runs:
            shop.calls.ack(S, run.id, result=b'{"path":"x","pages":1}', result_ttl_ms=60_000)
        found = await asyncio.gather(*waiting)
        await shop.producer.close_async()
        return found

    assert asyncio.run(scenario()) == [Report("x", 1)] * 100


async def _awaited(run: Run[Any]) -> Any:
    return await run


def test_a_run_that_returned_none_ends_its_wait(shop: Shop) -> None:
    """It leaves no result, and has ended all the same: for its waiter, and for who asks afterwards."""
    run, unawaited = shop.enqueue(), shop.enqueue()
    acting = shop.later(run, lambda: shop.end(run))
    assert run.result(timeout=LONG_S) is None
    acting.join()
    shop.end(unawaited)
    assert unawaited.result(timeout=0) is None


def test_a_failed_job_comes_back_as_its_exception(shop: Shop) -> None:
    """With type, message and attempt, as its record has them."""
    run = shop.enqueue()
    shop.end(run, Outcome.DEAD, error={"type": "KeyError", "message": "'month'", "worker": S})
    with pytest.raises(JobFailedError, match="failed at attempt 1: KeyError: 'month'") as error:
        run.result(timeout=LONG_S)
    assert (error.value.type, error.value.message, error.value.attempt) == ("KeyError", "'month'", 1)
    assert run.status().state is RunPhase.DEAD

    shop.calls.run(QueueControl(shop.calls.keys).requeue("default", [run.id]))
    assert run.status().state is RunPhase.WAITING
    acting = shop.later(run, lambda: shop.end(run, result=b'{"path":"x","pages":1}'))
    assert run.result(timeout=LONG_S) == Report("x", 1)
    acting.join()


def test_a_cancelled_run_says_so(shop: Shop) -> None:
    """Its waiter is not left waiting for a run that nobody will execute."""
    run = shop.enqueue()
    acting = shop.later(run, lambda: Run(run.id, producer=shop.producer).cancel("no longer needed"))
    with pytest.raises(RunCancelledError, match="was cancelled"):
        run.result(timeout=LONG_S)
    acting.join()
    assert run.status().state is RunPhase.CANCELLED
    assert not run.cancel(), "it had ended"


def test_a_cancelled_run_takes_nothing_from_a_long_history(shop: Shop) -> None:
    """A program does not know how much a queue remembers; what was beyond its own number was gone for good."""
    run = shop.enqueue()
    hist = shop.calls.keys.queue("default").hist
    shop.calls.raw.rpush(hist, *["an-ended-run"] * 10_200)

    assert run.cancel()
    assert shop.calls.raw.llen(hist) == 10_201


def test_a_wait_that_is_over_names_the_state(shop: Shop) -> None:
    """The run goes on; the caller may ask again."""
    run, delayed = shop.enqueue(), shop.enqueue(delay="1h")
    with pytest.raises(RunTimeoutError, match="it is waiting"):
        run.result(timeout=timedelta(milliseconds=5))
    with pytest.raises(TimeoutError, match="it is delayed"):
        delayed.result(timeout=0)
    assert shop.calls.state(run.id) == "queued"


def test_a_result_that_expired_is_gone_and_not_none(shop: Shop) -> None:
    """None would be a result."""
    run = shop.enqueue()
    acting = shop.later(run, lambda: shop.end(run, result=b"1"))
    with pytest.raises(ResultTypeError, match="is not what job report returns"):
        run.result(timeout=LONG_S)
    acting.join()
    shop.calls.raw.delete(shop.calls.keys.result(run.id))
    with pytest.raises(ResultGoneError, match="expired"):
        run.result(timeout=LONG_S)


def test_a_run_of_nobody_is_not_waited_for(shop: Shop) -> None:
    """An id of another cluster would be awaited for ever."""
    with pytest.raises(ResultGoneError, match="does not know the run"):
        Run("nobody", producer=shop.producer).result()
    assert Run("nobody", producer=shop.producer).status().state is RunPhase.GONE


def test_an_end_that_nobody_told_is_found(shop: Shop) -> None:
    """A worker of an older version writes it and tells nobody."""
    run = shop.enqueue()

    def end_untold() -> None:
        shop.calls.raw.delete(shop.calls.keys.awaited)
        shop.end(run, result=b'{"path":"x","pages":1}')

    acting = shop.later(run, end_untold)
    assert run.result(timeout=LONG_S) == Report("x", 1)
    acting.join()


def test_a_foreign_key_in_the_place_of_who_waits_costs_the_message_alone(shop: Shop) -> None:
    """Every producer may write there, and whoever waited for any run of the cluster got an error at once."""
    run = shop.enqueue()
    shop.calls.raw.set(shop.calls.keys.awaited, "another program's")
    acting = threading.Timer(0.1, lambda: shop.end(run, result=b'{"path":"x","pages":1}'))
    acting.start()
    assert run.result(timeout=LONG_S) == Report("x", 1)
    acting.join()


def test_foreign_bytes_in_the_list_of_ends_leave_the_waiters_awake(shop: Shop, server: Server) -> None:
    """Every producer may write to that list, and the one thread that reads it serves the whole process."""
    run, rung = shop.enqueue(), server.keys.rung(shop.producer.asking.waits.bell)

    def disturb_and_end() -> None:
        server.raw().rpush(rung, b"\xff")
        wait_until(lambda: not server.raw().exists(rung), what="it to be read")
        shop.end(run, result=b'{"path":"/r.pdf","pages":3}')

    acting = shop.later(run, disturb_and_end)
    assert run.result(timeout=10) == Report("/r.pdf", 3)
    acting.join()


def test_a_handle_can_be_kept_and_asked_again(shop: Shop) -> None:
    """Its id is all that it is: another process asks with its own connection."""
    run = shop.enqueue()
    again = pickle.loads(pickle.dumps(run))
    assert again == run
    assert again.producer is None
    assert hash(again) == hash(run)


def test_a_finished_run_tells_its_job_attempt_and_times(shop: Shop) -> None:
    """Also without its envelope, which goes with the run."""
    run = shop.enqueue()
    acting = shop.later(run, lambda: shop.end(run))
    run.result(timeout=LONG_S)
    acting.join()
    status = run.status()
    assert (status.state, status.job, status.attempt, status.arguments) == (RunPhase.OK, "report", 1, ("month",))
    assert status.ended_ms is not None
    assert status.started_ms is not None
    assert status.ended_ms >= status.started_ms


def test_the_results_of_children_come_in_order_and_pages(shop: Shop) -> None:
    """A parent of many is read a page at a time, whatever order they ended in."""
    calls = shop.calls
    parent = shop.enqueue()
    children = tuple(
        Child(pack(envelope(f"{parent.id}/{n}", job="count"), above=len(parent.id)), 0, "count") for n in range(5)
    )
    calls.fetch(S)
    calls.ack(S, parent.id, children=children)
    calls.fetch(S)
    for number in (3, 0, 2):
        calls.ack(S, f"{parent.id}/{number}", result=str(number).encode(), result_ttl_ms=60_000)
    calls.ack(S, f"{parent.id}/1", Outcome.DEAD, error={"type": "ValueError"})

    first = parent.children(results=True, limit=3)
    assert [(child.status.state.value, child.result) for child in first.items] == [("ok", 0), ("dead", None), ("ok", 2)]
    second = parent.children(results=True, start=first.next or 0, limit=3)
    assert [(child.status.state.value, child.result) for child in second.items] == [("ok", 3), ("running", None)]
    assert second.next is None
    tally = parent.tally()
    assert tally is not None
    assert (tally.total, tally.left) == (5, 1)


def test_without_a_server_a_question_fails_at_once() -> None:
    """As an enqueue does."""
    settings = RedisSettings.model_validate({"url": "redis://127.0.0.1:1/0", "connect_timeout": "100ms"})
    producer = Producer(settings)
    try:
        with pytest.raises(StoreUnavailableError):
            Run("r", producer=producer).result(timeout=1)
    finally:
        producer.close()
