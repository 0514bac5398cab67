"""Reports of sentinels about a fail-over that does not come to its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.base import _dialler
from supervisor.store.client.sync_client import Store
from supervisor.store.routing import sentinel_watch
from supervisor.store.routing.resolver import HOLD_NS, Resolver
from supervisor.store.routing.sentinel_watch import SentinelWatch
from tests.integration.topology.test_search import Servers, array
from tests.kit.clock import ShiftedClock
from tests.kit.scripted_server import handshake
from tests.kit.waiting import wait_until


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Servers that say what the test wants."""
    servers = Servers()
    yield servers
    for each in servers.all:
        each.close()


def test_a_promotion_that_does_not_come_is_waited_for_once(servers: Servers) -> None:
    """The chosen replica hangs: after three seconds the old master serves, as long as the sentinels may try."""
    clock = ShiftedClock()
    old, chosen = servers.master(), servers.start()
    sentinel = servers.sentinel(old)
    published: list[str] = []

    def publish(address: str) -> None:
        published.append(address)
        if not address:
            clock.advance(HOLD_NS / SECOND_NS)

    url = f"redis+sentinel://{sentinel.where}/m"
    store = Store.connect(url, settings=RedisSettings(), name="search:test", publish=publish, clock=clock)
    store.ping()

    def answer(command: list[str]) -> bytes:
        match command:
            case [_, "GET-MASTER-ADDR-BY-NAME", _]:
                return array("127.0.0.1", str(old.port))
            case [_, "MASTER", _]:
                return array("flags", "master,failover_in_progress")
            case [_, "REPLICAS", _]:
                return b"*1\r\n" + array("ip", "127.0.0.1", "port", str(chosen.port), "flags", "slave,promoted")
        return handshake(command) or b""

    sentinel.answer = answer
    route = store._route
    assert isinstance(route, Resolver)
    assert not route.heard()
    assert published == [old.where, ""]
    store.close()


@pytest.mark.parametrize(("is_followed", "calls"), [(True, 3), (False, 1)])
def test_reports_of_a_fail_over_that_was_waited_for_in_vain_are_passed_over(
    servers: Servers, *, is_followed: bool, calls: int
) -> None:
    """A sentinel reports each step of it at once: each would hold the tree back for three seconds more."""
    step = array("message", "+failover-state-wait-promotion", "slave x 127.0.0.1 2 @ m 127.0.0.1 1")
    said = [3 * step + b"?\r\n"]  # what is no reply ends the connection
    sentinel = servers.start()
    sentinel.answer = lambda command: handshake(command) or (said.pop() if said else b"")
    listener = Listener(is_followed=is_followed)
    url = f"redis+sentinel://{sentinel.where}/m"
    SentinelWatch([sentinel.where], "m", _dialler(url, RedisSettings()), listener.heard)
    wait_until(lambda: sum(each[0] == "SUBSCRIBE" for each in sentinel.commands) > 1, what="another connection")
    assert listener.calls == calls


def test_a_client_that_was_closed_listens_no_more(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that leads for each piece of work has one for each: they end at once, with their connections."""
    monkeypatch.setattr(sentinel_watch, "QUIET_S", 600.0)
    sentinel = servers.sentinel(servers.master())
    url = f"redis+sentinel://{sentinel.where}/m"
    store = Store.connect(url, settings=RedisSettings(), name="search:test", publish=lambda _address: None)
    others = set(threading.enumerate())

    def listening() -> set[threading.Thread]:
        return {each for each in set(threading.enumerate()) - others if each.name == "sentinel-watch"}

    def subscribed() -> int:
        return sum(each[0] == "SUBSCRIBE" for each in sentinel.commands)

    for times in (1, 2):  # it may be used again
        store.ping()
        wait_until(lambda times=times: subscribed() == times, what="it to listen")
        store.close()
        wait_until(lambda: not listening(), what="its threads to end")


class Listener:
    """Counts what a watch reports."""

    def __init__(self, *, is_followed: bool) -> None:
        self.is_followed = is_followed
        self.calls = 0

    def heard(self) -> bool:
        self.calls += 1
        return self.is_followed
