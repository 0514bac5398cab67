"""Names of hosts in one spelling, and the location of user names and passwords inside URLs.

Guarantees
    Case, one trailing dot, brackets and zone of IPv6, and IPv4 inside IPv6 make no difference to any judgement.
    Nothing is looked up: a name other than ``localhost`` is never loopback, whatever it resolves to.
    Credentials are found in linear time in every text: each character is looked at a bounded number of times.
    Everything up to the last ``@`` of a URL counts as credentials: people forget to percent-encode.

Does not guarantee
    That credentials which it finds are secrets. ``redis://host/a@b`` has no password, and is masked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

MARK = "://"
_END = re.compile(r"""[\s"'<>]""")
_AUTHORITY_END = re.compile(r"[/?#]")
_WEB = ("http", "https")
# Only for the web is host:port followed by a path that holds an @ likelier than a password of digits and a raw slash.
_WEB_PASSWORD = re.compile(r"[^/@:?#]*:(?!\d{1,5}[/?#])")


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


def userinfo_of(url: str) -> tuple[int, int] | None:
    """Return start and end of the user information of ``url``, white space and quotes included; None without one."""
    start = url.find(MARK) + len(MARK)
    end = url.rfind("@", start) if start >= len(MARK) else -1
    return (start, end) if end >= 0 else None


def find_userinfo(text: str, *, is_cut: bool = False) -> Iterator[tuple[int, int]]:
    """Yield start and end of the user information of each URL in ``text``, without its ``@``.

    Args:
        text: running text; a URL ends at white space, a quote or an angle bracket.
        is_cut: whether the end of ``text`` was cut off. An ``@`` may have followed then, so a URL that reaches the
            end counts as credentials unless its beginning rules them out.
    """
    at = text.find(MARK)
    while at >= 0:
        found = _END.search(text, at)
        end = found.start() if found is not None else len(text)
        last = len(text) if is_cut and found is None else text.rfind("@", at, end)
        yield from _userinfo(text, at, last)
        at = text.find(MARK, end)


def _userinfo(text: str, at: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield from the URLs of one word: ``at`` is the first ``://`` of it, ``last`` its last ``@``."""
    while 0 <= at < last:
        start = at + len(MARK)
        if not text[max(0, at - 5) : at].lower().endswith(_WEB) or _WEB_PASSWORD.match(text, start, last):
            yield start, last
            return
        slash = _AUTHORITY_END.search(text, start, last)
        own = last if slash is None else text.rfind("@", start, slash.start())
        if own >= 0:
            yield start, own
        at = text.find(MARK, start, last)
