"""Fixtures of tests of producers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.core.jobs.registry import Registry
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer
from tenure import job
from tests.integration.store.producer.shop import Report, Shop
from tests.kit.servers import Server


@pytest.fixture
def shop(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A program on the test's server."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)

    @job("report", queue="default")
    async def report(month: int) -> Report: ...

    producer = Producer(
        RedisSettings(), cluster=server.keys.cluster, open_store=server.store, open_async_store=server.async_store
    )
    yield Shop(server, producer)
    producer.close()
