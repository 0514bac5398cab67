"""A turn that Redis answered, and whose worker left in the same outage without having read the answer."""

from __future__ import annotations

from typing import Any

from supervisor.clock import SystemClock
from supervisor.core.supervision.slot import Cause
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.tasks import SessionTasks
from tenure import job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


def reclaim(kit: WorkerKit) -> None:
    """Let the agent give back what a worker left that the parent had asked to go."""

    def ignore(*_: Any, **__: Any) -> None:
        pass

    row = kit.board.rows[0]
    row.cause, row.ended_generation = Cause.RETIRED, 1
    reaper = Reaper(
        run=kit.store.run, sessions=kit.sessions, queues=kit.queues, dead_cap=100, history=100, report=ignore
    )
    workers = LocalWorkers(kit.board, kit.child().slot_names, kit.child().replica)
    tasks = SessionTasks(
        run=kit.store.run, clock=SystemClock(), workers=workers, sessions=kit.sessions, reaper=reaper,
        registry=kit.registry, beat_period_ns=10**9, session_lease_ns=10**10, report=ignore,
    )  # fmt: skip
    tasks.reclaiming.run(0)


async def test_a_run_of_it_that_must_not_run_twice_waits_again(shop: WorkerKit) -> None:
    """It counted as begun, and was given up as lost, although nobody ever executed it."""

    @job("once", delivery="at_most_once")
    async def once() -> None:
        raise AssertionError("nobody read that it was given")

    row, ids = shop.board.rows[0], list[str]()

    def fault(script: str) -> str:
        if pool._is_draining:
            return "refuse"
        if script == "turn" and ids:
            pool.drain()
            return "lose"
        return ""

    def is_later() -> bool:
        seconds, us = shop.store.raw.time()
        return 0 < row.turn_ms < seconds * 1000 + us // 1000

    async with shop.worker(fault=fault) as pool:
        await until(is_later, what="a turn to have been answered a while ago")
        ids.append(shop.enqueue("once"))
        await until(lambda: pool._is_draining, what="the turn that brings it")

    assert shop.state(ids[0]) == "running"
    reclaim(shop)
    assert shop.state(ids[0]) == "queued"
    shop.assert_clean()
