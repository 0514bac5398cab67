"""Places for connections: who is let in, who is pushed out for a newcomer, and who has stayed too long.

Guarantees
    At most ``SILENT_MAX`` connections that have sent no byte, and ``CONNECTIONS_MAX`` that have, also while TLS shakes
    hands. Of the latter at most ``BUSY_MAX`` hold requests other than probes, ``PER_ADDRESS_MAX`` of one address, so
    that the rest always answers /livez and /readyz.
    Without room the address that holds the most gives up its oldest: nobody is pushed out by those who hold more, so
    that a few addresses with slow requests keep no other address out.
    Whoever has sent a byte does not give way to those who have not.

Pure accounting: nothing here reads a socket or waits.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

from supervisor.core.units import SECOND_NS

SILENT_MAX = 64
CONNECTIONS_MAX = 64
PROBES_RESERVED = 8
BUSY_MAX = CONNECTIONS_MAX - PROBES_RESERVED
PER_ADDRESS_MAX = 16
PROBE_S = 2.0
"""From accept to where a connection that is not busy gives way: its client holds it after the answer."""

REQUEST_S = 5.0
"""From accept to the end of the request's header, with the handshake of TLS."""

LIFE_S = 15.0
"""From accept, or the end of a wait, to the last byte of the answer."""

STREAM_LIFE_S = 3660.0
"""The same for a stream, which ends by itself after an hour, and while a request waits for a run."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ConnectionEntry:
    """One connection."""

    address: str
    since_ns: int
    has_spoken: bool = False  # sent a byte
    has_asked: bool = False
    is_busy: bool = False  # with a request that is no probe
    is_stream: bool = False
    is_answered: bool = False  # and closing: over TLS that waits for the client

    @property
    def life_s(self) -> float:
        """Time limit of its present state, counted from accept on."""
        if self.is_stream:
            return STREAM_LIFE_S
        return LIFE_S if self.has_asked else REQUEST_S

    def gives_way(self, now_ns: int) -> bool:
        """Return whether a newcomer may have it."""
        is_over = self.is_answered or now_ns - self.since_ns > PROBE_S * SECOND_NS
        return not self.is_busy and (not self.has_asked or is_over)


class ConnectionTable:
    """All connections of one listener, in the order of their accept."""

    def __init__(self) -> None:
        self._silent: dict[str, dict[ConnectionEntry, None]] = {}  # by address
        self._silent_count = 0
        self._speaking: dict[ConnectionEntry, None] = {}

    def __len__(self) -> int:
        return self._silent_count + len(self._speaking)

    def __iter__(self) -> Iterator[ConnectionEntry]:
        return iter((*chain.from_iterable(self._silent.values()), *self._speaking))

    @property
    def is_full(self) -> bool:
        """True if one more that speaks needs the place of another."""
        return len(self._speaking) >= CONNECTIONS_MAX

    def take(self, address: str, now_ns: int) -> ConnectionEntry:
        """Return the place of a newcomer, silent so far. Let go of ``surplus`` before the next one."""
        place = ConnectionEntry(address, now_ns)
        self._silent.setdefault(address, {})[place] = None
        self._silent_count += 1
        return place

    def surplus(self) -> ConnectionEntry | None:
        """Return the silent place that has to be left, if there are too many."""
        if self._silent_count <= SILENT_MAX:
            return None
        most = max(self._silent, key=lambda address: len(self._silent[address]))
        return next(iter(self._silent[most]))

    def speak(self, place: ConnectionEntry, now_ns: int) -> tuple[bool, ConnectionEntry | None]:
        """Note the first byte of ``place``; return whether there is room for it, and which one gave way, if any."""
        self._break_silence(place)
        leaver = None
        if self.is_full:
            leaver = _oldest_of_most([each for each in self._speaking if each.gives_way(now_ns)])
            if leaver is None:
                return False, None
            self.leave(leaver)
        place.has_spoken = True
        self._speaking[place] = None
        return True, leaver

    def ask(self, place: ConnectionEntry, *, is_probe: bool) -> bool:
        """Note that a request has come; return whether it may be dealt with."""
        place.has_asked = True
        if is_probe:
            return True
        busy = [each for each in self._speaking if each.is_busy]
        near = sum(each.address == place.address for each in busy)
        place.is_busy = len(busy) < BUSY_MAX and near < PER_ADDRESS_MAX
        return place.is_busy

    def crowding(self, newcomer: ConnectionEntry, *, spares_streams: bool = True) -> ConnectionEntry | None:
        """Return the busy place that is to be left for ``newcomer``, if all are taken.

        It is the oldest of the address that holds the most, where that keeps as many as the newcomer's then has.
        """
        busy = [each for each in self._speaking if each.is_busy]
        if len(busy) < BUSY_MAX:
            return None
        ours = [each for each in busy if not (spares_streams and each.is_stream)]
        leaver = _oldest_of_most(ours)
        if leaver is None:
            return None
        held = Counter(each.address for each in ours)
        return leaver if held[leaver.address] > held[newcomer.address] + 1 else None

    def leave(self, place: ConnectionEntry) -> None:
        """Give a place back; twice is no mistake."""
        self._break_silence(place)
        self._speaking.pop(place, None)

    def _break_silence(self, place: ConnectionEntry) -> None:
        near = self._silent.get(place.address, {})
        if place in near:
            del near[place]
            self._silent_count -= 1
            if not near:
                del self._silent[place.address]

    def overdue(self, now_ns: int) -> list[ConnectionEntry]:
        """Return the places that were held for too long."""
        return [place for place in self if now_ns - place.since_ns > place.life_s * SECOND_NS]


class AddressTurns(Generic[T]):
    """Places that wait to be dealt with: one of each address before the second of any, the oldest of each first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[ConnectionEntry, T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def put(self, place: ConnectionEntry, value: T) -> None:
        """Let ``place`` wait, with what is needed for it."""
        self._by_address.setdefault(place.address, {})[place] = value

    def take(self) -> tuple[ConnectionEntry, T] | None:
        """Remove and return the next one; None where none waits."""
        for address in self._by_address:
            near = self._by_address.pop(address)
            place = next(iter(near))
            value = near.pop(place)
            if near:
                self._by_address[address] = near  # behind the other addresses
            return place, value
        return None

    def drop(self, place: ConnectionEntry) -> T | None:
        """Remove ``place`` and return its value; None where it does not wait."""
        near = self._by_address.get(place.address, {})
        value = near.pop(place, None)
        if value is not None and not near:
            del self._by_address[place.address]
        return value


def _oldest_of_most(places: Sequence[ConnectionEntry]) -> ConnectionEntry | None:
    """Return the first of ``places`` among those of the address that holds most of them."""
    held = Counter(place.address for place in places)
    most = max(held.values(), default=0)
    return next((place for place in places if held[place.address] == most), None)


@lru_cache(maxsize=1024)
def address_of(host: str) -> str:
    """Return the address that limits count: of IPv6 the network of 64 bits, since a single client has all of it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host  # a path, or nothing: a socket of this machine
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
