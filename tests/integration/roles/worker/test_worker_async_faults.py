"""The async pool when Redis does not answer, when replies are lost, and when it is taken for dead."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from supervisor.core.model import Kind
from supervisor.core.supervision.states import ChildState
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.polling import poll
from supervisor.roles.worker.polling.poll import SessionLostError
from supervisor.roles.worker.pools import async_pool
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.store.queues.control import QueueControl
from tenure import Context, Retry, job
from tests.integration.roles.worker.worker_fixture import Faulty, WorkerKit, until


async def test_lost_replies_execute_nothing_twice(shop: WorkerKit) -> None:
    """Each turn's reply is lost once; Redis answers the repetition from memory."""
    called: Counter[str] = Counter()
    seen: Counter[str] = Counter()

    @job("counted", retry=Retry(attempts=3, base_s=0))
    async def counted(context: Context) -> None:
        called[f"{context.run_id} {context.attempt}"] += 1
        if context.attempt == 1:
            raise ValueError("once")

    def lose_every_other(script: str) -> str:
        seen[script] += 1
        return "lose" if seen[script] % 2 else ""

    ids = [shop.enqueue("counted") for _ in range(20)]
    async with shop.worker(fault=lose_every_other):
        await until(lambda: shop.ended(40), what="all attempts")

    assert seen["turn"] >= 4
    assert set(called.values()) == {1}
    assert len(called) == 40
    assert Counter(shop.history()) == Counter(
        [(run_id, "retry", 1) for run_id in ids] + [(run_id, "ok", 2) for run_id in ids]
    )
    shop.assert_clean()


async def test_an_outage_stops_nothing_that_runs(shop: WorkerKit, logs: list[Any]) -> None:
    """The run ends while Redis is away, and is acknowledged when it is back; the outage is told once."""
    started, finish, is_down = asyncio.Event(), asyncio.Event(), False
    refused = 0

    @job("long")
    async def long() -> None:
        started.set()
        await finish.wait()

    def outage(_script: str) -> str:
        nonlocal refused
        refused += is_down
        return "refuse" if is_down else ""

    run_id = shop.enqueue("long")
    async with shop.worker(fault=outage):
        await until(started.is_set, what="the start")
        is_down = True
        finish.set()
        await until(lambda: shop.board.rows[0].done == 1 and refused >= 3, what="the end of the job")
        assert shop.history() == []
        is_down = False
        await until(lambda: shop.ended(1), what="the acknowledgement")

    assert shop.history() == [(run_id, "ok", 1)]
    events = [entry["event"] for entry in logs if entry["event"].startswith("redis_")]
    assert events == ["redis_lost", "redis_back"]
    shop.assert_clean()


async def test_a_worker_is_ready_before_redis_answers(shop: WorkerKit) -> None:
    """A dead Redis is no reason to kill workers that could not start any faster."""
    is_down = True

    @job("plain")
    async def plain() -> None: ...

    shop.enqueue("plain")
    async with shop.worker(fault=lambda _script: "refuse" if is_down else ""):
        await until(lambda: shop.board.rows[0].child_state == ChildState.READY, what="ready")
        assert shop.board.rows[0].redis_ok_ns == 0
        is_down = False
        await until(lambda: shop.ended(1), what="the run")

    shop.assert_clean()


async def test_a_drain_during_an_outage_does_not_wait_for_redis_when_nothing_is_owed(shop: WorkerKit) -> None:
    """An idle worker leaves; a reply that never came leaves its session to the agent."""
    is_down = False
    async with shop.worker(fault=lambda _script: "refuse" if is_down else ""):
        await until(lambda: shop.board.rows[0].redis_ok_ns, what="Redis")
        is_down = True

    assert list(shop.board.inflight[0].entries()) == []


