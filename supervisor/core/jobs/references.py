"""The rules of arguments of jobs: variables and files of a worker that a run may name, addresses that it connects to.

Guarantees
    Settings of the tree (``TENURE_*``), /proc and the files that the tree withholds are refused whatever is allowed.
    Without configuration HTTP jobs reach only public unicast addresses: not loopback, link-local (metadata services),
    private, shared, multicast or reserved ones, nor IPv6 forms that map to one of these.

Does not guarantee
    That a path has no links: resolve them first.
    Anything about names of hosts: ask about the address of each connection, when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar

ENV_ALLOWED = ("JOB_*",)
FILES_ALLOWED = ("/run/secrets/jobs",)
_NEVER_ENV = "TENURE_*"
_NEVER_FILES = ("/proc", "/sys", "/dev")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address
_NOT_PUBLIC = (  # whatever the version of Python says of them
    IPv4Network("168.63.129.16/32"),  # public by its number, but the platform's own host on Azure
    IPv4Network("192.0.0.0/24"),  # protocol assignments, among them a metadata service
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
)
_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")  # as the last label: another way to write an IPv4 address


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """The allow-list of one process. A directory includes everything below it."""

    current: ClassVar[ReferenceRule]
    """The rule of this process, as its settings say: without one of its own the strictest that is useful."""

    env: Sequence[str] = ENV_ALLOWED
    files: Sequence[str] = FILES_ALLOWED
    withheld: Sequence[str] = ()

    def allows_variable(self, name: str) -> bool:
        """Return whether a run may have the value of an environment variable."""
        return not fnmatchcase(name.upper(), _NEVER_ENV) and any(fnmatchcase(name, each) for each in self.env)

    def allows_file(self, path: str, *, resolve: Callable[[str], str]) -> bool:
        """Return whether a run may have the content of ``path``, as ``resolve``, which follows links, returned it.

        The links of the rule are followed each time: mounted secrets are other files when they were renewed.
        """
        withheld, files = (list(map(resolve, places)) for places in (self.withheld, self.files))
        return not _is_below(path, (*_NEVER_FILES, *withheld)) and _is_below(path, files)


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


ReferenceRule.current = ReferenceRule()


@dataclass(frozen=True, slots=True)
class DestinationRule:
    """The allow-list of one process: networks, addresses and names of hosts."""

    current: ClassVar[DestinationRule]
    """The rule of this process, as its settings say: without one of its own, public addresses alone."""

    allow: Sequence[str] = ()

    def allows_address(self, address: str) -> bool:
        """Return whether a job may connect to ``address``, which is numeric."""
        given = ip_address(address.partition("%")[0])
        meant = _meant(given)
        if any(each in network for network in map(_network, self.allow) if network for each in (given, meant)):
            return True
        return _is_public(meant)

    def allows_host(self, host: str) -> bool:
        """Return whether ``host`` is allowed by its name, whatever addresses it has."""
        name = host.lower().rstrip(".")
        return any(
            name == entry or (entry.startswith("*.") and name.endswith(entry[1:]))
            for entry in (each.lower().rstrip(".") for each in self.allow if _network(each) is None)
        )


def destination_fault(entry: str) -> str:
    """Return why ``entry`` is neither a network nor the name of a host; empty if it is one."""
    if _network(entry) is not None:
        return ""
    name = entry.lower().rstrip(".")
    if "/" in entry or _NUMBER.fullmatch(name.rpartition(".")[2]) or not _NAME.fullmatch(name):
        return "is no network, address or name of a host: write 10.1.0.0/16, fd00::/8, 10.1.2.3, or *.svc.example"
    return ""


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        return None if "%" in entry else ip_network(entry)
    except ValueError:
        return None


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address carries; else the address."""
    if isinstance(address, IPv4Address):
        return address
    carried = address.ipv4_mapped or address.sixtofour
    if carried is None and address in _NAT64:
        carried = IPv4Address(int(address) & 0xFFFF_FFFF)
    return carried or address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_UNICAST and address.is_global
    return address.is_global and not address.is_multicast and not any(address in each for each in _NOT_PUBLIC)


DestinationRule.current = DestinationRule()
