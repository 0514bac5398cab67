"""How work travels: in turns that carry much, without anything waiting behind a slow job, and without lost bells."""

from __future__ import annotations

import asyncio
import os
import signal
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.model import Kind
from supervisor.core.supervision.states import Verb
from supervisor.roles.worker.polling.poll import KNOWN_MIN
from supervisor.roles.worker.pools import async_pool
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.settings.sections.models import PoolSettings, Settings, WorkerKind
from tenure import Context, job
from tests.integration.roles.worker.forked import fork, in_async_worker
from tests.integration.roles.worker.signalled import no_alarm
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.clock import ShiftedClock
from tests.kit.servers import wait_until


def setup_pool(shop: WorkerKit, kind: Kind, **options: Any) -> None:
    """Give the pool other settings."""
    pool = PoolSettings(kind=WorkerKind(kind.value), **options)
    shop.settings = Settings(cluster=shop.settings.cluster, workers={"test": pool})


def waiting(shop: WorkerKit) -> list[str]:
    """Return which plain jobs' runs wait in the queue, its head first."""
    ready = shop.server.keys.queue("default").ready(Kind.SYNC, 1)
    with no_alarm():
        return [key.decode() for key in shop.store.raw.lrange(ready, 0, -1)]


# Async -------------------------------------------------------------------------------------------


