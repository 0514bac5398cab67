"""The gate of a port: who is ended when it closes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

from supervisor.clock import SystemClock
from supervisor.roles.web.connection_limit import ConnectionGate
from supervisor.roles.web.connection_table import LIFE_S
from tests.kit.clock import FakeClock

BOUND_S = 30.0


class Spoken(asyncio.Protocol):
    """A connection that tells when its client has sent something."""

    def __init__(self, spoken: asyncio.Queue[Spoken]) -> None:
        self.transport: asyncio.Transport | None = None
        self._spoken = spoken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._spoken.put_nowait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None


async def test_a_gate_that_closes_ends_those_that_have_not_asked_and_no_other() -> None:
    """A request that was taken in is answered, also while the process ends."""
    spoken: asyncio.Queue[Spoken] = asyncio.Queue()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        gate = ConnectionGate(lambda: Spoken(spoken), SystemClock(), listener)
        gate.open()
        address = listener.getsockname()
        silent, silent_end = await asyncio.open_connection(*address)
        halved, halved_end = await asyncio.open_connection(*address)
        asking, asking_end = await asyncio.open_connection(*address)
        for end in (halved_end, asking_end):
            end.write(b"GET")
            connection = await asyncio.wait_for(spoken.get(), BOUND_S)
        gate.ask(connection)

        gate.close()

        for reader in (silent, halved):
            assert await asyncio.wait_for(_rest(reader), BOUND_S) == b""
        assert connection.transport is not None
        connection.transport.write(b"answer")
        connection.transport.close()
        assert await asyncio.wait_for(_rest(asking), BOUND_S) == b"answer"
        for end in (silent_end, halved_end, asking_end):
            end.close()


async def test_a_request_that_waited_has_the_time_of_any_other_for_its_answer() -> None:
    """Else a client that does not read its answer would keep a place for an hour, and a few addresses all of them."""
    spoken: asyncio.Queue[Spoken] = asyncio.Queue()
    clock = FakeClock()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        gate = ConnectionGate(lambda: Spoken(spoken), clock, listener)
        gate.open()
        _, asking_end = await asyncio.open_connection(*listener.getsockname())
        asking_end.write(b"GET")
        connection = await asyncio.wait_for(spoken.get(), BOUND_S)
        assert connection.transport is not None
        gate.ask(connection)
        with gate.as_stream(connection):
            clock.advance(600)
            gate.sweep()
        clock.advance(LIFE_S - 1)
        gate.sweep()
        assert not connection.transport.is_closing()
        clock.advance(2)
        gate.sweep()
        assert connection.transport.is_closing()
        gate.close()
        asking_end.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the end; an end by force is one, too."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
