"""grpc.health.v1.Health beside HTTP, for probes and balancers that speak nothing else.

``""`` and ``readiness`` follow /readyz, ``liveness`` follows /livez. Check, Watch and List.

Guarantees
    Nothing of gRPC is imported before the fork, nor without ``web.grpc_port``: its threads begin in the web child.
    Connections are accepted by a gate of its own, with the limits of HTTP: in all, for each address, and in time.
    The parent binds the port, so that a restart of the web child refuses no connection.
    A data directory that is gone or takes no socket any more, while the tree runs, keeps no probe from its answer.

gRPC's C core takes an address and no socket, so it listens on one in the data directory, and connections are relayed
there (ADR 0034). Where that cannot be, it listens at a name of its own, which the kernel knows and no file shows.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, cast
from weakref import WeakSet

import structlog

from supervisor.clock import Clock
from supervisor.core.supervision.health import HealthCheck, HealthEndpoint
from supervisor.roles.web.connection_limit import ConnectionGate

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
        self._file = f"grpc.{token_hex(8)}.sock"  # that no job has made in the place of ours
        self._descriptor = -1
        self._path = ""
        self._server: Any = None
        self._relays: WeakSet[Relay] = WeakSet()
        self.gate = ConnectionGate(self._relay, clock, listener)

    def _relay(self) -> Relay:
        relay = Relay(self._path, partial(self.gate.ask, is_long=True))
        self._relays.add(relay)
        return relay

    def _address_of(self, peer: str) -> str:
        """Return the address of the client behind ``peer``, as gRPC calls the end of a relay."""
        return next((self.gate.address_of(each) for each in self._relays if each.peer == peer), "")

    async def start(self) -> None:
        """Serve, and accept connections from now on."""
        # Here and not above: its threads begin with the import, and only this process may have them.
        servicer = importlib.import_module("supervisor.roles.web.grpc.servicer")
        try:
            self._descriptor = os.open(self._directory, os.O_PATH | os.O_DIRECTORY)
            self._remove_left()
            self._path = f"/proc/self/fd/{self._descriptor}/{self._file}"  # short, however long the directory's is
            self._server = servicer.server(f"unix:{self._path}", self._checks, self._address_of)
        except (OSError, RuntimeError) as error:  # it is gone, full or read-only since the tree started
            log.warning("grpc_socket_unfiled", directory=str(self._directory), error=str(error))
            self._path = f"\0tenure.{self._file}"
            self._server = servicer.server(f"unix-abstract:{self._path[1:]}", self._checks, self._address_of)
        await self._server.start()
        self.gate.open()

    def _remove_left(self) -> None:
        for found in self._directory.glob("grpc.*.sock"):
            with suppress(OSError):  # it went meanwhile
                if self._is_left(found):
                    found.unlink()

    def _is_left(self, found: Path) -> bool:
        """Return whether a killed child left this socket; other trees on this directory listen at theirs."""
        if not stat.S_ISSOCK(found.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0)
            return probe.connect_ex(f"/proc/self/fd/{self._descriptor}/{found.name}") == errno.ECONNREFUSED

    async def close(self) -> None:
        """End, and every call with it."""
        self.gate.close()
        await self._server.stop(STOP_S)
        for relay in list(self._relays):
            relay.abort()
        await asyncio.sleep(0)  # the loop cannot end with a transport that is still open
        if self._descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._file, dir_fd=self._descriptor)
            os.close(self._descriptor)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Relay(asyncio.Protocol):
    """The side of the client.

    Guarantees
        The server sees a connection only when its client has sent the preface of HTTP/2 and there is a place for it.
        Neither direction is read faster than the other end takes it.
    """

    def __init__(self, path: str, admit: Callable[[Relay], bool]) -> None:
        """``path`` names the socket of the server; ``admit`` is asked once, when the preface has come."""
        self.transport: asyncio.Transport | None = None
        self.far: asyncio.Transport | None = None
        self.peer = ""
        self._path = path
        self._admit = admit
        self._head = b""
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, as every protocol does."""
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is one in all but its class

    def data_received(self, data: bytes) -> None:
        """Pass ``data`` on, the first bytes after a look at them."""
        if self.far is not None:
            self.far.write(data)
            return
        self._head += data
        assert self.transport is not None
        if not (PREFACE.startswith(self._head) or self._head.startswith(PREFACE)):
            self.transport.abort()
        elif len(self._head) >= len(PREFACE):
            self.transport.pause_reading()
            if self._admit(self):
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            else:
                self.transport.abort()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        link = socket.socket(socket.AF_UNIX)
        try:
            link.setblocking(False)  # noqa: FBT003 - its name
            link.bind(b"")  # a name that the kernel makes: without one all relays are one peer to gRPC
            self.peer = f"unix-abstract:{link.getsockname()[1:].decode()}"
            await loop.sock_connect(link, self._path)
            far, _ = await loop.create_unix_connection(lambda: _Far(self), sock=link)
        except OSError:  # the server is not there yet, or no more
            link.close()
            self.end()
            return
        except asyncio.CancelledError:
            link.close()
            raise
        self.far = far
        far.write(self._head)
        self._head = b""
        if self.transport is None:
            far.abort()
        else:
            self.transport.resume_reading()

    def end(self) -> None:
        """Close the connection, once the written bytes have gone out."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Drop both sides at once, and a connection that is under way."""
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self.transport, self.far):
            if transport is not None:
                transport.abort()

    def pause_writing(self) -> None:
        """The client reads slowly: so is the server read."""
        if self.far is not None:
            self.far.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.far is not None and not self.far.is_closing():
            self.far.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: the server need not know more."""
        del exc
        self.transport = None
        if self.far is not None:
            self.far.close()


class _Far(asyncio.Protocol):
    def __init__(self, near: Relay) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        if self._near.transport is not None:
            self._near.transport.write(data)

    def pause_writing(self) -> None:
        if self._near.transport is not None:
            self._near.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._near.transport is not None and not self._near.transport.is_closing():
            self._near.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._near.end()
