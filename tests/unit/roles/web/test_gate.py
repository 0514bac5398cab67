"""Who is let in, who is pushed out, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.roles.web.gate import CONNECTIONS_MAX, LIFE_S, REQUEST_S, Gate, _Refusal

S = 1_000_000_000


class Transport:
    """Records what is done to a connection."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.is_closed = False
        self.written = b""

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True


class Server:
    """Stands for aiohttp's: makes protocols and knows which are connected."""

    def __init__(self) -> None:
        self.connections: list[Any] = []

    def __call__(self) -> Any:
        protocol = SimpleNamespaceProtocol(transport=Transport())
        self.connections.append(protocol)
        return protocol


class SimpleNamespaceProtocol(SimpleNamespace):
    """A protocol, told apart by identity as real ones are."""

    __hash__ = object.__hash__


class Clock:
    """A clock the test turns."""

    now = 1000 * S

    def elapsed_ns(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def server() -> Server:
    """A server without connections."""
    return Server()


@pytest.fixture
def clock() -> Clock:
    """A clock at some time."""
    return Clock()


@pytest.fixture
def gate(server: Server, clock: Clock) -> Gate:
    """A gate before ``server``."""
    return Gate(server, clock)  # type: ignore[arg-type]


def ask(gate: Gate, protocol: Any) -> None:
    """Let ``protocol`` send its request."""
    gate.mark_asked(SimpleNamespace(protocol=protocol))  # type: ignore[arg-type]


def test_a_full_house_pushes_out_the_oldest_that_said_nothing(gate: Gate, server: Server) -> None:
    """Whoever has asked is served; whoever has not is replaceable."""
    guests = [gate() for _ in range(CONNECTIONS_MAX)]
    ask(gate, guests[0])

    latest = gate()

    assert latest in server.connections
    assert [guest.transport.is_aborted for guest in guests] == [False, True] + [False] * (CONNECTIONS_MAX - 2)


def test_one_pushed_out_is_not_pushed_out_twice(gate: Gate) -> None:
    """Its connection ends a moment later; until then the next one has to go."""
    guests = [gate() for _ in range(CONNECTIONS_MAX)]

    gate()
    gate()

    assert [guest.transport.is_aborted for guest in guests[:3]] == [True, True, False]


def test_a_house_full_of_requests_refuses(gate: Gate) -> None:
    """With an answer that says when to come again, and no more places."""
    for guest in [gate() for _ in range(CONNECTIONS_MAX)]:
        ask(gate, guest)

    refusal = gate()
    transport = Transport()
    refusal.connection_made(transport)  # type: ignore[arg-type]

    assert isinstance(refusal, _Refusal)
    head, body = transport.written.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert transport.is_closed


def test_each_part_of_a_connection_has_its_time(gate: Gate, clock: Clock) -> None:
    """Header within five seconds, everything within fifteen."""
    silent, asking = gate(), gate()
    ask(gate, asking)

    clock.now += int((REQUEST_S - 0.1) * S)
    gate.sweep()
    assert not silent.transport.is_aborted
    clock.now += S
    gate.sweep()
    assert (silent.transport.is_aborted, asking.transport.is_aborted) == (True, False)
    clock.now += int(LIFE_S * S)
    gate.sweep()
    assert asking.transport.is_aborted


def test_ended_connections_are_forgotten(gate: Gate, server: Server, clock: Clock) -> None:
    """The gate's memory is bounded by who is inside."""
    for _ in range(10):
        ask(gate, gate())
    server.connections.clear()

    clock.now += 2 * S
    gate.sweep()

    assert gate._since_ns == {}
    assert gate._asked == set()
