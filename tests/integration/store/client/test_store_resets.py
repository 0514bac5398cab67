"""A connection that is reset (RST), at each moment of its life: the call is told, the next one works, nothing else ends.

Firewalls and load balancers reset flows that were idle, a restarted proxy and a rebooted host those in use.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.errors import StoreUnavailableError
from tests.kit.clients import CALL, Clients, rings, works
from tests.kit.proxy import Proxy
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.server
BELL, SILENT_BELL = ["{tenure:faults}:rung"], "{tenure:faults}:none"
OPERATIONS: tuple[Callable[[Any], Any], ...] = (
    lambda store: store.run(CALL),
    lambda store: store.ring(BELL, 1),
    lambda store: store.run(CALL),
    lambda store: store.ring(BELL, 1),
    lambda store: store.command("ECHO", "x" * 100_000),
)
"""Both connections are opened, used, idle, and used again."""
MOMENTS_MAX = 80


@pytest.mark.share(3)
def test_a_reset_at_any_moment_costs_one_call_and_nothing_else(connect: Clients, proxy: Proxy) -> None:
    """Connecting, the handshake, a request, its reply and the time between calls: no error but the one for a retry."""
    rings = connect(proxy.url)
    rings.command("DEL", *BELL)
    rings.command("RPUSH", *BELL, *range(3 * MOMENTS_MAX))  # so that no blocking read has to wait
    for moment in range(1, MOMENTS_MAX):
        store = connect(proxy.url)
        proxy.reset_at(moment)
        failed = sum(_is_unavailable(store, operation) for operation in OPERATIONS)
        if not proxy.was_reset:
            break
        failed += _is_unavailable(store, OPERATIONS[0])  # the reset may have come after the last reply
        assert failed <= 2, f"moment {moment}: a reset meets one call of each connection at most"
        works(store)
        store.close()
    else:
        pytest.fail("the walk has no end")
    assert moment > 20, "the walk met few moments"


def test_an_idle_connection_that_was_reset_is_replaced_without_an_error(connect: Clients, proxy: Proxy) -> None:
    """A load balancer that forgets idle flows must not cost a call, nor a worker its process."""
    store = connect(proxy.url)
    works(store)
    rings(store, SILENT_BELL)
    proxy.reset()
    wait_until(lambda: _has_noticed(connect, store), what="the reset to arrive")
    works(store)
    rings(store, SILENT_BELL)


def test_closing_a_client_whose_connections_were_reset_raises_nothing(connect: Clients, proxy: Proxy) -> None:
    """A role that stops beside a broken network still stops in order."""
    store = connect(proxy.url)
    works(store)
    proxy.reset()
    store.close()


def _is_unavailable(store: Any, operation: Callable[[Any], Any]) -> bool:
    try:
        operation(store)
    except StoreUnavailableError:
        return True
    return False


def _has_noticed(connect: Clients, store: Any) -> bool:
    """Whether the kernel, or the loop, has told of the end; without the code that is shown here."""
    if connect.kind == "blocking":
        return all(_hung_up(link._sock) for link in (store._call_link, store._block_link))
    connect.let_the_loop_read()
    return all(link._reader.exception() for link in (store.store._call_link, store.store._block_link))


def _hung_up(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return any(flags & select.POLLERR for _, flags in poller.poll(0))
