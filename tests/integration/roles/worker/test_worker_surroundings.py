"""Resources, middleware, ``on_failure`` and progress in pools of both kinds."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.roles.worker.attempt import middleware, progress
from supervisor.roles.worker.process import heartbeat
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.run_records import Progresses
from tenure import Context, Middleware, Resource, Retry, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.signalled import soft_timeout_in
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import wait_until
from tests.kit.waiting import linger

trace: list[str] = []


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_installed", [])
    trace.clear()


class Client(Resource):
    """Counts how often it is opened and closed."""

    async def open(self) -> None:
        trace.append("open")

    async def close(self) -> None:
        trace.append("close")


class Broken(Resource):
    """Cannot be opened by either kind of job."""

    def open(self) -> None:
        raise OSError("no route to host")


class Database(Resource):
    """For plain jobs."""

    def open(self) -> None:
        trace.append("open")


class Timing(Middleware):
    """Around plain jobs."""

    def around(self, context: Context, call: Any) -> Any:
        trace.append("in")
        return call()


class BrokenClient(Resource):
    """The same for coroutine jobs."""

    async def open(self) -> None:
        raise OSError("no route to host")


async def test_one_resource_serves_all_runs_and_is_closed_when_the_worker_leaves(shop: WorkerKit) -> None:
    """Opened by the first of them, after the fork."""
    seen = set()

    @job("uses")
    async def uses(client: Client, number: int) -> int:
        seen.add(id(client))
        return number

    ids = [shop.enqueue("uses", number=number) for number in range(20)]
    async with shop.worker():
        await until(lambda: shop.ended(20), what="all")
        assert trace == ["open"]

    assert trace == ["open", "close"]
    assert len(seen) == 1
    assert {run_id for run_id, outcome, _ in shop.history() if outcome == "ok"} == set(ids)
    shop.assert_clean()


async def test_a_resource_that_is_away_fails_its_own_runs_only(shop: WorkerKit) -> None:
    """By its name, with the retries of the job."""

    @job("needs", retry=Retry(attempts=2, base_s=0.01))
    async def needs(client: BrokenClient) -> None: ...

    @job("free")
    async def free() -> None: ...

    needs_id, free_id = shop.enqueue("needs"), shop.enqueue("free")
    async with shop.worker():
        await until(lambda: shop.ended(3), what="three attempts")

    history = shop.history()
    assert [(outcome, attempt) for run_id, outcome, attempt in history if run_id == needs_id] == [
        ("retry", 1),
        ("dead", 2),
    ]
    assert (free_id, "ok", 1) in history
    error = msgspec.json.decode(shop.store.raw.hget(shop.server.keys.queue("default").err, needs_id))
    assert error["type"] == "ResourceError"
    assert "BrokenClient cannot be opened: OSError: no route to host" in error["message"]
    shop.assert_clean()


def test_a_plain_job_has_the_same(sync_shop: WorkerKit) -> None:
    """Resource, middleware and undoing in a process of their own; what it did is in its results."""
    Timing().install()

    @job("fails", retry=Retry(attempts=1))
    def fails(context: Context, database: Database) -> None:
        context.on_failure(trace.append, "undone")
        raise ValueError("no")

    @job("needs", retry=Retry(attempts=1))
    def needs(thing: Broken) -> None: ...

    @job("tells", without=[Timing])
    def tells(database: Database) -> list[str]:
        return trace

    needs_id = sync_shop.enqueue("needs")
    sync_shop.enqueue("fails")
    tells_id = sync_shop.enqueue("tells")
    found = fork(sync_shop, ended=3).report()

    assert found.results == {tells_id: ["in", "in", "open", "undone"]}
    assert found.errors[needs_id]["type"] == "ResourceError"
    assert (found.sessions, found.fsck) == ([], [])


async def test_a_soft_timeout_undoes_before_the_run_ends(shop: WorkerKit) -> None:
    """With coroutines, although the job was cancelled; then the record says why."""

    async def undo(what: str) -> None:
        await asyncio.sleep(0)
        trace.append(what)

    @job("slow", timeout=60, soft_timeout=0.02, retry=Retry(attempts=1))
    async def slow(context: Context) -> None:
        context.on_failure(undo, "first given")
        context.on_failure(undo, "last given")
        await asyncio.Event().wait()

    run_id = shop.enqueue("slow")
    async with shop.worker():
        await until(lambda: shop.state(run_id) == "dead", what="the end")

    assert trace == ["last given", "first given"]
    error = msgspec.json.decode(shop.store.raw.hget(shop.server.keys.queue("default").err, run_id))
    assert error["type"] == "SoftTimeout"


def test_a_soft_timeout_of_a_plain_job_undoes_too(sync_shop: WorkerKit) -> None:
    """Its exception interrupts the job, not what is undone after it."""
    undone: list[str] = []

    @job("slow", timeout=60, soft_timeout=50, retry=Retry(attempts=1))
    def slow(context: Context) -> None:
        context.on_failure(undone.append, "undone")
        soft_timeout_in(0.3)
        linger()

    @job("tells")
    def tells() -> list[str]:
        return undone

    slow_id = sync_shop.enqueue("slow")
    tells_id = sync_shop.enqueue("tells")
    found = fork(sync_shop, ended=2).report()

    assert found.errors[slow_id]["type"] == "SoftTimeout"
    assert found.results == {tells_id: ["undone"]}


async def test_a_stop_undoes_and_charges_nothing(shop: WorkerKit) -> None:
    """A deploy interrupts; what the next attempt finds is as if this one had not been."""
    started = asyncio.Event()

    @job("long")
    async def long(context: Context) -> None:
        context.on_failure(trace.append, "undone")
        started.set()
        await asyncio.Event().wait()

    run_id = shop.enqueue("long")
    async with shop.worker() as pool:
        await started.wait()
        shop.ask_to_go()
        pool.quit()

    assert trace == ["undone"]
    assert shop.state(run_id) == "queued"
    assert shop.history() == [(run_id, "interrupted", 1)]
    assert shop.store.run(shop.queues.show(run_id)).attempts == 0  # type: ignore[union-attr]


def test_a_stop_of_a_plain_job_undoes_too(sync_shop: WorkerKit, tmp_path: Path) -> None:
    """SIGQUIT leaves it two seconds; what is undone is in a file, because the process is gone."""
    begun, undone = tmp_path / "begun", tmp_path / "undone"

    @job("long")
    def long(context: Context) -> None:
        context.on_failure(undone.touch)
        begun.touch()
        linger()

    run_id = sync_shop.enqueue("long")
    process = fork(sync_shop)
    wait_until(begun.exists, what="the job")
    sync_shop.ask_to_go()
    process.signal(signal.SIGQUIT)
    found = process.report()

    assert undone.exists()
    assert (found.code, found.history) == (0, [(run_id, "interrupted", 1)])


async def test_progress_can_be_read_while_the_run_is_on_and_after_it(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first word at once, the last when the worker leaves at the latest."""
    monkeypatch.setattr(progress, "LAST_S", 20.0)  # in place of 0.5 s, short for a busy machine
    monkeypatch.setattr(heartbeat, "CLOSE_S", 20.0)
    go_on = asyncio.Event()

    @job("works", result_ttl=100)
    async def works(context: Context) -> None:
        context.progress((1, 4), "begun")
        await go_on.wait()
        context.progress((4, 4), "done")

    producer = Producer(RedisSettings(), cluster=shop.server.keys.cluster, open_async_store=shop.server.async_store)
    progresses = Progresses(shop.server.keys)
    run_id = shop.enqueue("works")
    async with shop.worker(producer=producer):
        begun = await until(lambda: shop.store.run(progresses.read(run_id)), what="the first word")
        go_on.set()
        await until(lambda: shop.ended(1), what="the end")
    await producer.close_async()

    last = shop.store.run(progresses.read(run_id))
    assert last is not None
    assert ((begun.done, begun.note), (last.done, last.total, last.note)) == ((1, "begun"), (4, 4, "done"))
    assert shop.store.raw.pttl(shop.server.keys.progress(run_id)) > 90_000


