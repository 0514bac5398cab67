"""Detection of further pages in a paged HTTP list, and of the next page's address. Pure; fetches nothing.

Upstreams mark it in many ways: a ``Link`` header (RFC 8288), an address of the next page, a cursor or token, a flag, a
count above the listed number. An address is followed; others are reported to the caller: a list that is known to
be incomplete must not be taken for the whole. Fields are judged by the words of their names, in any spelling and beside
or within whatever: names that are known one by one are never all of them. What is meant otherwise, ``ignore`` names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

PAGES_MAX = 1000
# Of names as words in lower case: next_page_uri, odata_next_link
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ASIDE = re.compile(r"(^|_)(by|rate|ratelimit|quota|usage)(_|$)")  # says how many of something else there are
_LATER = re.compile(r"(^|_)(sync|delta|update|refresh|at)(_|$)")  # when or from where to ask again
_EARLIER = re.compile(r"(^|_)(prev|previous|before|first|start|self|current)(_|$)")
_POSITION = re.compile(r"(cursors?|token|marker|bookmark|continuation|continue|scroll_?id|evaluated_?key)$")
_POSITION_TEXT = re.compile(r"^(offset|after|skip)$")  # as a number it says where this page is
_MORE = re.compile(r"more|truncated|partial|incomplete|remaining")
_LAST = re.compile(r"(^|_)(is)?(last|last_?page|completed?|done|finished|final|exhausted)$|(^|_)end(_|$)")
_PAGES = re.compile(r"pages$|page_?count$|last_?page$|(^|_)(num|max)_page$")
_TOTAL = re.compile(
    r"total|(^|_)(count|size|records|entries|objects|hits|items|results|elements|rows|found|matches|num|number_of)(_|$)"
)
_NO_TOTAL = re.compile(r"page|limit|(^|_)(per|max|min|bytes|time|took|ms|seconds)(_|$)")
_HEADER = re.compile(r"(^|_)(total|totalpages|next|has_more)(_|$)")
_TRUTH = {"true": True, "false": False, "null": None}
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
    items_at: str = field(default="", compare=False)
    pages_at: str = field(default="", compare=False)


class PageError(ValueError):
    """The next page has an address that is not followed; names the reason."""


def paging_of(document: Mapping[str, Any], headers: Mapping[str, str], ignore: Collection[str] = ()) -> Paging:
    """Return the references of a page to the others.

    Args:
        document: the page without its items.
        headers: those of the answer it came in.
        ignore: paths of fields, and names of headers, that say nothing of pages.
    """
    address = _linked(headers)
    more: str | None = None
    position: str | None = None
    is_ended = False
    items = (0 if "content-range" in ignore else _range_of(headers), "content-range")
    pages = (0, "")
    for path, key, told in (*_markers(document, ignore), *_header_markers(headers, ignore)):
        value = _TRUTH.get(told.lower(), told) if isinstance(told, str) else told
        number = int(value) if isinstance(value, int | str) and _NUMBER.fullmatch(str(value)) else None
        if "next" in key and not _LATER.search(key):
            is_ended = is_ended or not value
            if isinstance(value, str) and value.startswith(("http://", "https://", "/", "?")):
                address = address or value
            elif value:
                more = more or f"{path} is {'true' if value is True else 'set'}"
        elif _POSITION.search(key) or (_POSITION_TEXT.search(key) and number is None):
            if value and not _EARLIER.search(key) and not _LATER.search(key):
                position = position or f"{path} is set"
        elif _MORE.search(key):
            is_ended = is_ended or value is False or number == 0
            if value is True or number:
                more = more or f"{path} is {'true' if value is True else number}"
        elif _LAST.search(key) and isinstance(value, bool):
            is_ended = is_ended or value
            if not value:
                more = more or f"{path} is false"
        if number is not None and _PAGES.search(key):
            pages = max(pages, (number, path))
        elif number is not None and _TOTAL.search(key) and not _NO_TOTAL.search(key):
            items = max(items, (number, path))
    # Some tell where a page ends on the last one too, and that it is the last.
    return Paging(address, more or (None if is_ended else position), items[0], pages[0], items[1], pages[1])


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


def _markers(
    document: Mapping[str, Any], ignore: Collection[str], path: str = "", depth: int = 2
) -> Iterator[tuple[str, str, Any]]:
    """Yield path, name in words and value of fields that may concern pages."""
    beside = {_words(name) for name in document}
    for name, value in document.items():
        key, where = _words(name), f"{path}{name}"
        if where in ignore or _ASIDE.search(key) or (key == "size" and _is_of_a_page(path, beside)):
            continue
        if isinstance(value, dict):
            inner = {(name if one in {"href", "value"} else one): held for one, held in value.items()}
            if depth:
                yield from _markers(inner, ignore, f"{where}.", depth - 1)
            if "href" not in value:  # a position by several values, or a page under whatever name
                yield where, key, any(held for one, held in value.items() if not _EARLIER.search(_words(one)))
        elif isinstance(value, list):
            yield from ((where, "next", _href(one)) for one in value if isinstance(one, dict) and _is_next(one))
            yield where, key, bool(value)
        else:
            yield where, key, value


def _header_markers(headers: Mapping[str, str], ignore: Collection[str]) -> Iterator[tuple[str, str, str]]:
    for name, value in headers.items():
        if name not in ignore and _HEADER.search(_words(name)):
            yield from ((name, _words(name), one.strip()) for one in value.split(","))  # which may come twice


def _words(name: str) -> str:
    return "_".join(_WORD.findall(name)).lower()


def _is_of_a_page(path: str, beside: Collection[str]) -> bool:
    """Return whether ``size`` is that of one page: beside a limit it is that of the list."""
    has_limit = any(re.search(r"limit|per_?page|page_?(size|len)", name) for name in beside)
    return not has_limit and re.search(r"page|number|total", " ".join((_words(path), *beside))) is not None


def _is_next(link: Mapping[str, Any]) -> bool:
    return re.search(r"\bnext\b", str(link.get("rel"))) is not None


def _href(link: Mapping[str, Any]) -> Any:
    return next((link[name] for name in ("href", "url", "uri", "link") if name in link), True)


def _linked(headers: Mapping[str, str]) -> str | None:
    for address, parameters in _LINK.findall(headers.get("link", "")[:16384]):
        if _REL_NEXT.search(parameters):
            return str(address)
    return None


def _range_of(headers: Mapping[str, str]) -> int:
    """Return the count in ``Content-Range: items 0-24/319``."""
    told = headers.get("content-range", "").rpartition("/")[2]
    return int(told) if re.fullmatch(r"\d{1,12}", told.strip()) else 0
