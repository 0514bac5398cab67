"""Listens to messages that sentinels publish, so that a fail-over is followed while it happens.

Guarantees
    One thread for each sentinel, which ends when the watch is closed, at most a second later while it connects, and
    soon after whoever listens is gone. A connection that ends before is made again.

Does not guarantee
    That a fail-over is heard of: a sentinel may be away, or not allow SUBSCRIBE. The search asks them
    every few seconds as well.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakMethod

from redis.connection import Connection
from redis.exceptions import NoPermissionError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from supervisor.store.client import threads

CHANNELS = (
    "+selected-slave",
    "+failover-state-send-slaveof-noone",
    "+failover-state-wait-promotion",
    "+promoted-slave",
    "+switch-master",
)
"""What Sentinel and Valkey call the steps of a fail-over from the choice of the new master on."""

CONNECT_S = 1.0
QUIET_S = 5.0
"""How often a thread looks whether anybody listens. A peer that is gone is noticed by keep-alive."""

PAUSE_S = 1.0


class SentinelWatch:
    """Calls ``heard`` when a sentinel reports a fail-over of ``master``.

    It returns whether it could follow. If not, what the sentinel has reported by then is not acted upon.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        master: str,
        connection: Callable[[str, float, bool], Connection],
        heard: Callable[[], bool],
    ) -> None:
        """Begin to listen to the sentinels at ``addresses``; ``connection`` makes an unconnected one, see Resolver."""
        self._master = master.encode()
        self._connection = connection
        self._listener = WeakMethod(heard)
        self._is_closed = threading.Event()
        self._links: set[Any] = set()
        for address in addresses:
            threads.start(partial(self._listen, address), "sentinel-watch")

    def close(self) -> None:
        """End the threads, without waiting for them."""
        self._is_closed.set()
        for link in tuple(self._links):
            sock = link._sock  # noqa: SLF001 - redis-py shows it in no other way
            # Not the method of TLS: it takes from a thread that reads what it reads by.
            with suppress(OSError):  # closed meanwhile
                if sock is not None:
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _heard(self) -> Callable[[], bool] | None:
        """Return the call for a report; None once nobody listens. A thread must not keep alive who does."""
        return None if self._is_closed.is_set() else self._listener()

    def _listen(self, address: str) -> None:
        while self._heard() is not None:
            link: Any = self._connection(address, CONNECT_S, True)  # noqa: FBT003 - as the search makes them
            self._links.add(link)
            try:
                self._follow(link)
            except NoPermissionError:
                return
            except (RedisError, OSError, ValueError):
                self._is_closed.wait(PAUSE_S)
            finally:
                self._links.discard(link)
                link.disconnect()

    def _follow(self, link: Any) -> None:
        """Listen on one connection until it ends."""
        link.connect_within(CONNECT_S, CONNECT_S)
        link.send_command("SUBSCRIBE", *CHANNELS)
        while self._heard() is not None:
            try:
                kind, _, text = link.read_response(timeout=QUIET_S, disconnect_on_error=False)
            except RedisTimeoutError:
                continue
            if kind == b"message" and self._master in text.split() and (heard := self._heard()) is not None:
                is_followed = heard()
                del heard
                while not is_followed and link.can_read(0):  # of the same fail-over, which was waited for
                    link.read_response(timeout=QUIET_S, disconnect_on_error=False)
