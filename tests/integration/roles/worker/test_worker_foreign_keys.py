"""A key of another type in one queue of a worker: its runs of the other queues go on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from supervisor.core.model import Envelope, Kind
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.polling import poll
from supervisor.roles.worker.pools import async_pool, sync_pool
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.settings.sections.models import PoolSettings, Settings, WorkerKind
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import FaultySync, WorkerKit, until


def serve_both(shop: WorkerKit) -> None:
    """Let workers take runs from a queue that is about to break, too."""
    both = PoolSettings(kind=WorkerKind.ASYNC, concurrency=5, queues=("broken", "default"))
    shop.settings = Settings(cluster=shop.server.keys.cluster, workers={"test": both})


@pytest.mark.parametrize("is_mended", [True, False])
async def test_an_end_that_a_foreign_key_refuses_holds_up_no_run_of_another_queue(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch, *, is_mended: bool
) -> None:
    """It is told once, and sent again; a worker that leaves first leaves it to its agent, with the session."""
    monkeypatch.setattr(poll, "SEND_AGAIN_NS", 50_000_000)
    serve_both(shop)
    go = asyncio.Event()

    @job("first")
    async def first() -> None:
        await go.wait()

    @job("other")
    async def other() -> None:
        """End at once."""

    run_id = shop.put(Envelope(id="first", template=replace(shop.registry.get("first").template({}), queue="broken")))
    key = shop.server.keys.queue("broken").err
    with shop.server.raw() as raw, capture_logs() as logs:
        async with shop.worker():
            await until(lambda: shop.board.rows[0].busy, what="the first run")
            raw.set(key, "another program's")
            go.set()
            await until(lambda: [each for each in logs if each["event"] == "queue_refused"], what="a word about it")
            for count in range(1, 11):
                shop.enqueue("other")
                await until(lambda: shop.ended(count), what="a run of the other queue")  # noqa: B023 - awaited here
            if is_mended:
                raw.delete(key)
                shop.enqueue("other")
                await until(lambda: shop.state(run_id) == "finished", what="the end of the first run")
        told = [each["queue"] for each in logs if each["event"] == "queue_refused"]

    assert told == ["broken"]
    assert bool(shop.store.run(shop.sessions.list())) is not is_mended
    assert not [each for each in logs if each["event"] == "redis_lost"]


async def test_a_bell_that_is_a_foreign_key_silences_no_other(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are waited at in one command, so that each worker turned twenty times a second, and logged each time."""
    monkeypatch.setattr(async_pool, "RING_S", 600.0)  # so that nothing but a bell makes it look
    serve_both(shop)
    waits: list[str] = []

    @job("other")
    async def other() -> None:
        """End at once."""

    def note(script: str) -> str:
        waits.append(script)
        return ""

    with shop.server.raw() as raw, capture_logs() as logs:
        raw.set(shop.server.keys.queue("broken").bell(Kind.ASYNC), "another program's")
        async with shop.worker(fault=note):
            await until(lambda: [each for each in logs if each["event"] == "queue_refused"], what="a word about it")
            for count in (1, 2):
                shop.enqueue("other")
                await until(lambda: shop.ended(count), what="a run of the other queue")  # noqa: B023 - awaited here

    assert [each["queue"] for each in logs if each["event"] == "queue_refused"] == ["broken"]
    assert not [each for each in logs if each["event"] == "redis_lost"]
    assert waits.count("ring") < 10


def test_a_bell_that_is_a_foreign_key_silences_no_other_for_a_sync_worker(
    sync_shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process waits at all of them in one command, too."""
    monkeypatch.setattr(sync_pool, "RING_S", 600.0)  # so that nothing but a bell makes it look
    both = PoolSettings(kind=WorkerKind.SYNC, queues=("broken", "default"))
    sync_shop.settings = Settings(cluster=sync_shop.server.keys.cluster, workers={"test": both})
    waits: list[str] = []

    @job("other")
    def other() -> None:
        """End at once."""

    def note(script: str) -> str:
        waits.append(script)
        if waits.count("ring") == 2 and script == "ring":
            threading.Timer(0.2, sync_shop.enqueue, ("other",)).start()
        elif script == "ring" and sync_shop.ended(1):
            os.kill(os.getpid(), signal.SIGTERM)
        return ""

    def main() -> int:
        sync_shop.store.raw.set(sync_shop.server.keys.queue("broken").bell(Kind.SYNC), "another program's")
        store = FaultySync(sync_shop.server.store(), note)
        with capture_logs() as logs:
            code = SyncPool(sync_shop.runtime(), store).run()  # type: ignore[arg-type]
        assert [each["queue"] for each in logs if each["event"] == "queue_refused"] == ["broken"]
        assert not [each for each in logs if each["event"] == "redis_lost"]
        assert waits.count("ring") < 10
        return code

    found = fork(sync_shop, main=main).report()

    assert (found.code, [outcome for _, outcome, _ in found.history]) == (0, ["ok"])


async def test_a_foreign_key_of_one_queue_hides_no_suspect_of_another(shop: WorkerKit) -> None:
    """A process that is busy all the time makes room for it."""
    serve_both(shop)
    with shop.server.raw() as raw:
        raw.set(shop.server.keys.queue("broken").stat, "another program's")

    @job("accused")
    async def accused() -> None:
        """Wait for its turn."""

    shop.suspect(shop.enqueue("accused"), kind=Kind.ASYNC)
    runtime, store = shop.runtime(), shop.server.async_store()
    runtime.presence._deadlines.append(runtime.clock.elapsed_ns() + 60 * SECOND_NS)  # of what it executes
    pool = AsyncPool(runtime, store)
    pool._loop = asyncio.get_running_loop()
    await pool._look_for_suspects()
    await store.close()

    assert runtime.suspects.is_quiet
