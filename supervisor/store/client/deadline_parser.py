"""A parser whose bound is for a whole reply: redis-py's is for each piece of one.

A server behind a slow link, or a hostile one, could otherwise hold a caller for ever by
sending a byte before each time-out.

A client that follows the agent also gives up, in a handshake or a call, as soon as the agent
has found another master: one on a host that was lost never answers.
"""

from __future__ import annotations

import select
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.utils import SENTINEL

from supervisor.clock import SystemClock
from supervisor.core.units import SECOND_NS
from supervisor.store.routing.route import LOOK_S, MOVED_ON, Route

_CLOCK = SystemClock()


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]
    """hiredis, with one deadline for each reply."""

    route: Route | None = None
    _until_ns: int | None = None
    _limit_ns: int | None = None
    _generation = 0

    def bound_by(self, left_s: float | None) -> None:
        """Let all replies from now on arrive within ``left_s`` seconds, whatever each may take; None: no more."""
        self._limit_ns = None if left_s is None else _CLOCK.elapsed_ns() + int(left_s * SECOND_NS)

    def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT001, FBT002 - as in redis-py
        push_request: bool = False,  # noqa: FBT001, FBT002 - as in redis-py
        timeout: Any = SENTINEL,
    ) -> Any:
        """Return the next reply, or raise when ``timeout`` seconds are over; default: the connection's."""
        bound_s = self._socket_timeout if timeout is SENTINEL else timeout
        self._until_ns = self._limit_ns
        if bound_s is not None:
            own_ns = _CLOCK.elapsed_ns() + int(bound_s * SECOND_NS)
            self._until_ns = own_ns if self._limit_ns is None else min(own_ns, self._limit_ns)
        self._generation = self.route.generation() if self.route else 0
        return super().read_response(disable_decoding, push_request, timeout=bound_s)

    def read_from_socket(
        self,
        timeout: Any = SENTINEL,
        raise_on_timeout: bool = True,  # noqa: FBT001, FBT002 - as in redis-py
    ) -> Any:
        """Read one piece, within the rest of the reply's time."""
        if raise_on_timeout and self._until_ns is not None:
            if self.route is not None:
                self._watch(self.route)
            timeout = self._left_s()
        return super().read_from_socket(timeout, raise_on_timeout)

    def _watch(self, route: Route) -> None:
        """Wait until there is something to read or the time is over; raise when the endpoint is another one."""
        sock = self._sock
        if sock is None or (hasattr(sock, "pending") and sock.pending()):
            return
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        while (left_s := self._left_s()) > _SHORTEST_S and not poller.poll(min(LOOK_S, left_s) * 1000):
            if route.generation() != self._generation:
                raise RedisConnectionError(MOVED_ON)

    def _left_s(self) -> float:
        assert self._until_ns is not None
        return max(_SHORTEST_S, (self._until_ns - _CLOCK.elapsed_ns()) / SECOND_NS)


_SHORTEST_S = 1e-6  # 0 would mean: do not block, which is another error


def parser_class(route: Route | None) -> type[BoundedParser]:
    """Return the parser for the connections of a client with this route."""
    if route is None or route.is_search:
        return BoundedParser
    return type("FollowingParser", (BoundedParser,), {"route": route})
