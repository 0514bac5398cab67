"""Host names that requests may be addressed to: the defence against DNS rebinding.

Guarantees
    A page of another site that has its own name resolve to this address reads nothing: its requests carry that name.
    Case, ports, trailing dots and the spellings of an IPv6 address make no difference.
    A target in absolute form (``GET http://name/``) names a host too, and both names must be allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiohttp import web

from supervisor.core.network.host_names import canonical_host

ANY = "*"
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"[a-z]+://([^/?#]*)", re.IGNORECASE)  # of a target in absolute form (RFC 9112, 3.2.2)
_FIELD = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^\[\]:/@\s]{1,255}))(?::[0-9]{0,5})?", re.ASCII)


class Hosts:
    """The names and addresses that are answered."""

    def __init__(self, bound: str, allowed: Sequence[str]) -> None:
        self._is_any = ANY in allowed
        self._names = frozenset(canonical_host(each) for each in (*_ALWAYS, bound, *allowed))

    def admit(self, request: web.Request) -> bool:
        """Return whether ``request`` names this server: by an allowed name, or by the address that it came in on."""
        if self._is_any:
            return True
        fields = request.headers.getall("Host", [])
        if len(fields) != 1:
            return False
        target = _AUTHORITY.match(request.raw_path)
        named = [fields[0].strip(), *([target[1]] if target is not None else [])]
        return all(self._is_own(field, request) for field in named)

    def _is_own(self, field: str, request: web.Request) -> bool:
        found = _FIELD.fullmatch(field)
        if found is None:
            return False
        asked = canonical_host(found["v6"] or found["name"])
        return asked in self._names or asked == _own_address(request)


def _own_address(request: web.Request) -> str | None:
    """Return the address of this end of the connection: of a server bound to 0.0.0.0 the one that was dialled."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return canonical_host(name[0]) if isinstance(name, tuple) and name[0] else None
