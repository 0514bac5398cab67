"""A program that has a cache in Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection as producing
from supervisor.store.producer.producer import Producer
from tests.kit.servers import Server


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    """What a worker gives to its jobs: its own way to Redis."""
    made = Producer(
        RedisSettings(), cluster=server.keys.cluster, open_store=server.store, open_async_store=server.async_store
    )
    producing.use(made)
    yield made
    producing.use(None)
    made.close()
