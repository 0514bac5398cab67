"""Connections of the HTTP jobs, each to an address that ``job_destinations`` of the configuration allows.

Guarantees
    The address is judged when its socket is made, after names were resolved and for each redirect, so that neither
    another answer of DNS (rebinding) nor another way to write an address leads elsewhere. Nothing is sent to one that
    is refused.

Does not guarantee
    Anything about hosts that the configuration allows by name: they are where their names lead.
"""

from __future__ import annotations

import errno
import socket
from contextlib import AsyncExitStack, ExitStack
from ssl import SSLContext
from typing import Any, Self

import aiohttp
from yarl import URL

from supervisor.core.jobs.references import DestinationRule

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class DestinationRefusedError(OSError):
    """A connection would lead to an address that the configuration does not allow. The address is not shown."""

    def __init__(self) -> None:
        super().__init__(
            errno.EACCES,
            "it leads to a loopback, link-local, private or reserved address; "
            "add its network or the name of its host to job_destinations.allow",
        )


def judged_socket(info: AddressInfo) -> socket.socket:
    """Return a socket for a connection to the address in ``info``.

    Raises:
        DestinationRefusedError: the address is not allowed.
    """
    family, kind, protocol, _, address = info
    if not DestinationRule.current.allows_address(address[0]):
        raise DestinationRefusedError
    return socket.socket(family, kind, protocol)


def connect(address: tuple[str, int], timeout: float | None = None, *_: Any) -> socket.socket:
    """Return a connection to the first address of a host that answers, as ``socket.create_connection`` does.

    Raises:
        OSError: there is none; DestinationRefusedError: an address is not allowed.
    """
    host, port = address
    if DestinationRule.current.allows_host(host):
        return socket.create_connection(address, timeout)
    failure = OSError(errno.EADDRNOTAVAIL, "its name has no address")
    for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with ExitStack() as until_connected:
            try:
                connection = until_connected.enter_context(judged_socket(info))
                connection.settimeout(timeout)
                connection.connect(info[4])
            except DestinationRefusedError:
                raise
            except OSError as error:
                failure = error
            else:
                until_connected.pop_all()
                return connection
    raise failure


class Client:
    """An HTTP client that keeps no cookies, follows nothing on its own and verifies TLS.

    Hosts that are allowed by name have connections of their own, so that no other name is led to their addresses.
    """

    def __init__(self, tls: SSLContext | None, *, connections: int = 1) -> None:
        self._tls = tls
        self._connections = connections
        self._stack = AsyncExitStack()
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def to(self, url: URL) -> aiohttp.ClientSession:
        """Return the session for requests to ``url``."""
        is_named = DestinationRule.current.allows_host(url.raw_host or "")
        if is_named not in self._sessions:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    ssl=self._tls if self._tls is not None else True,
                    socket_factory=None if is_named else judged_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "tenure"},
            )
            self._sessions[is_named] = await self._stack.enter_async_context(session)
        return self._sessions[is_named]


def failure_reason(error: Exception) -> str:
    """Return why a request failed, in words that hold no header and no URL."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its TLS certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or type(error.os_error).__name__}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    return type(error).__name__