async def test_a_middleware_that_breaks_is_contained(shop: WorkerKit) -> None:
    """It fails runs, and no worker."""

    class Faulty(Middleware):
        async def around_async(self, context: Context, call: Any) -> Any:
            raise SystemExit(7)

    Faulty().install()

    @job("any", retry=Retry(attempts=1))
    async def any_job() -> None: ...

    @job("spared", without=[Faulty])
    async def spared() -> None: ...

    any_id, spared_id = shop.enqueue("any"), shop.enqueue("spared")
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")

    assert sorted(shop.history()) == sorted([(any_id, "dead", 1), (spared_id, "ok", 1)])
    shop.assert_clean()


class Lazy:
    """A proxy whose code asks for what it stands for."""

    @property
    def __class__(self) -> Any:
        raise OSError("the database is away")

    @__class__.setter
    def __class__(self, _: Any) -> None: ...


def test_a_result_that_answers_by_code_of_its_own_ends_no_worker(sync_shop: WorkerKit) -> None:
    """A look at a proxy (of Django, of wrapt) that found nothing behind it raised outside of the job."""

    @job("lazy")
    def lazy() -> Any:
        return Lazy()

    run_id = sync_shop.enqueue("lazy")
    found = fork(sync_shop, ended=1).report()

    assert (found.code, found.history) == (0, [(run_id, "ok", 1)])
    assert "tenure_result_dropped" in found.results[run_id]


async def test_a_task_factory_that_a_job_left_keeps_no_later_run_from_being_executed(shop: WorkerKit) -> None:
    """One of the form that takes no context ended the process, with the runs beside it, at the next begin of a run."""

    @job("instrumented")
    async def instrumented() -> None:
        asyncio.get_running_loop().set_task_factory(lambda loop, work: asyncio.Task(work, loop=loop))

    @job("later")
    async def later(context: Context, client: Client) -> None:
        context.progress("half")

    try:
        async with shop.worker():
            first = shop.enqueue("instrumented")
            await until(lambda: shop.ended(1), what="the end of the one that sets it")
            second = shop.enqueue("later")
            await until(lambda: shop.ended(2), what="the end of the next one")
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    assert shop.history() == [(first, "ok", 1), (second, "ok", 1)]