async def test_a_condemned_worker_asks_to_be_restarted(shop: WorkerKit) -> None:
    """Its runs belong to others now; what it still does counts for nothing."""
    started = asyncio.Event()

    @job("long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    shop.enqueue("long")
    pool = AsyncPool(shop.runtime(), shop.server.async_store())
    task = asyncio.create_task(pool.run())
    await until(started.is_set, what="the start")
    (session,) = shop.store.run(shop.sessions.list())
    assert shop.store.run(shop.sessions.condemn(session, None))
    shop.enqueue("long")

    with pytest.raises(SessionLostError):
        async with asyncio.timeout(30):
            await task
    await pool._runs.cut_off(5)


async def test_a_worker_whose_turns_redis_takes_for_old_asks_to_be_restarted(shop: WorkerKit) -> None:
    """Somebody else wrote a later number there: each turn from now on is refused, with all that it acknowledges."""

    @job("plain")
    async def plain() -> None: ...

    shop.enqueue("plain")
    task = asyncio.create_task(AsyncPool(shop.runtime(), shop.server.async_store()).run())
    await until(lambda: shop.store.raw.hlen(shop.server.keys.turns), what="the first turn")
    shop.store.raw.hset(shop.server.keys.turns, "r.000001/worker-test-0/1", "999999999999999")
    shop.enqueue("plain")

    with pytest.raises(SessionLostError):
        async with asyncio.timeout(30):
            await task


async def test_an_agent_that_buried_the_session_first_is_obeyed(shop: WorkerKit) -> None:
    """The process starts late, and is known to be dead already."""
    pool = AsyncPool(shop.runtime(), shop.server.async_store())
    shop.store.run(shop.sessions.condemn("r.000001/worker-test-0/1", None))

    with pytest.raises(SessionLostError):
        await pool.run()


async def test_a_bell_wakes_an_idle_worker(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look every two seconds is put off, so that only the bell can have done it."""
    monkeypatch.setattr(async_pool, "RING_S", 600.0)

    @job("plain")
    async def plain() -> None: ...

    async with shop.worker() as pool:
        await until(pool._may_listen.is_set, what="the worker to listen")
        for number in range(5):
            shop.enqueue("plain")
            await until(lambda ended=number + 1: shop.ended(ended), what="the run")

    shop.assert_clean()


async def test_a_delayed_run_starts_when_it_is_due(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next look: the turn says when the next one comes due."""
    monkeypatch.setattr(async_pool, "RING_S", 600.0)

    @job("plain")
    async def plain() -> None: ...

    async with shop.worker() as pool:
        await until(pool._may_listen.is_set, what="the worker to listen")
        shop.enqueue("plain", delay_ms=150)
        shop.enqueue("plain", delay_ms=80)
        await until(lambda: shop.ended(2), what="the runs")

    shop.assert_clean()


async def test_two_workers_share_the_work_and_each_run_is_done_once(shop: WorkerKit) -> None:
    """Two sessions, one queue."""
    called: Counter[str] = Counter()

    @job("shared")
    async def shared(context: Context) -> None:
        called[context.run_id] += 1
        await asyncio.sleep(0.002)

    ids = [shop.enqueue("shared") for _ in range(60)]
    async with shop.worker(0), shop.worker(1):
        await until(lambda: shop.ended(60), what="all")

    assert called == Counter(ids)
    assert shop.board.rows[0].done > 0
    assert shop.board.rows[1].done > 0
    shop.assert_clean()
    shop.assert_clean(1)


async def test_a_job_that_blocks_the_loop_is_named(shop: WorkerKit, logs: list[Any]) -> None:
    """Else nobody finds out which of fifty it was."""

    @job("blocking")
    async def blocking() -> None:
        await asyncio.sleep(0)
        threading.Event().wait(0.6)
        await asyncio.sleep(0.3)

    shop.enqueue("blocking")
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")

    warnings = [entry for entry in logs if entry["event"] == "loop_lag"]
    assert any(entry["jobs"] == ["blocking"] and entry["lag_s"] > 0.1 for entry in warnings)


async def test_a_suspect_gets_its_turn_although_the_worker_is_never_idle(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load no process is ever idle by itself; so each makes room now and then."""
    monkeypatch.setattr(poll, "LOOK_EVERY_S", 0.01)
    done: list[str] = []
    is_busy = True

    @job("steady")
    async def steady(context: Context) -> None:
        if is_busy:
            shop.enqueue("steady")
        await asyncio.sleep(0.01)

    @job("accused")
    async def accused(context: Context) -> None:
        done.append(context.run_id)

    run_id = shop.enqueue("accused")
    shop.suspect(run_id, kind=Kind.ASYNC)
    for _ in range(10):
        shop.enqueue("steady")
    # The first turn would find an idle worker; let it not ask for suspects.
    asked = 0
    runtime = shop.runtime()
    original = runtime.polls._turn

    def never_first(**arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return original(**arguments | {"want_suspect": arguments["want_suspect"] and asked > 1})

    monkeypatch.setattr(runtime.polls, "_turn", never_first)
    pool = AsyncPool(runtime, shop.server.async_store())
    task = asyncio.create_task(pool.run())
    await until(lambda: done, what="the suspect")
    is_busy = False
    pool.drain()
    assert await task == 0

    assert done == [run_id]


async def test_a_worker_that_made_room_in_vain_goes_on(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long job keeps it from being idle; its other slots must not stay empty for that."""
    monkeypatch.setattr(poll, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(poll, "QUIET_S", 0.1)
    monkeypatch.setattr(async_pool, "RING_S", 600.0)
    finish, started = asyncio.Event(), asyncio.Event()

    @job("long")
    async def long() -> None:
        started.set()
        await finish.wait()

    @job("plain")
    async def plain() -> None: ...

    shop.enqueue("long")
    async with shop.worker():
        await until(started.is_set, what="the long job")
        accused = shop.enqueue("plain")
        shop.suspect(accused, kind=Kind.ASYNC)
        for number in range(3):
            shop.enqueue("plain")
            await until(lambda ended=number + 1: shop.ended(ended), what="the run")
        assert accused not in [run_id for run_id, _, _ in shop.history()]
        finish.set()
        await until(lambda: shop.ended(5), what="the suspect at last")

    shop.assert_clean()


async def test_no_room_is_made_for_a_suspect_of_a_paused_queue(shop: WorkerKit) -> None:
    """Nobody may take it, and as long as the pause lasted other queues got next to nothing beside long jobs."""

    @job("accused")
    async def accused() -> None: ...

    shop.suspect(shop.enqueue("accused"), kind=Kind.ASYNC)
    control = QueueControl(shop.server.keys)
    shop.store.run(control.pause("default"))
    runtime, store = shop.runtime(), shop.server.async_store()
    runtime.presence._deadlines.append(runtime.clock.elapsed_ns() + 60 * SECOND_NS)  # of what it executes
    pool = AsyncPool(runtime, store)
    pool._loop = asyncio.get_running_loop()
    await pool._look_for_suspects()
    assert not runtime.suspects.is_quiet

    shop.store.run(control.resume("default"))
    await pool._look_for_suspects()
    await store.close()
    assert runtime.suspects.is_quiet


async def test_a_mistake_of_ours_ends_the_process_and_not_the_silence(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that can neither be acknowledged nor forgotten would hold its slot for ever."""

    @job("plain")
    async def plain() -> None: ...

    shop.enqueue("plain")
    runtime = shop.runtime()
    monkeypatch.setattr(runtime.executor, "succeed", lambda *_: 1 / 0)
    pool = AsyncPool(runtime, Faulty(shop.server.async_store(), lambda _script: ""))

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(30):
            await pool.run()
