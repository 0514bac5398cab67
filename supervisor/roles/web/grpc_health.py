"""grpc.health.v1.Health beside HTTP, for probes and balancers that speak nothing else.

``""`` and ``readiness`` are what /readyz says, ``liveness`` what /livez says. Check, Watch and List.

Guarantees
    Nothing of gRPC is imported before the fork, nor without ``web.grpc_port``: its threads begin in the web child.
    A port that is taken is no reason for the web child to end: it is tried again, and the log says so once.

Does not guarantee
    That no connection is refused while the web child is replaced: gRPC cannot take over a socket that is bound
    already, so unlike the one of HTTP this one is bound by the child (ADR 0034).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from supervisor.core.health import Check, Endpoint

RETRY_S = 1.0
STOP_S = 0.1
log = structlog.get_logger()


class GrpcHealth:
    """The server, from its binding to its end."""

    def __init__(self, host: str, port: int, checks: Callable[[Endpoint], list[Check]]) -> None:
        self._address = f"[{host}]" if ":" in host else host
        self._port = port
        self._checks = checks
        self._server: Any = None
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Bind and serve, as soon as that can be."""
        self._starting = asyncio.create_task(self._start())

    async def close(self) -> None:
        """End, and every call with it."""
        if self._starting is not None:
            self._starting.cancel()
            with suppress(asyncio.CancelledError):
                await self._starting
        if self._server is not None:
            await self._server.stop(STOP_S)

    async def _start(self) -> None:
        is_told = False
        while True:
            # Here and not above: its threads begin with the import, and only this process may have them.
            servicer = importlib.import_module("supervisor.roles.web.grpc_servicer")
            server, port = servicer.bind(f"{self._address}:{self._port}", self._checks)
            if port:
                self._server = server
                await server.start()
                log.info("grpc_listening", address=f"{self._address}:{port}")
                return
            if not is_told:
                is_told = True
                log.warning("grpc_cannot_bind", address=f"{self._address}:{self._port}", consequence="it tries again")
            await asyncio.sleep(RETRY_S)