async def test_a_turn_under_load_carries_many_runs(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one journey for ten runs at twenty slots; later ones only answer the bells that are left over."""
    monkeypatch.setattr(async_pool, "FLUSH_S", 0.5)  # on a slow machine few runs end within its 2 ms
    setup_pool(shop, Kind.ASYNC, concurrency=20)
    calls: list[str] = []

    @job("plain")
    async def plain() -> None: ...

    for _ in range(200):
        shop.enqueue("plain")
    async with shop.worker(fault=lambda script: "" if shop.ended(200) else calls.append(script) or ""):
        await until(lambda: shop.ended(200), what="all")

    assert calls.count("turn") <= 20 + 3
    shop.assert_clean()


async def test_nothing_that_a_job_sets_reaches_the_next(shop: WorkerKit) -> None:
    """A run is started in the middle of another one's end."""
    setup_pool(shop, Kind.ASYNC, concurrency=2)
    mark: ContextVar[str] = ContextVar("mark", default="")
    seen: list[str] = []

    @job("marks")
    async def marks(context: Context) -> None:
        seen.append(mark.get())
        mark.set(context.run_id)

    for _ in range(12):
        shop.enqueue("marks")
    async with shop.worker():
        await until(lambda: shop.ended(12), what="all")

    assert seen == [""] * 12


async def test_a_bell_that_a_full_worker_hears_is_rung_for_the_others(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when it began to listen. The token would be lost, and the run wait for the next look."""
    monkeypatch.setattr(async_pool, "RING_S", 600.0)
    setup_pool(shop, Kind.ASYNC, concurrency=1)
    finish, started = asyncio.Event(), asyncio.Event()

    @job("long")
    async def long() -> None:
        started.set()
        await finish.wait()

    bell = shop.server.keys.queue("default").bell(Kind.ASYNC)
    async with shop.worker() as pool:
        await until(pool._may_listen.is_set, what="the worker to listen")
        shop.enqueue("long", delay_ms=30)  # comes by its time, while the worker listens
        await until(started.is_set, what="the run")
        shop.store.raw.delete(bell)
        shop.enqueue("long")
        await until(lambda: not pool._may_listen.is_set(), what="the bell to be heard")
        await until(lambda: shop.store.raw.llen(bell) == 1, what="the bell to be rung again")
        finish.set()
        await until(lambda: shop.ended(2), what="both")
    shop.assert_clean()


async def test_a_worker_that_was_stopped_beyond_its_lease_starts_nothing_it_had_fetched(shop: WorkerKit) -> None:
    """Others may have the runs by now. It gives them back in a turn, which also tells it whether its session lives."""
    called: list[str] = []

    @job("plain")
    async def plain(context: Context) -> None:
        called.append(context.run_id)

    run_id = shop.enqueue("plain")
    clock = ShiftedClock()
    runtime = WorkerRuntime(replace(shop.child(), clock=clock), shop.registry, uniform=lambda: 0.999)
    pool = AsyncPool(Stopping(runtime, clock), shop.server.async_store())  # type: ignore[arg-type]
    task = asyncio.create_task(pool.run())
    await until(lambda: shop.ended(1), what="the run")
    pool.drain()
    assert await task == 0

    assert called == [run_id]
    assert pool._runtime.given_back == 1  # type: ignore[attr-defined]
    shop.assert_clean()


class Stopping:
    """A runtime whose machine stops between the first reply that brings a run and its start."""

    def __init__(self, runtime: Any, clock: ShiftedClock) -> None:
        self._runtime = runtime
        self._clock = clock
        self.given_back = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def settle(self, reply: Any) -> Any:
        runs = self._runtime.settle(reply)
        if runs and not self._clock.ahead_ns:
            self._clock.ahead_ns = round(self._runtime.limits.session_lease_s * 1e9)
            self.given_back = len(runs)
        return runs


async def test_a_worker_asks_to_be_replaced_and_goes_on(shop: WorkerKit) -> None:
    """Until the parent tells it to leave, which it does when the successor is ready."""
    setup_pool(shop, Kind.ASYNC, recycle_runs=3)

    @job("plain")
    async def plain() -> None: ...

    for _ in range(5):
        shop.enqueue("plain")
    row = shop.board.rows[0]
    async with shop.worker():
        await until(lambda: row.request_number, what="the request")
        await until(lambda: shop.ended(5), what="all")

    assert (row.request_verb, row.request_slot, row.request_generation) == (Verb.RECYCLE, 0, 1)
    assert row.rss_kib > 0


# Sync --------------------------------------------------------------------------------------------

FAST = 12  # enough for the process to trust a job


def test_a_run_of_a_job_that_is_not_known_to_be_fast_starts_with_nobody_behind_it(sync_shop: WorkerKit) -> None:
    """What waits is given back before it starts, and what ended before it is acknowledged."""

    @job("fast")
    def fast() -> None: ...

    @job("new")
    def new(number: int) -> None:
        assert (len(sync_shop.history()), len(waiting(sync_shop))) == (FAST + number, KNOWN_MIN - 1 - number)

    for _ in range(FAST):
        sync_shop.enqueue("fast")
    for number in range(KNOWN_MIN):
        sync_shop.enqueue("new", number=number)
    found = fork(sync_shop, ended=FAST + KNOWN_MIN).report()

    assert {outcome for _, outcome, _ in found.history} == {"ok"}, found.errors
    assert found.charges == {}
    assert found.fsck == []


def test_what_waits_behind_a_fast_job_that_turns_slow_goes_back_while_it_runs(sync_shop: WorkerKit) -> None:
    """By a timer: nobody could know it before. What ended before it is acknowledged in the same turn."""

    @job("moody")
    def moody(number: int) -> None:
        if number == FAST + 1:
            # On a busy machine it may have been fetched as the last: those before it are acknowledged all the same.
            wait_until(lambda: (len(waiting(sync_shop)), acknowledged()) == (10, FAST + 1), what="relief", bound_s=20)

    def acknowledged() -> int:
        with no_alarm():
            return len(sync_shop.history())

    ids = [sync_shop.enqueue("moody", number=number) for number in range(FAST + 12)]
    found = fork(sync_shop, ended=FAST + 12).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids], found.errors
    assert found.charges == {}
    assert found.fsck == []


@pytest.mark.share(2)
@pytest.mark.parametrize("fault", ["lose", "refuse"])
def test_a_relief_whose_answer_never_came_is_repeated_and_executes_nothing_twice(
    sync_shop: WorkerKit, fault: str
) -> None:
    """It is an open turn like any other: asked again as it was, when the job has ended."""
    calls: list[int] = []
    is_moody = failed = False

    @job("moody")
    def moody(number: int) -> int:
        nonlocal is_moody
        calls.append(number)
        if number == FAST + 1:
            is_moody = True
            # On a machine that is busy the job may no longer count as fast: then nothing waits behind it.
            wait_until(lambda: failed or len(waiting(sync_shop)) == 10, what="the relief", bound_s=20)
        return len(calls)

    def lost_once(script: str) -> str:
        nonlocal failed, is_moody
        if script == "turn" and is_moody and not failed:
            failed = True
            return fault
        return ""

    ids = [sync_shop.enqueue("moody", number=number) for number in range(FAST + 12)]
    found = fork(sync_shop, ended=FAST + 12, fault=lost_once).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids]
    assert sorted(found.results.values()) == list(range(1, FAST + 13))
    assert found.charges == {}
    assert found.fsck == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_what_was_fetched_ahead_goes_back_when_the_process_leaves(sync_shop: WorkerKit, number: signal.Signals) -> None:
    """To its place at the head, in order, with nothing charged."""

    @job("last")
    def last(at: int) -> None:
        if at == FAST:
            os.kill(os.getpid(), number)
            sum(range(1000))

    ids = [sync_shop.enqueue("last", at=at) for at in range(FAST + 8)]
    sync_shop.ask_to_go()
    found = fork(sync_shop).report()

    ended = FAST + (number is signal.SIGTERM)
    assert [run_id for run_id, outcome, _ in found.history if outcome == "ok"] == ids[:ended]
    left = set(ids[ended:])
    assert {run_id for run_id, state in found.states.items() if state == "queued"} == left
    assert found.fsck == []


def test_a_process_that_a_job_forked_does_not_go_on_as_a_second_worker(sync_shop: WorkerKit) -> None:
    """It has the worker's connection and runs: whatever it did would be done by both."""

    @job("forks")
    def forks() -> int:
        pid = os.fork()
        if pid == 0:
            return 0  # back into the worker's own code, in the wrong process
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    ids = [sync_shop.enqueue("forks") for _ in range(2)]
    found = fork(sync_shop, ended=2).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids]
    assert found.results == dict.fromkeys(ids, 1)


def test_a_copy_of_an_async_worker_ends_where_its_job_does(shop: WorkerKit) -> None:
    """Before it says anything on a connection that two processes hold now."""

    @job("forks")
    async def forks() -> int:
        pid = os.fork()
        if pid == 0:
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - it ends at once

    ids = [shop.enqueue("forks") for _ in range(2)]
    found = in_async_worker(shop, lambda _logs: None, runs=2)

    assert sorted(found.history) == sorted((run_id, "ok", 1) for run_id in ids)
    assert found.results == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_copy_that_fails_undoes_nothing_of_the_run(
    shop: WorkerKit, sync_shop: WorkerKit, tmp_path: Path, kind: Kind
) -> None:
    """It called ``on_failure`` and ``unreserve`` for a run that went on, and ended ok."""
    undone = tmp_path / "undone"

    def plain(context: Context) -> int:
        context.on_failure(undone.touch)
        if (pid := os.fork()) == 0:
            raise ValueError("in the copy")
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    async def coroutine(context: Context) -> int:
        return plain(context)

    job("forks")(plain if kind is Kind.SYNC else coroutine)
    run_id = (sync_shop if kind is Kind.SYNC else shop).enqueue("forks")
    found = (
        fork(sync_shop, ended=1).report() if kind is Kind.SYNC else in_async_worker(shop, lambda _logs: None, runs=1)
    )

    assert (found.history, found.results) == ([(run_id, "ok", 1)], {run_id: 1})
    assert not undone.exists()


def test_a_job_that_prints_what_is_no_text_harms_nobody(sync_shop: WorkerKit) -> None:
    """Its output is its own."""

    @job("binary")
    def binary() -> None:
        os.write(1, b"\xff\x00\xfe\n")
        raise ValueError("\udcff\x00")

    @job("good")
    def good() -> None: ...

    bad_id, good_id = sync_shop.enqueue("binary"), sync_shop.enqueue("good")
    found = fork(sync_shop, ended=2).report()

    assert [outcome for _, outcome, _ in found.history] == ["retry", "ok"]
    assert found.errors[bad_id]["type"] == "ValueError"
    assert found.states[good_id] == "finished"
