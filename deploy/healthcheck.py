"""Liveness of the tree in this container, for HEALTHCHECK: exit code 0 when /livez answers 200.

The address is that of the environment, loopback where it says none: TENURE_WEB__HOST, with ``unix:/path`` too, __PORT,
__HEALTH_PORT and __TLS_CERT_FILE. Liveness holds no secret, and the address is this machine's: no certificate is asked.
"""  # noqa: INP001 - a script

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Mapping

TIMEOUT_S = 2.0
UNIX = "unix:"
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound


def status_of(environ: Mapping[str, str]) -> int:
    """Return the status with which the tree answers /livez.

    Raises:
        OSError: nobody answers.
    """
    connection = http.client.HTTPConnection("localhost")
    connection.sock = _connected(environ)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    finally:
        connection.close()


def _connected(environ: Mapping[str, str]) -> socket.socket:
    host, health = environ.get("TENURE_WEB__HOST", ""), environ.get("TENURE_WEB__HEALTH_PORT")
    if not host.startswith(UNIX):
        port = int(health or environ.get("TENURE_WEB__PORT", "8080"))
        link = socket.create_connection((_ANY.get(host, host), port), TIMEOUT_S)
        is_secure = not health and environ.get("TENURE_WEB__TLS_CERT_FILE")
        return ssl._create_unverified_context().wrap_socket(link) if is_secure else link  # noqa: S323, SLF001 - see above
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(TIMEOUT_S)
        link.connect(host.removeprefix(UNIX))
    except OSError:
        link.close()
        raise
    return link


if __name__ == "__main__":
    raise SystemExit(status_of(os.environ) != http.client.OK)
