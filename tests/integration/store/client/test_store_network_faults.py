"""What the network can do to a client.

The bound of the caller's wait holds, the error names the server and no credential, and the same client works
again when the network does.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.store.election.leases import LeaseCode
from tests.kit.clients import CALL, Clients, rings, unavailable, works
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.server
BOUND_S = 0.3


def test_a_refused_connection_is_told_at_once(connect: Clients, proxy: Proxy) -> None:
    """Nobody listens: a server that is down, or not yet up."""
    store = connect(proxy.url)
    works(store)
    proxy.refuse()
    for _ in range(2):
        unavailable(store, "lease_view", where=proxy.where)
    proxy.mend()
    works(store)


def test_a_reset_in_the_middle_of_a_call_is_told(connect: Clients, proxy: Proxy) -> None:
    """The call may have had its effect: the caller decides."""
    store = connect(proxy.url)
    works(store)
    proxy.drop_replies()
    proxy.reset_at(2)  # when the request has been passed on
    with pytest.raises(StoreUnavailableError, match=proxy.where):
        store.run(CALL)
    assert proxy.was_reset
    proxy.mend()
    works(store)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_black_hole_costs_the_bound_and_no_more(connect: Clients, proxy: Proxy, *, is_connected: bool) -> None:
    """A host that was lost says nothing, neither on an old connection nor on a new one."""
    store = connect(proxy.url)
    if is_connected:
        works(store)
    proxy.black_hole()
    for _ in range(2):
        unavailable(store, "no answer in time", where=proxy.where, bound_s=BOUND_S)
    proxy.mend()
    works(store)


def test_a_blocking_read_ends_in_a_black_hole(connect: Clients, proxy: Proxy) -> None:
    """It has a margin beyond the block, and no more; the calls beside it are not disturbed."""
    store = connect(proxy.url)
    rings(store, "{tenure:faults}:none")
    proxy.black_hole()
    with pytest.raises(StoreUnavailableError, match="BLPOP: no answer in time"):
        store.ring(["{tenure:faults}:none"], 0.1)
    proxy.mend()
    rings(store, "{tenure:faults}:none")


def test_a_peer_that_lost_the_connection_is_noticed(connect: Clients, proxy: Proxy) -> None:
    """Half open: the server was switched off and on, and the client's end heard nothing of it."""
    store = connect(proxy.url)
    works(store)
    proxy.half_open()
    unavailable(store, "no answer in time", where=proxy.where, bound_s=BOUND_S)
    proxy.mend()
    works(store)


def test_a_late_reply_is_never_taken_for_the_next_one(connect: Clients, proxy: Proxy) -> None:
    """After a time-out the connection is out of step, and must go."""
    store = connect(proxy.url)
    works(store)
    proxy.delay(0.5)
    unavailable(store, "no answer in time", where=proxy.where, bound_s=0.1)
    proxy.mend()
    assert store.command("ECHO", "mine") == b"mine"
    works(store)


def test_a_slow_server_is_only_slow(connect: Clients, proxy: Proxy) -> None:
    """Within the bound nothing is wrong."""
    proxy.delay(0.05)
    works(connect(proxy.url))


def test_a_reply_in_drops_does_not_outlast_the_bound(connect: Clients, proxy: Proxy) -> None:
    """Each drop would begin a time-out of its own, and the caller would wait for ever."""
    store = connect(proxy.url)
    works(store)
    proxy.throttle(size=1, every_s=0.1)
    unavailable(store, "no answer in time", where=proxy.where, bound_s=BOUND_S)
    proxy.mend()
    works(store)


def test_a_handshake_in_drops_does_not_outlast_the_bound(connect: Clients, proxy: Proxy) -> None:
    """It is several replies, and one call."""
    store = connect(proxy.url)
    proxy.throttle(size=1, every_s=0.1)
    unavailable(store, "no answer in time", where=proxy.where, bound_s=BOUND_S)
    proxy.mend()
    works(store)


def test_what_was_sent_is_not_sent_again(connect: Clients, proxy: Proxy) -> None:
    """The reply is lost, not the request."""
    store = connect(proxy.url)
    works(store)
    sent = len(proxy.requests)
    proxy.drop_replies()
    unavailable(store, "no answer in time", where=proxy.where, bound_s=BOUND_S)
    assert len(proxy.requests) == sent + 1
    proxy.mend()
    assert store.run(CALL).code is LeaseCode.VIEW


def test_a_connection_notices_a_silent_peer_by_itself(proxy: Proxy) -> None:
    """Keep-alive for idle connections, and a limit on how long what was sent may stay unacknowledged."""
    clients = Clients("blocking")
    store: Any = clients(proxy.url, timeout_s=0.75)
    works(store)
    link = store._call_link._sock
    asked = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 750}
    seen = {name: link.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in asked}
    assert seen == asked
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    clients.close()
