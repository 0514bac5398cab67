"""Who may be connected: a limit on connections, and on how long each may take.

Guarantees
    At most 64 connections. A new one pushes out the oldest that has not asked anything
    yet, so clients that connect and stay silent cannot keep a health probe out.
    A connection carries one request, must have sent it after 5 s, and is gone after 15 s,
    however slowly its client reads. Streams of events may last an hour; there are places for more connections than
    for streams, and a stream is never pushed out.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import web

from supervisor.clock import Clock

CONNECTIONS_MAX = 64
REQUEST_S = 5.0
"""From connecting to the end of the request's header."""

LIFE_S = 15.0
"""From connecting to the last byte of the answer."""

STREAM_LIFE_S = 3660.0
"""The same for a stream, which ends by itself after an hour."""

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 21\r\nConnection: close\r\nRetry-After: 1\r\n\r\ntoo many connections\n"
)


class Gate:
    """Makes the protocol of each new connection, and ends those that take too long."""

    def __init__(self, server: web.Server, clock: Clock, *, shakes_hands: bool = False) -> None:
        self._server = server
        self._accept_s = REQUEST_S + 1.0 if shakes_hands else 1.0
        self._clock = clock
        self._since_ns: dict[web.RequestHandler, int] = {}
        self._asked: set[web.RequestHandler] = set()
        self._streams: set[web.RequestHandler] = set()

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol for a connection that was just accepted."""
        if len(self._server.connections) >= CONNECTIONS_MAX and not self._push_out():
            return _Refusal()
        protocol = self._server()
        self._since_ns[protocol] = self._clock.elapsed_ns()
        return protocol

    def mark_asked(self, request: web.Request) -> None:
        """Note that the connection of ``request`` has sent one."""
        self._asked.add(request.protocol)

    def mark_stream(self, request: web.Request) -> None:
        """Note that the answer to ``request`` takes long."""
        self._streams.add(request.protocol)

    def sweep(self) -> None:
        """End connections that took too long. Call once a second."""
        now_ns = self._clock.elapsed_ns()
        connected = set(self._server.connections)
        for protocol, since_ns in list(self._since_ns.items()):
            age_s = (now_ns - since_ns) / 1e9
            if protocol not in connected:
                if age_s > self._accept_s:  # younger ones may still be on their way from accept
                    self._drop(protocol)
            elif age_s > self._life_s(protocol):
                _abort(protocol)

    def _life_s(self, protocol: web.RequestHandler) -> float:
        if protocol in self._streams:
            return STREAM_LIFE_S
        return LIFE_S if protocol in self._asked else REQUEST_S

    def _push_out(self) -> bool:
        """End the oldest connection that has asked nothing; return whether there was one."""
        for protocol in self._server.connections:
            if protocol not in self._asked and protocol in self._since_ns:
                self._drop(protocol)
                _abort(protocol)
                return True
        return False

    def _drop(self, protocol: web.RequestHandler) -> None:
        self._since_ns.pop(protocol, None)
        self._asked.discard(protocol)
        self._streams.discard(protocol)


class _Refusal(asyncio.Protocol):
    """Says that there is no room, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast("asyncio.WriteTransport", transport)
        writer.write(_REFUSAL)
        writer.close()


def _abort(protocol: web.RequestHandler) -> None:
    if protocol.transport is not None:
        protocol.transport.abort()
