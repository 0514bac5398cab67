"""A client that listens without waiting: its blocking read lies at the server while other things are done.

Guarantees
    At most one blocking read is outstanding, on a connection of its own. ``select`` on ``socket``
    together with the other wake-ups of a role, then ``collect``.
    A connection that fails is made again a second later; nothing is raised for it, because its
    subject is news only.

Does not guarantee
    That no entry is missed: the stream is capped, and a fail-over may lose some.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from redis.exceptions import RedisError

from supervisor.core.units import SECOND_NS
from supervisor.store.client.connection_options import entries
from supervisor.store.client.sync_client import Store

BLOCK_MS = 30_000
RETRY_NS = SECOND_NS
OPEN_S = 0.5
READ_S = 0.25


class ParkedStore(Store):
    """A synchronous client with a blocking read that does not block."""

    _is_parked = False
    _retry_at_ns = 0

    def park(self, key: str, last_id: str) -> socket.socket | None:
        """Have entries of the stream ``key`` after ``last_id`` awaited; return a selectable object, None while away."""
        link = self._block_link
        if self._is_parked and link.is_connected:
            return self._socket()
        self._is_parked = False
        now_ns = self._clock.elapsed_ns()
        if now_ns < self._retry_at_ns:
            return None
        try:
            self._follow(OPEN_S)
            if not link.is_connected:
                self._open(link, now_ns + round(OPEN_S * SECOND_NS))
            link.send_command("XREAD", "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS", key, last_id)
        except (RedisError, OSError, TimeoutError):
            self._fail()
            return None
        self._is_parked = True
        return self._socket()

    def collect(self) -> list[tuple[str, dict[str, str]]]:
        """Return the entries that arrived, oldest first, as id and fields; empty without any. Does not wait."""
        link = self._block_link
        if not self._is_parked or not link.is_connected:
            return []
        try:
            if not link.can_read(0):
                return []
            reply = link.read_response(timeout=READ_S)
        except (RedisError, OSError, TimeoutError):
            self._fail()
            return []
        self._is_parked = False
        return entries(reply)

    def _fail(self) -> None:
        self._is_parked = False
        self._retry_at_ns = self._clock.elapsed_ns() + RETRY_NS
        with suppress(RedisError, OSError):
            self._block_link.disconnect()

    def _socket(self) -> socket.socket | None:
        found: socket.socket | None = self._block_link._sock  # noqa: SLF001 - redis-py shows it in no other way
        return found
