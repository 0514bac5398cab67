"""The service grpc.health.v1.Health. Imported by the web child alone, and only with ``web.grpc_port``.

Guarantees
    At most ``WATCHERS_MAX`` calls are Watch; when all places are taken, the address that holds the most gives up its
    oldest for one that holds less. A change is sent within ``LOOK_S``.
    A connection has at most ``RPCS_OF_ONE_MAX`` calls at a time, and there is no limit on those of all: calls whose
    message never comes would use it up for everybody. One that sends no HTTP/2 settings within
    ``HANDSHAKE_S`` is cut off, one without a call after ``IDLE_S``, and each is asked to come again after ``AGE_S``.
    How many connections there are is decided before they get here (see web/connection_limit.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from supervisor.core.supervision import health
from supervisor.core.supervision.health import HealthCheck, HealthEndpoint

SERVICES: Mapping[str, HealthEndpoint] = {
    "": HealthEndpoint.READYZ,
    "readiness": HealthEndpoint.READYZ,
    "liveness": HealthEndpoint.LIVEZ,
}
WATCHERS_MAX = 32
LOOK_S = 0.5
RPCS_OF_ONE_MAX = 40
HANDSHAKE_S = 5
IDLE_S = 60
AGE_S = 3600
_OPTIONS = (
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", RPCS_OF_ONE_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
    ("grpc.max_connection_idle_ms", IDLE_S * 1000),
    ("grpc.max_connection_age_ms", AGE_S * 1000),
    ("grpc.max_connection_age_grace_ms", HANDSHAKE_S * 1000),
)
_Answer = health_pb2.HealthCheckResponse


class Servicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The three methods; their names are those of the protocol."""

    def __init__(self, checks: Callable[[HealthEndpoint], list[HealthCheck]], address_of: Callable[[str], str]) -> None:
        self._checks = checks
        self._address_of = address_of
        self._watches: dict[object, str] = {}  # with the address of each, the oldest first

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer once."""
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the services are {', '.join(map(repr, SERVICES))}")
        return _Answer(status=self._status(request.service))

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer for every service."""
        del request, context
        return health_pb2.HealthListResponse(
            statuses={service: _Answer(status=self._status(service)) for service in SERVICES}
        )

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answer now, and whenever it changes."""
        address = self._address_of(context.peer())
        if not self._has_room(address):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS_MAX} clients watch already")
        place = object()
        self._watches[place] = address
        try:
            told = None
            while place in self._watches:
                now = self._status(request.service)
                if now != told:
                    told = now
                    yield _Answer(status=now)
                await asyncio.sleep(LOOK_S)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this address holds the most places of all")
        finally:
            self._watches.pop(place, None)

    def _has_room(self, address: str) -> bool:
        """Return whether one more call of ``address`` may watch, perhaps in the place of another's."""
        if len(self._watches) < WATCHERS_MAX:
            return True
        held = Counter(self._watches.values())
        [(most, count)] = held.most_common(1)
        if count <= held[address] + 1:
            return False
        del self._watches[next(place for place, holder in self._watches.items() if holder == most)]
        return True

    def _status(self, service: str) -> Any:
        endpoint = SERVICES.get(service)
        if endpoint is None:
            return _Answer.SERVICE_UNKNOWN
        return _Answer.SERVING if health.is_serving(self._checks(endpoint)) else _Answer.NOT_SERVING


def server(
    address: str, checks: Callable[[HealthEndpoint], list[HealthCheck]], address_of: Callable[[str], str]
) -> Any:
    """Return a server that is bound to ``address`` and not started yet; ``address_of`` finds the client of a peer.

    Raises:
        RuntimeError: it cannot be bound.
    """
    made = grpc.aio.server(options=_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(Servicer(checks, address_of), made)
    made.add_insecure_port(address)
    return made
