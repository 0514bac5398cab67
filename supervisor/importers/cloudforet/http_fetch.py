"""HTTP within one deadline for connections, headers, redirects and body, however slowly the bytes come.

Of an answer that redirects no body is read.

Does not guarantee
    That a name is looked up within it: that ends by the resolver's own time. A proxy may take as long again for TLS.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import IO, Any
from urllib import request

LeftS = Callable[[], float]
"""Time that is left; raises ``TimeoutError`` when none is."""


class _TimedReader(io.RawIOBase):
    """Bytes from a socket: what is left of the time bounds each wait for some of them."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, left_s: LeftS) -> None:
        self._sock = sock
        self._raw = raw
        self._left_s = left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left_s())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, left_s: LeftS, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), left_s))


class _TimedConnection(http.client.HTTPConnection):
    def __init__(self, left_s: LeftS, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.response_class = partial(_TimedResponse, left_s)  # type: ignore[assignment]  # it is only called
        self._create_connection = partial(_connect, left_s)


class _TimedTlsConnection(_TimedConnection, http.client.HTTPSConnection):
    """The same over TLS, whose end must be told: anybody on the way can end the connection below it."""

    def connect(self) -> None:
        # set by default in early patch versions of Python 3.11 (python/cpython#95494)
        self._context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # type: ignore[attr-defined]
        super().connect()
        self.sock.suppress_ragged_eofs = False  # type: ignore[union-attr]  # an argument of wrap_socket


def _connect(left_s: LeftS, address: tuple[str, int], *_unused: Any) -> socket.socket:
    """Return a connection to the first address of a name that takes one."""
    error = OSError("the name has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        with ExitStack() as until_connected:
            try:
                sock = until_connected.enter_context(socket.socket(family, kind, protocol))
                sock.settimeout(left_s())
                sock.connect(where)
                sock.settimeout(left_s())  # of the whole handshake of TLS
            except OSError as refused:
                error = refused
            else:
                until_connected.pop_all()
                return sock
    raise error


class PlainHandler(request.HTTPHandler):
    """Opens http."""

    def __init__(self, left_s: LeftS) -> None:
        super().__init__()
        self._left_s = left_s

    def http_open(self, req: request.Request) -> http.client.HTTPResponse:
        """Ask over a new connection."""
        return self.do_open(partial(_TimedConnection, self._left_s), req)


class SecureHandler(request.HTTPSHandler):
    """Opens https."""

    def __init__(self, left_s: LeftS) -> None:
        super().__init__()
        self._left_s = left_s

    def https_open(self, req: request.Request) -> http.client.HTTPResponse:
        """Ask over a new connection."""
        return self.do_open(partial(_TimedTlsConnection, self._left_s), req)


class Redirects(request.HTTPRedirectHandler):
    """Follows redirects."""

    def redirect_request(self, req: request.Request, fp: IO[bytes], *args: Any) -> request.Request | None:
        """Return the request that an answer asks for."""
        fp.close()  # unread: urllib would read all of a body that nobody looks at, of whatever size
        return super().redirect_request(req, fp, *args)
