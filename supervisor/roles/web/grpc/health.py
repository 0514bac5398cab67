"""grpc.health.v1.Health beside HTTP, for probes and balancers that speak nothing else.

``""`` and ``readiness`` follow /readyz, ``liveness`` follows /livez. Check, Watch and List.

Guarantees
    Nothing of gRPC is imported before the fork, nor without ``web.grpc_port``: its threads begin in the web child.
    Connections are accepted by a gate of its own, with the limits of HTTP: in all, for each address, and in time.
    The parent binds the port, so that a restart of the web child refuses no connection.

gRPC's C core takes an address and no socket, so it listens on one in the data directory, and connections are relayed
there (ADR 0034).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import structlog

from supervisor.clock import Clock
from supervisor.core.supervision.health import HealthCheck, HealthEndpoint
from supervisor.roles.web.connection_limit import ConnectionGate
from supervisor.roles.web.grpc.relay import Relay

STOP_S = 0.1
log = structlog.get_logger()


class GrpcHealth:
    """The server, from its binding to its end."""

    def __init__(
        self,
        listener: socket.socket,
        clock: Clock,
        directory: Path,
        checks: Callable[[HealthEndpoint], list[HealthCheck]],
    ) -> None:
        """``directory`` is one that nobody else may open: the socket of the server lies there."""
        self._checks = checks
        self._directory = directory
        self._file = f"grpc.{os.getpid()}.sock"
        self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        self._path = f"/proc/self/fd/{self._descriptor}/{self._file}"  # short, however long that of the directory is
        self._server: Any = None
        self._relays: WeakSet[Relay] = WeakSet()
        self.gate = ConnectionGate(self._relay, clock, listener)

    def _relay(self) -> Relay:
        relay = Relay(self._path, self.gate.ask_long)
        self._relays.add(relay)
        return relay

    async def start(self) -> None:
        """Serve, and accept connections from now on."""
        for left in self._directory.glob("grpc.*.sock"):  # of children that were killed
            left.unlink(missing_ok=True)
        # Here and not above: its threads begin with the import, and only this process may have them.
        servicer = importlib.import_module("supervisor.roles.web.grpc.servicer")
        self._server = servicer.server(f"unix:{self._path}", self._checks)
        await self._server.start()
        self.gate.open()

    async def close(self) -> None:
        """End, and every call with it."""
        self.gate.close()
        await self._server.stop(STOP_S)
        for relay in list(self._relays):
            relay.abort()
        await asyncio.sleep(0)  # the loop cannot end with a transport that is still open
        with suppress(FileNotFoundError):
            os.unlink(self._file, dir_fd=self._descriptor)
        os.close(self._descriptor)
