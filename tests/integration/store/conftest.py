"""A world for each test of the store; clients of each kind, and a network between them and a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.builders import StoreCalls
from tests.kit.clients import Clients
from tests.kit.proxy import Proxy
from tests.kit.servers import RealServer, Server


@pytest.fixture
def world(server: Server) -> Iterator[StoreCalls]:
    """All calls, on an empty server. No script may have left a global: that would poison fakeredis' interpreter."""
    world = StoreCalls(server)
    yield world
    assert world.raw.eval("return redis.call('PING')['ok']", 0) == b"PONG"
    world.raw.close()


@pytest.fixture(params=["blocking", "asynchronous", "uvloop"])
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Clients of one kind, then of the others."""
    clients = Clients(request.param)
    yield clients
    clients.close()


@pytest.fixture
def proxy(real_server: RealServer) -> Iterator[Proxy]:
    """A network in front of the real server that can be broken."""
    proxy = Proxy(real_server.socket)
    yield proxy
    proxy.close()
