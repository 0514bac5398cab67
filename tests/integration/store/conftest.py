"""A world for each test of the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.servers import Server
from tests.integration.store.making import World


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    """All calls, on an empty server. No script may have left a global: that would poison fakeredis' interpreter."""
    world = World(server)
    yield world
    assert world.raw.eval("return redis.call('PING')['ok']", 0) == b"PONG"
    world.raw.close()
