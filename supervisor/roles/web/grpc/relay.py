"""Relay between a connection of the gRPC port and the gRPC server, which listens on a socket of this child alone.

Guarantees
    The server sees a connection only when its client has sent the preface of HTTP/2 and there is a place for it.
    Neither direction is read faster than the other end takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Relay(asyncio.Protocol):
    """The side of the client."""

    def __init__(self, path: str, admit: Callable[[Relay], bool]) -> None:
        """``path`` names the socket of the server; ``admit`` is asked once, when the preface has come."""
        self.transport: asyncio.Transport | None = None
        self.far: asyncio.Transport | None = None
        self._path = path
        self._admit = admit
        self._head = b""
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, as every protocol does."""
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is one in all but its class

    def data_received(self, data: bytes) -> None:
        """Pass ``data`` on, the first bytes after a look at them."""
        if self.far is not None:
            self.far.write(data)
            return
        self._head += data
        assert self.transport is not None
        if not (PREFACE.startswith(self._head) or self._head.startswith(PREFACE)):
            self.transport.abort()
        elif len(self._head) >= len(PREFACE):
            self.transport.pause_reading()
            if self._admit(self):
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            else:
                self.transport.abort()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            far, _ = await loop.create_unix_connection(lambda: _Far(self), self._path)
        except OSError:  # the server is not there yet, or no more
            self.end()
            return
        self.far = far
        far.write(self._head)
        self._head = b""
        if self.transport is None:
            far.abort()
        else:
            self.transport.resume_reading()

    def end(self) -> None:
        """Close the connection, once the written bytes have gone out."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Drop both sides at once, and a connection that is under way."""
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self.transport, self.far):
            if transport is not None:
                transport.abort()

    def pause_writing(self) -> None:
        """The client reads slowly: so is the server read."""
        if self.far is not None:
            self.far.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.far is not None and not self.far.is_closing():
            self.far.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: the server need not know more."""
        del exc
        self.transport = None
        if self.far is not None:
            self.far.close()


class _Far(asyncio.Protocol):
    """The side of the server."""

    def __init__(self, near: Relay) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        if self._near.transport is not None:
            self._near.transport.write(data)

    def pause_writing(self) -> None:
        if self._near.transport is not None:
            self._near.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._near.transport is not None and not self._near.transport.is_closing():
            self._near.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._near.end()
