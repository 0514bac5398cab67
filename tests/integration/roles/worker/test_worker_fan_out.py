"""A planner and its thousand children, with the worker killed at every point where that could hurt."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from supervisor.clock import SystemClock
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind, Release
from supervisor.roles.worker.pools.sync_pool import SyncPool
from tenure import Context, job
from tests.integration.roles.worker.forked import FaultySync, fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import RealServer, Server
from tests.kit.shares import share

CHILDREN = 1000
HALF = CHILDREN // 2
DURING = 10  # rounds of the test that kills at a random moment


def die() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Doomed(FaultySync):
    """A store that calls ``before`` and ``after`` around the turn that acknowledges."""

    def __init__(self, store: Any, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__(store, lambda _script: "")
        self._around = (before, after)

    def run(self, call: Any, **options: Any) -> Any:  # type: ignore[override]
        is_end = call.script == "turn" and int(call.args[8]) > 0
        if is_end:
            self._around[0]()
        reply = super().run(call, **options)
        if is_end:
            self._around[1]()
        return reply


def nothing() -> None:
    """Let it pass."""


@pytest.fixture
def plant(real_server: RealServer, jobs: Registry) -> WorkerKit:
    """A workshop whose server outlives its workers, with a planner in it."""

    @job("part", queue="parts")
    def part(number: int) -> None:
        """Do one part."""

    @job("plan")
    def plan(context: Context, dies_at: int = -1) -> None:
        for number in range(CHILDREN):
            if number == dies_at and context.fence == 1:
                die()
            context.spawn(part, {"number": number})

    return WorkerKit(Server(real_server), jobs, Kind.SYNC)


def children(plant: WorkerKit) -> set[str]:
    """Return the ids of the children that exist."""
    return {name.decode() for name in plant.store.raw.hkeys(plant.server.keys.queue("parts").data)}


def start(plant: WorkerKit, **around: Callable[[], None]) -> Any:
    """Fork a worker with a doom of its own."""
    doom = {"before": nothing, "after": nothing} | around

    def run() -> int:
        return SyncPool(plant.runtime(), Doomed(plant.server.store(), **doom)).run()  # type: ignore[arg-type]

    return fork(plant, main=run)


def reclaim(plant: WorkerKit, run_id: str) -> None:
    """Do what an agent does about a dead worker."""
    session = plant.child().session
    assert plant.store.run(plant.sessions.condemn(session, None))
    plant.store.run(plant.queues.release_runs(session=session, items=[("default", run_id, Release.INTERRUPTED)]))
    plant.store.run(plant.sessions.bury(session))


def finish(plant: WorkerKit, run_id: str) -> None:
    """Let a healthy worker take over, and hold that exactly the children there must be are there."""
    end_when = {"after": lambda: os.kill(os.getpid(), signal.SIGTERM)}
    if plant.state(run_id) != "finished":
        assert start(plant, **end_when).wait() == 0
    assert children(plant) == {f"{run_id}/{number}" for number in range(CHILDREN)}
    ready = plant.server.keys.queue("parts").ready(Kind.SYNC, 1)
    assert plant.store.raw.lrange(ready, 0, -1) == [f"{run_id}/{number}".encode() for number in range(CHILDREN)]
    assert [line for line in plant.history() if line[1] == "ok"] == [(run_id, "ok", 1)]
    assert plant.store.run(plant.queues.fsck("parts")) == []


@pytest.mark.share(3)
@pytest.mark.parametrize("dies_at", [0, HALF, CHILDREN - 1])
def test_a_planner_killed_while_it_spawns_leaves_no_child_and_then_all(plant: WorkerKit, dies_at: int) -> None:
    """Half of a fan-out is what everybody fears: which half, and who adds the rest?"""
    run_id = plant.enqueue("plan", dies_at=dies_at)
    assert start(plant).wait() == -signal.SIGKILL
    assert children(plant) == set()
    reclaim(plant, run_id)
    finish(plant, run_id)


@pytest.mark.share(2)
@pytest.mark.parametrize("point", ["before", "after"])
def test_a_planner_killed_around_its_acknowledgement_has_none_or_all(plant: WorkerKit, point: str) -> None:
    """Before it nothing happened; after it everything did, although the worker never learned."""
    run_id = plant.enqueue("plan")
    assert start(plant, **{point: die}).wait() == -signal.SIGKILL
    assert len(children(plant)) == (0 if point == "before" else CHILDREN)
    reclaim(plant, run_id)
    finish(plant, run_id)


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", share(range(DURING), 3))
def test_a_planner_killed_during_its_acknowledgement_has_none_or_all(plant: WorkerKit, seed: int) -> None:
    """The request may be half sent, sent, executed or answered: one script makes the children, or none."""
    clock, rng = SystemClock(), Random(seed)
    wait_ns = round(rng.uniform(0, 8) * 1e6)
    read, write = os.pipe()
    run_id = plant.enqueue("plan")
    worker = start(plant, before=lambda: os.write(write, b"!") and None)
    os.read(read, 1)
    kill_ns = clock.elapsed_ns() + wait_ns
    while clock.elapsed_ns() < kill_ns:
        pass
    worker.signal(signal.SIGKILL)
    worker.wait()
    os.close(read)
    os.close(write)
    assert len(children(plant)) in {0, CHILDREN}, f"seed {seed}, killed after {wait_ns} ns"
    reclaim(plant, run_id)
    finish(plant, run_id)


async def test_a_coroutine_job_spawns_without_await(shop: WorkerKit) -> None:
    """Nothing is sent while it runs, so nothing can block its neighbours."""

    @job("leaf")
    async def leaf(context: Context) -> str:
        return context.parent

    @job("root")
    async def root(context: Context) -> None:
        for number in range(30):
            context.spawn(leaf, key=f"k{number}")

    run_id = shop.enqueue("root")
    async with shop.worker():
        await until(lambda: shop.ended(31), what="the children")
    assert sorted(shop.history()) == sorted([(run_id, "ok", 1), *((f"{run_id}/k{n}", "ok", 1) for n in range(30))])
    assert shop.store.raw.get(shop.server.keys.result(f"{run_id}/k7")) == f'"{run_id}"'.encode()
    shop.assert_clean()


def test_a_job_that_gives_up_halfway_spawns_nothing(sync_shop: WorkerKit) -> None:
    """An exception and a soft timeout alike: the attempt did not finish."""

    @job("leaf")
    def leaf() -> None:
        """Never run."""

    @job("fails")
    def fails(context: Context, *, late: bool) -> None:
        context.spawn(leaf)
        raise Context.SoftTimeout("too late") if late else ValueError("no")

    for late in (False, True):
        sync_shop.enqueue("fails", late=late)
    found = fork(sync_shop, ended=2).report()
    assert {outcome for _, outcome, _ in found.history} == {"retry"}
    assert len(found.states) == 2
