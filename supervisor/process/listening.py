"""Binds the HTTP address in the parent, so that a restart of the web process refuses no connection."""

from __future__ import annotations

import socket

from supervisor.core.errors import CannotBindError

BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CannotBindError: the address is taken, or not ours.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotBindError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; stop what uses it, or choose another with "
            f"web.port (TENURE_WEB__PORT; 0 lets the kernel choose)"
        ) from error
