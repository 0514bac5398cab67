"""Calls of users that type checkers must accept, and the types that they must find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_type

import tenure
from tenure import (
    Again,
    Context,
    GiveUp,
    JobFunction,
    Leadership,
    Middleware,
    Producer,
    Resource,
    Retry,
    Run,
    Totals,
    cached,
    connect,
    enqueue,
    enqueue_async,
    enqueue_many,
    job,
    leadership,
    schedule,
)
from tenure.errors import ArgumentsError, StoreUnavailableError, TenureError
from tenure.testing import ClusterFactory


class Inventory(Resource):
    """What a worker opens."""

    async def count(self) -> int:
        return 2


@job
async def send(to: str, copies: int = 1) -> int:
    return copies


@schedule("30 2 * * *", timezone="Europe/Berlin", exclude=["2030-12-25", date(2031, 1, 1)], args={"day": "x"})
@schedule(every=timedelta(minutes=5), name="live", jitter=3, overlap="skip")
@job("reports.nightly", timeout=timedelta(hours=1), priority="high", unique="{day}", rate="100/m")
def report(ctx: Context, day: str) -> dict[str, int]:
    ctx.log.info("building", day=day)
    assert_type(ctx.step("load", load, day, pages=3), list[str])
    if not day:
        raise GiveUp("no such day")
    if day == "today":
        raise Again(timedelta(minutes=5))
    return {"rows": 42}


@job("stock.count", retry=Retry(attempts=5, base="2s", on=(TimeoutError, OSError), give_up_on=PermissionError))
async def stock(inventory: Inventory, shelf: str = "a") -> int:
    return await inventory.count()


@job("load.all")
async def load_all(ctx: Context) -> None:
    assert_type(await ctx.step_async("first", fetch, "x"), int)
    assert_type(await ctx.step_async("second", load, "x"), list[str])
    ctx.spawn(send, {"to": "a"}, delay=timedelta(seconds=1))


@job()
def bare() -> None: ...


@job
def planner(days: int) -> Iterator[str]:
    yield ""


@cached(key="{day}", ttl="1h")
def rows(day: str) -> int:
    return 1


def load(day: str, pages: int = 1) -> list[str]:
    return [day] * pages


async def fetch(day: str) -> int:
    return len(day)


def produce() -> None:
    assert_type(send.enqueue("a"), Run[int])
    assert_type(send.enqueue(to="a", copies=2), Run[int])
    assert_type(report.enqueue("monday"), Run[dict[str, int]])
    assert_type(stock.enqueue(shelf="b"), Run[int])
    assert_type(bare.enqueue(), Run[None])
    assert_type(load_all.enqueue(), Run[None])
    later = send.options(delay="5m", priority="low", queue="bulk", run_id="mine")
    assert_type(later.enqueue("a"), Run[int])
    send.options(at=datetime(2030, 1, 1, tzinfo=UTC)).enqueue("a")
    assert_type(send.enqueue_many(send.arguments(each) for each in "abc"), Totals)
    planner.enqueue(days=3)
    handle: Run[Any] = Run("id")
    assert_type(handle.id, str)


def call_them() -> None:
    assert_type(asyncio.run(send("a", copies=3)), int)
    assert_type(report(Context(run_id="r", job="j"), "monday"), dict[str, int])
    assert_type(report.__name__, str)
    assert_type(rows("monday"), int)


async def produce_async() -> None:
    assert_type(await send.enqueue_async("a"), Run[int])
    assert_type(await enqueue_async(send, {"to": "a"}, delay=3), str)
    await send.enqueue_many_async([{"to": "a"}])


def by_name(producer: Producer) -> None:
    try:
        assert_type(enqueue("mail.send", {"to": "a"}, at=datetime(2030, 1, 1, tzinfo=UTC)), str)
        enqueue_many(send, [{"to": "a"}], run_id=lambda args: str(args["to"]))
        connect("redis://h", cluster="c").enqueue("mail.send")
    except (ArgumentsError, StoreUnavailableError) as error:
        assert_type(error.code, str)
    except TenureError:
        producer.close()


def takes_a_job(each: JobFunction[[str], None]) -> None:
    each.enqueue("a")


class Timing(Middleware):
    """Middleware of a user."""

    def around(self, context: Context, call: Callable[[], Any]) -> Any:
        return call()


def test_of_a_user(tenure_cluster: ClusterFactory) -> None:
    cluster = tenure_cluster(replicas=2)
    cluster.advance("5s")
    assert_type(cluster.leader, str | None)


async def leads() -> None:
    async def begin(epoch: int) -> None:
        assert epoch

    with tenure.leadership("billing", on_changed=print, lease_duration="10s") as lead:
        assert_type(lead.is_leader, bool)
        assert_type(lead.leader, str | None)
        assert_type(lead.confirm(), int)
    async with leadership("billing", on_started=begin, grace=timedelta(seconds=5)) as lead:
        assert_type(await lead.wait_async(3), bool)
    assert_type(leadership(on_changed=print), Leadership)
