"""Host names and IP addresses in one spelling each.

Guarantees
    Case, one trailing dot, brackets and zone of IPv6, and IPv4 inside IPv6 make no difference to any judgement.
    Nothing is looked up: a name other than ``localhost`` is never loopback, whatever it resolves to.
"""

from __future__ import annotations

import ipaddress


def canonical_host(host: str) -> str:
    """Return the one spelling of a name or an address, without a port."""
    bare = host.lower().removesuffix(".")
    address = _address(bare)
    return bare if address is None else str(address)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``."""
    name = canonical_host(host)
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    inner = host[1:-1].removesuffix(".") if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(inner.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
