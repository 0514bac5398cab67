"""Accepts the connections of a port, within the limits of ``connection_table``.

Guarantees
    A connection is counted before anything is done for it, and nothing is done before its first byte has come: one
    one that sends nothing costs a descriptor, of which there are no more than places.
    A connection of HTTP carries one request, must have sent it after 5 s, handshake and all, and is gone after 15 s,
    however slowly its client reads. Streams of events may last an hour, and requests that wait for a run as long as it
    takes; these are never pushed out, and have 15 s to end then.
    Without a descriptor for the next connection the oldest silent one goes, and the loop does not spin meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from supervisor.clock import Clock
from supervisor.core.supervision.health import HealthEndpoint
from supervisor.roles.web.access.peers import Peers
from supervisor.roles.web.connection_table import REQUEST_S, AddressTurns, ConnectionEntry, ConnectionTable
from supervisor.roles.web.responses import HEADERS, PEER, unavailable
from supervisor.telemetry.logs import RepeatedWarning

ACCEPTS_MAX = 512
"""Connections that are accepted in one turn of the loop: those of a flood are cheaper to accept than to leave waiting,
where they fill the queue of the kernel, in which probes wait behind them."""

LINE_BYTES_MAX = 8190
PAUSE_S = 0.1
"""How long nothing is accepted after the kernel had no descriptor or memory for it."""

HANDSHAKES_MAX = 4
"""Handshakes of TLS that begin in one turn of the loop, the addresses in turn: each costs a signature, and those of a
flood would keep a probe waiting for all of them."""

_PROBES = frozenset(endpoint.title for endpoint in HealthEndpoint)
_REFUSED = "too many connections\n"
REFUSAL = "\r\n".join(
    (
        "HTTP/1.1 503 Service Unavailable",
        *(f"{name}: {value}" for name, value in HEADERS.items()),
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(_REFUSED)}",
        "Connection: close",
        "Retry-After: 1",
        "",
        _REFUSED,
    )
).encode()


class Held(Protocol):
    """The protocol of a connection that holds a place; it has a transport until it is gone."""

    transport: asyncio.Transport | None


@dataclass(slots=True)
class _ActiveConnection:
    """The parts of a connection that has sent something."""

    protocol: Held
    opening: asyncio.Task[Any]  # ends when the handshake, if there is one, is done

    @property
    def is_gone(self) -> bool:
        return self.opening.done() and self.protocol.transport is None

    @property
    def is_answered(self) -> bool:
        return self.protocol.transport is not None and self.protocol.transport.is_closing()

    def end(self) -> None:
        self.opening.cancel()
        if self.protocol.transport is not None:
            self.protocol.transport.abort()


class ConnectionGate:
    """Lets clients in, and ends connections that take too long."""

    def __init__(
        self,
        make: Callable[[], Any],
        clock: Clock,
        listener: socket.socket,
        *,
        identify: Callable[[socket.socket, Any], str | None] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        refusal: bytes = b"",
    ) -> None:
        """Guard ``listener``, which the parent bound, and open nothing yet.

        ``make`` and ``tls`` return the protocol and the TLS context of a new connection, ``identify`` who connected:
        None for who is not let in, by default anybody, by address. ``refusal`` is sent in plain text where there is no
        room.
        """
        self._make = make
        self._clock = clock
        self._listener = listener
        self._identify = identify or Peers(clock).identify
        self._tls = tls
        self._refusal = refusal
        self._places = ConnectionTable()
        self._silent: dict[ConnectionEntry, socket.socket] = {}
        self._connections: dict[ConnectionEntry, _ActiveConnection] = {}
        self._by_protocol: dict[Held, ConnectionEntry] = {}
        self._waiting: AddressTurns[socket.socket] = AddressTurns()  # for the handshake to begin
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._failed = RepeatedWarning("accept_failed", clock)

    def open(self) -> None:
        """Accept from now on."""
        self._pause = None
        self._listener.settimeout(0)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more, and end whoever has not asked yet."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        for place in self._places:
            if not place.has_asked:
                self._end(place)

    def admit(self, request: web.Request) -> None:
        """Note that the connection of ``request`` has sent it.

        Raises:
            web.HTTPServiceUnavailable: there is no room to deal with it, or its connection was pushed out just now.
        """
        request[PEER] = self.address_of(request.protocol)
        is_probe = request.path[1:].split("/", 1)[0] in _PROBES and "verbose" not in request.query
        if not self.ask(request.protocol, is_probe=is_probe):
            raise unavailable("too many connections")

    def ask(self, protocol: Held, *, is_probe: bool = False, is_long: bool = False) -> bool:
        """Note that a connection has sent its request; return whether there is room to deal with it.

        A long one may have the room of another stream, and is one from then on.
        """
        place = self._by_protocol.get(protocol)
        if place is None:
            return False
        if not is_probe:
            self._make_room(place, spares_streams=not is_long)
        has_room = self._places.ask(place, is_probe=is_probe)
        place.is_stream = place.is_stream or (is_long and has_room)
        return has_room

    def address_of(self, protocol: Held) -> str:
        """Return the address of a connection, as limits count it; empty when it is gone."""
        place = self._by_protocol.get(protocol)
        return place.address if place is not None else ""

    def _make_room(self, place: ConnectionEntry, *, spares_streams: bool) -> None:
        self._forget_gone()
        crowding = self._places.crowding(place, spares_streams=spares_streams)
        if crowding is not None:
            self._end(crowding)

    @contextmanager
    def as_stream(self, protocol: Held) -> Iterator[None]:
        """Let a connection stay for long while in the block; its answer has the time of any other from then on."""
        place = self._by_protocol.get(protocol)
        if place is None:
            yield
            return
        place.is_stream = True
        try:
            yield
        finally:
            place.is_stream, place.since_ns = False, self._clock.elapsed_ns()

    def sweep(self) -> None:
        """End connections that took too long. Call once a second."""
        self._failed.tell()
        self._forget_gone()
        for place in self._places.overdue(self._clock.elapsed_ns()):
            self._end(place)

    def _accept(self) -> None:
        newcomers = []
        for _ in range(ACCEPTS_MAX):
            try:
                plain, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:
                continue  # it went away while it waited
            except OSError as error:
                self._pause_for(error)
                break
            plain.settimeout(0)
            address = self._identify(plain, peer)
            if address is None:
                plain.close()
            else:
                newcomers.append(self._seat(plain, address))
        for place in newcomers:  # most of a flood have left already
            silent = self._silent.get(place)
            if silent is not None:
                self._loop.add_reader(silent, self._listen_to, place)

    def _seat(self, plain: socket.socket, address: str) -> ConnectionEntry:
        """Return the place of a newcomer, which is still to be listened to."""
        place = self._places.take(address, self._clock.elapsed_ns())
        self._silent[place] = plain
        while (surplus := self._places.surplus()) is not None:
            if not self._listen_to(surplus):
                self._end(surplus)
        return place

    def _listen_to(self, place: ConnectionEntry) -> bool:
        """Open the connection of ``place`` if its first byte has come; return whether it is silent no more."""
        plain = self._silent[place]
        try:
            has_spoken = bool(plain.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            has_spoken = False
        if not has_spoken:
            self._end(place)
            return True
        self._loop.remove_reader(plain)
        del self._silent[place]
        if self._places.is_full:
            self._forget_gone()
        has_room, leaver = self._places.speak(place, self._clock.elapsed_ns())
        if leaver is not None:
            self._end(leaver)
        if has_room and self._tls is not None:
            if not self._waiting:
                self._loop.call_soon(self._open_waiting)
            self._waiting.put(place, plain)
        elif has_room:
            self._open(place, plain)
        else:
            self._refuse(plain)
        return True

    def _open_waiting(self) -> None:
        """Begin some handshakes, and the rest in the next turn."""
        for _ in range(HANDSHAKES_MAX):
            if (found := self._waiting.take()) is not None:
                self._open(*found)
        if self._waiting:
            self._loop.call_soon(self._open_waiting)

    def _open(self, place: ConnectionEntry, plain: socket.socket) -> None:
        protocol = self._make()
        tls = None if self._tls is None else self._tls()
        budget = {} if tls is None else {"ssl_handshake_timeout": REQUEST_S, "ssl_shutdown_timeout": REQUEST_S}
        opening = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, plain, ssl=tls, **budget))
        opening.add_done_callback(partial(self._opened, place, plain))
        self._connections[place] = _ActiveConnection(protocol, opening)
        self._by_protocol[protocol] = place

    def _opened(self, place: ConnectionEntry, plain: socket.socket, opening: asyncio.Task[Any]) -> None:
        """Give the place back where the connection did not come about: cancelled, or no handshake."""
        if opening.cancelled() or opening.exception() is not None:
            plain.close()
            self._forget(place)

    def _refuse(self, plain: socket.socket) -> None:
        with plain, suppress(OSError):
            if self._tls is None:
                plain.recv(LINE_BYTES_MAX)  # what is left unread would reset the connection before the answer is read
                plain.send(self._refusal)
                plain.shutdown(socket.SHUT_WR)

    def _pause_for(self, error: OSError) -> None:
        self._failed.add(reason=error.strerror or type(error).__name__, places=len(self._places))
        now_ns = self._clock.elapsed_ns()
        silent = next((place for place in self._places if place.gives_way(now_ns)), None)
        if silent is not None:
            self._end(silent)
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(PAUSE_S, self.open)

    def _forget_gone(self) -> None:
        for place, connection in list(self._connections.items()):
            if connection.is_gone:
                self._forget(place)
            else:
                place.is_answered = connection.is_answered

    def _end(self, place: ConnectionEntry) -> None:
        connection = self._connections.get(place)
        plain = self._silent.pop(place, None) or self._waiting.drop(place)
        self._forget(place)
        if connection is not None:
            connection.end()
        if plain is not None:
            self._loop.remove_reader(plain)
            plain.close()

    def _forget(self, place: ConnectionEntry) -> None:
        self._places.leave(place)
        connection = self._connections.pop(place, None)
        if connection is not None:
            self._by_protocol.pop(connection.protocol, None)
