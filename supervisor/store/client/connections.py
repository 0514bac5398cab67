"""The connections of both clients: they are made within a deadline, and end with redis-py's own errors.

Guarantees
    Look-up, all addresses, TLS and the handshake have one deadline, see store/client/dialing.py.
    A connection of the asynchronous client that was reset while it was idle counts as ended before anything
    is written to it. Whatever an event loop raises for a write to a connection that is gone arrives as
    redis-py's ``ConnectionError``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from supervisor.clock import SystemClock
from supervisor.core.units import SECOND_NS
from supervisor.store.client import threads
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.redis_options import Passwords
from supervisor.trust import peer_uid

_CLOCK = SystemClock()
_CONNECT_S_MIN = 0.001


class _Greeting:
    """Greets with the password that is right by now."""

    password: str | None

    def __init__(self, *, passwords: Passwords, **options: Any) -> None:
        self._passwords = passwords
        super().__init__(**options)


class _Bounded(_Greeting):
    """Connects and greets within the time left to its caller."""

    _parser: Any
    _sock: Any
    socket_connect_timeout: float | None

    def connect_within(self, left_s: float, connect_s: float) -> None:
        """Connect and greet in ``left_s`` seconds, of which connecting may take ``connect_s``."""
        until_ns = _CLOCK.elapsed_ns() + int(left_s * SECOND_NS)
        *newer, last = self._passwords.candidates(self.password)
        self._parser.bound_by(left_s)
        try:
            for password in newer:
                with suppress(AuthenticationError):
                    return self._greet(password, until_ns, connect_s)
            return self._greet(last, until_ns, connect_s)
        finally:
            self._parser.bound_by(None)

    def _greet(self, password: str | None, until_ns: int, connect_s: float) -> None:
        self.password = password
        self.socket_connect_timeout = max(_CONNECT_S_MIN, min((until_ns - _CLOCK.elapsed_ns()) / SECOND_NS, connect_s))
        self.connect()  # type: ignore[attr-defined]
        self._passwords.served(password)


class _Dialled:
    """A host is called by name through the client's dialler."""

    host: str
    port: int
    socket_timeout: float | None
    socket_connect_timeout: float | None
    socket_keepalive: bool
    socket_keepalive_options: Any

    def __init__(self, *, dialler: Dialler, **options: Any) -> None:
        self._dialler = dialler
        super().__init__(**options)

    def _dial(self, until_ns: int) -> socket.socket:
        return self._dialler.dial(self.host, self.port, until_ns, self._prepare)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.socket_keepalive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in self.socket_keepalive_options.items():
                sock.setsockopt(socket.IPPROTO_TCP, name, value)


class TcpConnection(_Bounded, _Dialled, Connection):
    """Over TCP, of the synchronous client."""

    def _connect(self) -> socket.socket:
        until_ns = self._dialler.until_ns(self.socket_connect_timeout)
        sock = self._dial(until_ns)
        try:
            sock.settimeout(self._dialler.left_s(until_ns))
            sock = self._secured(sock)
            sock.settimeout(self.socket_timeout)
        except BaseException:
            sock.close()
            raise
        return sock

    def _secured(self, sock: socket.socket) -> socket.socket:
        return sock


class TlsConnection(TcpConnection, SSLConnection):
    """Over TLS, of the synchronous client."""

    def _secured(self, sock: socket.socket) -> socket.socket:
        secured: socket.socket = self._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        return secured


class _Unix:
    """The embedded server is spoken to only where it runs as the user whose directory holds its socket."""

    path: str

    def __init__(self, *, is_embedded: bool = False, **options: Any) -> None:
        self._is_embedded = is_embedded
        super().__init__(**options)

    def _check_peer(self, sock: socket.socket) -> None:
        if not self._is_embedded:
            return
        owners = {os.geteuid()}
        if os.geteuid() == 0:  # an administrator, who asks the tree of a service's user
            owners.add(Path(self.path).parent.stat().st_uid)
        uid = peer_uid(sock)
        if uid not in owners:
            raise RedisConnectionError(f"{self.path} is served by uid {uid}, not by this user; nothing was sent to it")


class UnixConnection(_Unix, _Bounded, UnixDomainSocketConnection):
    """Over a unix socket, of the synchronous client."""

    def _connect(self) -> socket.socket:
        sock: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        try:
            self._check_peer(sock)
        except BaseException:
            sock.close()
            raise
        return sock


class _Resettable(_Greeting):
    """Fixes for redis-py's asynchronous connections: new passwords, resets. Mixed in before their class."""

    _reader: Any
    _writer: Any

    async def connect(self) -> None:
        """Connect and greet, within the time-out of the caller."""
        *newer, last = self._passwords.candidates(self.password)
        for password in newer:
            with suppress(AuthenticationError):
                return await self._greet(password)
        return await self._greet(last)

    async def _greet(self, password: str | None) -> None:
        self.password = password
        await super().connect()  # type: ignore[misc]
        self._passwords.served(password)

    async def can_read(self) -> bool:
        """Return whether there is something to read, or the connection ended, by a reset too."""
        if self._writer is None or self._writer.transport.is_closing() or self._reader.exception() is not None:
            return True
        return bool(await super().can_read())  # type: ignore[misc]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as in redis-py
        """Write; uvloop raises ``RuntimeError`` where the transport is closed."""
        with _told():
            await super().send_packed_command(command, check_health)  # type: ignore[misc]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the next reply."""
        with _told():
            return await super().read_response(*args, **options)  # type: ignore[misc]


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors that a library raises over a connection that broke under it into the end of the connection."""
    try:
        yield
    except (RuntimeError, AttributeError) as error:
        raise RedisConnectionError("the connection was closed by the peer") from error


class AsyncTcpConnection(_Resettable, _Dialled, redis.asyncio.Connection):
    """Over TCP, of the asynchronous client."""

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            until_ns = self._dialler.until_ns(self.socket_connect_timeout)
            sock = await threads.result_of(lambda: self._dial(until_ns), "dialler", discard=socket.socket.close)
            self._reader, self._writer = await asyncio.open_connection(sock=sock, **self._security())

    def _security(self) -> dict[str, Any]:
        return {}


class AsyncTlsConnection(AsyncTcpConnection, redis.asyncio.SSLConnection):
    """Over TLS, of the asynchronous client."""

    def _security(self) -> dict[str, Any]:
        return {"ssl": self.ssl_context.get(), "server_hostname": self.host}


class AsyncUnixConnection(_Unix, _Resettable, redis.asyncio.UnixDomainSocketConnection):
    """Over a unix socket, of the asynchronous client."""

    async def _connect(self) -> None:  # redis-py's greets too, a second time, and hides why it was refused
        async with asyncio.timeout(self.socket_connect_timeout):
            self._reader, self._writer = await asyncio.open_unix_connection(path=self.path)
        try:
            self._check_peer(self._writer.get_extra_info("socket"))
        except BaseException:
            self._writer.close()
            raise


_CLASSES: dict[Any, tuple[type[Any], type[Any]]] = {
    None: (TcpConnection, AsyncTcpConnection),
    SSLConnection: (TlsConnection, AsyncTlsConnection),
    UnixDomainSocketConnection: (UnixConnection, AsyncUnixConnection),
}


def connection(kind: type[Any] | None, dialler: Dialler, *, is_async: bool = False) -> dict[str, Any]:
    """Return the options that make a client's connections of this module's class for redis-py's ``kind``."""
    found: dict[str, Any] = {"connection_class": _CLASSES[kind][is_async]}
    return found if kind is UnixDomainSocketConnection else found | {"dialler": dialler}
