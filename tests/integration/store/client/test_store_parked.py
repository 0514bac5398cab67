"""Listening without waiting: the blocking read lies at the server while other things are done."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import ParkedStore
from tests.kit.servers import Server, wait_until

pytestmark = pytest.mark.server


@pytest.fixture
def store(server: Server) -> Iterator[ParkedStore]:
    """A client of the real server; fakeredis has no socket to select on."""
    if server.real is None:
        pytest.fail("asked for with the real server only")
    made = ParkedStore.connect(server.real.url, settings=RedisSettings(), name="parked", timeout_s=5)
    yield made
    made.close()


@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_an_entry_makes_the_socket_readable(server: Server, store: ParkedStore) -> None:
    """And is collected with its fields; before, there is nothing to collect, and nothing waits."""
    raw, key = server.raw(), server.keys.schedule_changes
    last = raw.xadd(key, {"kind": "old"}).decode()
    parked = store.park(key, last)
    assert parked is not None
    assert store.park(key, last) is parked
    assert store.collect() == []
    raw.xadd(key, {"kind": "upsert", "schedule": "s"})
    assert select.select([parked], [], [], 5)[0]

    ((found, fields),) = store.collect()
    assert fields == {"kind": "upsert", "schedule": "s"}
    assert found > last
    assert store.collect() == []
    raw.close()


@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_calls_go_on_while_a_read_is_parked(server: Server, store: ParkedStore) -> None:
    """Two connections: a fire never waits behind a listener."""
    assert store.park(server.keys.schedule_changes, "0-0") is not None
    store.ping()
    assert store.collect() == []


@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_a_connection_that_is_cut_raises_nothing_and_comes_back(server: Server, store: ParkedStore) -> None:
    """What is listened for is news only; the plan itself is read."""
    raw, key = server.raw(), server.keys.schedule_changes
    assert store.park(key, "0-0") is not None
    raw.client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: store.collect() == [] and store.park(key, "0-0") is None, what="the cut to be noticed")
    wait_until(lambda: store.park(key, "0-0") is not None, what="a new connection")
    raw.xadd(key, {"kind": "upsert"})
    wait_until(lambda: bool(store.collect()), what="the entry")
    raw.close()


def test_a_server_that_is_not_there_is_no_error() -> None:
    """Redis may be away when the role starts."""
    store = ParkedStore.connect("unix:///nowhere/redis.sock", settings=RedisSettings(), name="parked", timeout_s=1)
    assert store.park("{tenure:x}:schedule:changes", "0-0") is None
    assert store.collect() == []
    store.close()
