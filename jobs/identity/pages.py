"""Detection of further pages in a paged HTTP list, and of the next page's address. Pure; fetches nothing.

Upstreams mark it in many ways: a ``Link`` header (RFC 8288), an address of the next page, a cursor or token, a flag, a
count above the listed number. An address is followed; others are reported to the caller: a list that is known to
be incomplete must not be taken for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

PAGES_MAX = 1000
_NEXT = {
    "next",
    "nexturl",
    "nextlink",
    "nextpage",
    "nextpageurl",
    "nextcursor",
    "nexttoken",
    "nextpagetoken",
    "nextmarker",
    "nextrecordsurl",
    "continue",
    "continuationtoken",
    "odatanextlink",
}
_MORE = {"hasmore", "hasnext", "hasnextpage", "more", "moreresults", "next", "truncated", "istruncated"}
_LAST = {"last", "islast", "lastpage", "islastpage"}
_TOTAL = {"total", "totalcount", "totalitems", "totalresults", "totalelements", "count"}
_PAGES = {"totalpages", "pagecount", "pages", "lastpage"}
_AROUND = {"meta", "metadata", "responsemetadata", "paging", "pagination", "page", "pageinfo", "links"}
_AROUND |= {"cursor", "cursors", "next"}
_LINK = re.compile(r"""<([^<>]{1,4096})>([^<]{0,1024})""")
_NUMBER = re.compile(r"\d{1,20}")  # some servers write numbers as texts
_REL_NEXT = re.compile(r""";\s*rel\s*=\s*(?:"[^"]*\bnext\b[^"]*"|next\b)""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Paging:
    """References of one page to the others."""

    next: str | None = None  # absolute or relative address of the next page
    more: str | None = None  # what else says that there is a next page
    items: int = 0  # how many items all pages hold together, as far as it says
    pages: int = 0  # how many pages there are, as far as it says


class PageError(ValueError):
    """The next page has an address that is not followed; names the reason."""


def paging_of(document: Mapping[str, Any], headers: Mapping[str, str]) -> Paging:
    """Return the references of a page to the others.

    Args:
        document: the page without its items.
        headers: those of the answer it came in.
    """
    address = _linked(headers)
    more: str | None = None
    items = _total_of(headers)
    pages = 0
    for path, key, value in _markers(document):
        if key in _NEXT and isinstance(value, str | int) and not isinstance(value, bool) and value:
            if isinstance(value, str) and value.startswith(("http://", "https://", "/", "?")):
                address = address or value
            else:
                more = more or f"{path} is set"
        elif value is True and key in _MORE:
            more = more or f"{path} is true"
        elif value is False and key in _LAST:
            more = more or f"{path} is false"
        elif isinstance(value, int | str) and _NUMBER.fullmatch(str(value)):
            items = max(items, int(value) if key in _TOTAL else 0)
            pages = max(pages, int(value) if key in _PAGES else 0)
    return Paging(address, more, items, pages)


def next_address(current: str, following: str) -> str:
    """Return the absolute address of the next page of ``current``.

    Raises:
        PageError: it lies elsewhere: a list is believed as far as its own server sends it.
    """
    try:
        address = urljoin(current, following)
        is_elsewhere = origin(address) != origin(current)
    except ValueError:
        raise PageError("the address of its next page is no URL") from None
    if is_elsewhere:
        scheme, host, port = origin(current)
        raise PageError(f"its next page is at another server than {scheme}://{host}:{port}, and is not followed")
    return address


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of ``url``.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _markers(document: Mapping[str, Any], path: str = "", depth: int = 2) -> Iterator[tuple[str, str, Any]]:
    """Yield path, plain key and value of fields that may concern pages."""
    for name, value in document.items():
        key = re.sub(r"[^a-z]", "", name.lower())
        if isinstance(value, dict) and key in _AROUND and depth:
            inner = {(name if one == "href" else one): held for one, held in value.items()}
            yield from _markers(inner, f"{path}{name}.", depth - 1)
            if key == "next" and "href" not in value:  # a page by its cursor or number, under whatever name
                yield f"{path}{name}", key, any(value.values())
        else:
            yield f"{path}{name}", key, value


def _linked(headers: Mapping[str, str]) -> str | None:
    for address, parameters in _LINK.findall(headers.get("link", "")[:16384]):
        if _REL_NEXT.search(parameters):
            return str(address)
    return None


def _total_of(headers: Mapping[str, str]) -> int:
    """Return the count in ``X-Total-Count``, or in ``Content-Range: items 0-24/319``."""
    told = (*headers.get("x-total-count", "").split(","), headers.get("content-range", "").rpartition("/")[2])
    return max((int(one) for one in told if re.fullmatch(r"\d{1,12}", one.strip())), default=0)
