"""Turns that a slow link does not carry within ``redis.command_timeout``: each was asked again as it was, for ever."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore, Store
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.proxy import Proxy
from tests.kit.servers import REAL, RealServer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.parametrize("server", [REAL], indirect=True)
BOUND = RedisSettings(command_timeout_s=0.25)
TEXT = "x" * 60_000


@pytest.fixture
def proxy(real_server: RealServer) -> Iterator[Proxy]:
    """A network in front of the server that passes some 500 KB of replies a second."""
    proxy = Proxy(real_server.socket)
    proxy.throttle(size=4096, every_s=0.008)
    yield proxy
    proxy.close()


def connection(proxy: Proxy) -> dict[str, Any]:
    """Return the arguments of a worker's client; each turn has the bound, and what ends a session more than that."""
    return {"url": proxy.url, "settings": BOUND, "name": "test:worker", "timeout_s": 20.0}


async def test_a_turn_that_brings_more_than_the_bound_lets_through_is_given_longer(
    shop: WorkerKit, proxy: Proxy
) -> None:
    """The reply to the same turn is the same: it could not become shorter."""
    seen: list[int] = []

    @job("read")
    async def read(number: int, text: str) -> None:
        seen.append(number)

    shop.settings = shop.settings.model_copy(update={"redis": BOUND})
    for number in range(5):
        shop.enqueue("read", number=number, text=TEXT)
    pool = AsyncPool(shop.runtime(), AsyncStore.connect(**connection(proxy)))
    task = asyncio.create_task(pool.run())
    await until(lambda: shop.ended(5), what="the runs to end")
    pool.drain()
    assert await task == 0
    assert sorted(seen) == [0, 1, 2, 3, 4]
    shop.assert_clean()


def test_a_sync_worker_gets_a_run_that_takes_longer_than_the_bound(sync_shop: WorkerKit, proxy: Proxy) -> None:
    """It takes one at a time, and is silent to its parent while it asks."""
    proxy.throttle(size=1024, every_s=0.01)

    @job("read")
    def read(text: str) -> int:
        return len(text)

    sync_shop.settings = sync_shop.settings.model_copy(update={"redis": BOUND})
    run_id = sync_shop.enqueue("read", text=TEXT)
    worker = fork(sync_shop, main=lambda: SyncPool(sync_shop.runtime(), Store.connect(**connection(proxy))).run())
    wait_until(lambda: sync_shop.ended(1), what="the run to end")
    worker.signal(signal.SIGTERM)
    assert worker.report().history == [(run_id, "ok", 1)]
