"""Places for connections: who is let in, who is pushed out for a newcomer, and who has stayed too long.

Guarantees
    At most ``CONNECTIONS_MAX`` places, counted from accept on: also while TLS shakes hands. Of them at most
    ``BUSY_MAX`` hold requests other than probes, so that the rest always answers /livez and /readyz.
    One address holds at most ``PER_ADDRESS_MAX`` places without a request, and as many with one that is no probe.
    Who has asked nothing yet, or has had the time of a probe, gives way to a newcomer, the oldest first, of the
    newcomer's own address before others.

Pure accounting: nothing here reads a socket or waits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

CONNECTIONS_MAX = 64
PROBES_RESERVED = 8
BUSY_MAX = CONNECTIONS_MAX - PROBES_RESERVED
PER_ADDRESS_MAX = 16
PROBE_S = 2.0
"""From accept to where a connection that is not busy gives way: its client holds it after the answer."""

REQUEST_S = 5.0
"""From accept to the end of the request's header, with the handshake of TLS."""

LIFE_S = 15.0
"""From accept to the last byte of the answer."""

STREAM_LIFE_S = 3660.0
"""The same for a stream, which ends by itself after an hour."""


@dataclass(slots=True, eq=False)
class Place:
    """One connection."""

    address: str
    since_ns: int
    has_asked: bool = False
    is_busy: bool = False  # with a request that is no probe
    is_stream: bool = False

    @property
    def life_s(self) -> float:
        """How long it may stand in its present state, from accept on."""
        if self.is_stream:
            return STREAM_LIFE_S
        return LIFE_S if self.has_asked else REQUEST_S

    def gives_way(self, now_ns: int) -> bool:
        """Return whether a newcomer may have it."""
        return not self.is_busy and (not self.has_asked or now_ns - self.since_ns > PROBE_S * 1e9)


class Places:
    """All connections of one listener, in the order of their accept."""

    def __init__(self) -> None:
        self._taken: dict[Place, None] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Place]:
        return iter(tuple(self._taken))

    def take(self, address: str, now_ns: int) -> tuple[Place | None, Place | None]:
        """Return the place for a newcomer, None without room, and the one that has to give way for it, if any."""
        idle = [place for place in self._taken if place.gives_way(now_ns)]
        near = [place for place in idle if place.address == address]
        leaver = None
        if len(near) >= PER_ADDRESS_MAX:
            leaver = near[0]
        elif len(self._taken) >= CONNECTIONS_MAX:
            if not idle:
                return None, None
            leaver = (near or idle)[0]
        if leaver is not None:
            self.leave(leaver)
        place = Place(address, now_ns)
        self._taken[place] = None
        return place, leaver

    def ask(self, place: Place, *, is_probe: bool) -> bool:
        """Note that a request has come; return whether it may be dealt with."""
        place.has_asked = True
        if is_probe:
            return True
        busy = [each for each in self._taken if each.is_busy]
        near = sum(each.address == place.address for each in busy)
        place.is_busy = len(busy) < BUSY_MAX and near < PER_ADDRESS_MAX
        return place.is_busy

    def leave(self, place: Place) -> None:
        """Give a place back; twice is no mistake."""
        self._taken.pop(place, None)

    def overdue(self, now_ns: int) -> list[Place]:
        """Return the places that were held for too long."""
        return [place for place in self._taken if now_ns - place.since_ns > place.life_s * 1e9]


def address_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, since a single client has all of it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host  # a path, or nothing: a socket of this machine
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
