"""Binds the addresses of the web child in the parent, so that a restart of the web process refuses no connection."""

from __future__ import annotations

import socket

from supervisor.core.errors import CannotBindError

BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, as far as `net.core.somaxconn` allows; beyond it a client
tries again after a second, which is too late for a probe. As many as a flood brings while the loop is held up for most
of a second."""


def bind(host: str, port: int, *, setting: str = "web.port") -> socket.socket:
    """Return a socket that listens; ``setting`` is the one that chose the port.

    Raises:
        CannotBindError: the address is taken, or not ours.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotBindError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; stop what uses it, or choose another with "
            f"{setting} (TENURE_{setting.replace('.', '__').upper()}; 0 lets the kernel choose)"
        ) from error
