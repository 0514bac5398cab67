"""Planners, what their runs count and what follows them, in pools of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind
from supervisor.store.queues.run_records import Tallies, Tally
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import RealServer, Server


def tally(shop: WorkerKit, run_id: str) -> Tally:
    """Return what is counted below a run."""
    found = shop.store.run(Tallies(shop.server.keys).read(run_id))
    assert found is not None
    return found


def notes(shop: WorkerKit) -> dict[str, str]:
    """Return what the history says of each run."""
    return {entry.run_id: entry.note for entry in shop.store.run(shop.queues.recent("default", 1000))}


async def test_a_coroutine_planner_yields_runs_that_are_counted_and_followed(shop: WorkerKit) -> None:
    """The whole of it as a user writes it: plan, collect and count, and clean up when all of it is done."""
    seen: list[Any] = []

    @job("collect")
    async def collect(number: int, ctx: Context) -> None:
        ctx.count(created=number, seen=1)
        if number == 2:
            ctx.error("quota", "only half of it")

    @job("report")
    async def report(ctx: Context, of: str = "") -> None:
        seen.append((ctx.run_id, ctx.parent, of, shop.server.raw().hget(shop.server.keys.tally(ctx.parent), "left")))

    @job("plan")
    async def plan(ctx: Context, most: int) -> AsyncIterator[Any]:
        ctx.then(report, {"of": "all"})
        ctx.count("planned")
        for number in range(most):
            yield collect, {"number": number}, {"key": f"k{number}"}

    run_id = shop.enqueue("plan", most=4)
    async with shop.worker():
        await until(lambda: seen, what="the report")
    found = tally(shop, run_id)
    assert (found.total, found.left, found.outcomes) == (4, 0, {"ok": 4})
    assert found.counts == {"created": 6, "planned": 1, "seen": 4}
    assert (found.errors, found.first_errors[0]["run"]) == (1, f"{run_id}/k2")
    assert seen == [(f"{run_id}/then", run_id, "all", b"0")]
    assert notes(shop)[f"{run_id}/k2"] == "created=2 seen=1 errors=1"
    shop.assert_clean()


async def test_a_planner_without_work_finishes_and_one_that_fails_half_way_plans_nothing(shop: WorkerKit) -> None:
    """Nothing to do is no failure; half a plan is none."""

    @job("leaf")
    async def leaf() -> None: ...

    @job("plan", retry=Retry(attempts=1))
    async def plan(most: int) -> AsyncIterator[Any]:
        for number in range(most):
            if number == 2:
                raise ValueError("the database went away")
            yield leaf

    @job("wrong", retry=Retry(attempts=1))
    async def wrong() -> AsyncIterator[Any]:
        yield 7

    empty, failing = shop.enqueue("plan", most=0), shop.enqueue("plan", most=3)
    bad = shop.enqueue("wrong")
    async with shop.worker():
        await until(lambda: shop.ended(3), what="both")
    assert sorted(shop.history()) == sorted([(empty, "ok", 1), (failing, "dead", 1), (bad, "dead", 1)])
    assert notes(shop)[empty] == "planned nothing"
    assert "planner wrong yielded int" in notes(shop)[bad]
    assert shop.server.raw().keys(f"{shop.server.keys.prefix}tally:*") == []


def test_a_plain_planner_of_planners_is_summed_up_to_its_root(real_server: RealServer, jobs: Registry) -> None:
    """A thousand each is the limit of one run; a tree has none, and its root knows all of it."""
    sync_shop = WorkerKit(Server(real_server), jobs, Kind.SYNC)

    @job("leaf", retry=Retry(attempts=1))
    def leaf(ctx: Context, number: int) -> None:
        ctx.count(done=1)
        if number == 3:
            raise ValueError("this one cannot be")

    @job("branch")
    def branch(first: int) -> Iterator[Any]:
        for number in range(first, first + 2):
            yield "leaf", {"number": number}

    @job("root")
    def root(ctx: Context) -> Iterator[Any]:
        ctx.then("leaf", {"number": 9}, when="success")
        yield from ((branch, {"first": first}) for first in (0, 2))

    sync_shop.put(Envelope(id="tree", template=sync_shop.registry.get("root").template({})))
    fork(sync_shop, ended=7).report()
    found = tally(sync_shop, "tree")
    assert (found.total, found.left, found.outcomes) == (6, 0, {"ok": 5, "dead": 1})
    assert (found.counts, found.waiting) == ({"done": 3}, ["tree/then"])
    assert [error["code"] for error in found.first_errors] == ["ValueError"]
    assert tally(sync_shop, "tree/1").outcomes == {"ok": 1, "dead": 1}
    sync_shop.server.close()
