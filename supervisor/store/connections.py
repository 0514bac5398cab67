"""The connections of the asynchronous client: a peer that resets one costs a call at most, never a process.

Guarantees
    A connection that was reset while it was idle counts as ended before anything is written to it.
    Whatever an event loop raises for a write to a connection that is gone arrives as redis-py's ``ConnectionError``.
"""

from __future__ import annotations

from typing import Any

import redis.asyncio
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError


class _Resettable:
    """What redis-py's asynchronous connections do not notice by themselves, for one that is mixed in before them."""

    _reader: Any
    _writer: Any

    async def can_read(self) -> bool:
        """Return whether there is something to read, or the connection ended, by a reset too."""
        if self._writer is None or self._writer.transport.is_closing() or self._reader.exception() is not None:
            return True
        return bool(await super().can_read())  # type: ignore[misc]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as in redis-py
        """Write; uvloop raises ``RuntimeError`` where the transport is closed."""
        try:
            await super().send_packed_command(command, check_health)  # type: ignore[misc]
        except RuntimeError as error:
            raise RedisConnectionError("the connection was closed by the peer") from error


class AsyncTcpConnection(_Resettable, redis.asyncio.Connection):
    """Over TCP."""


class AsyncTlsConnection(_Resettable, redis.asyncio.SSLConnection):
    """Over TLS."""


class AsyncUnixConnection(_Resettable, redis.asyncio.UnixDomainSocketConnection):
    """Over a unix socket."""


ASYNC_CLASS = {
    None: AsyncTcpConnection,
    SSLConnection: AsyncTlsConnection,
    UnixDomainSocketConnection: AsyncUnixConnection,
}
"""By the class that the synchronous client takes."""
