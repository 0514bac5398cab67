"""What must never be printed: values under secret names, and credentials inside text.

Masks by name and by shape, so it is the second line of defence: settings keep their
secrets in ``SecretStr``. It cannot know a secret that a job logs under an innocent name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

MASK = "***"
ITEMS_MAX = 100
"""Further items of a sequence are left out."""

DEPTH_MAX = 6
"""Deeper values are masked whole: nothing worth reading nests further."""

_NO_NAMES: frozenset[str] = frozenset()
_ANYWHERE = frozenset(
    {"password", "passwd", "pwd", "passphrase", "secret", "secrets", "authorization", "cookie", "apikey"}
    | {"credential", "credentials"}
)
_LAST = frozenset({"token", "pass", "auth", "dsn"})
_PAIRS = frozenset({("api", "key"), ("private", "key"), ("access", "key"), ("encryption", "key"), ("signing", "key")})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_NAMES = r"(?:[\w.-]*(?:password|passwd|pwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key)|auth)"
# Everything up to the last @: people forget to percent-encode. Only for the web is host:port followed by a path
# that holds an @ likelier than a password of digits followed by a raw slash.
_USERINFO = re.compile(
    r"""(?i)(?P<scheme>https?://)(?:[^\s/@:?#"'<>]*:(?!\d{1,5}(?:[/?#]|$))[^\s"'<>]*|[^\s/?#"'<>]*)@"""
    r"""|(?P<other>[a-z][a-z0-9+.-]*://)(?<!http://)(?<!https://)[^\s"'<>]*@"""
)
_ASSIGNED = re.compile(rf"""(?i)(?P<name>\b{_NAMES}\s*=\s*)(?:"[^"]*"|'[^']*'|[^\s&"',;]+)""")
_HEADER = re.compile(
    r"(?i)(?P<name>\bauthorization['\"]?\s*[:=]\s*['\"]?)(?:(?:basic|bearer|digest|token)\s+)?[^\s'\",]+"
)
_BEARER = re.compile(r"(?i)(?P<name>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_HINT = re.compile(r"(?i)://|=|authorization|bearer")


@lru_cache(maxsize=2048)
def is_secret_name(name: str) -> bool:
    """Return whether a value under ``name`` is to be hidden.

    By whole words, because ``access_token`` hides and ``tokens_deleted`` is a count.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    return words[-1] in _LAST or not _ANYWHERE.isdisjoint(words) or any(pair in _PAIRS for pair in pairwise(words))


_hidden: tuple[str, ...] = ()


@contextmanager
def hiding(values: tuple[str, ...]) -> Iterator[None]:
    """Mask these texts too, wherever they stand, until the end of what is inside: one run at a time knows secrets.

    For a process that executes one run at a time; the longest text first.
    """
    global _hidden  # noqa: PLW0603 - what a process must not print is one per process
    before, _hidden = _hidden, values
    try:
        yield
    finally:
        _hidden = before


def mask_text(text: str) -> str:
    """Return ``text`` without URL user information, bearer tokens, ``password=…`` values and what is hidden now."""
    for value in _hidden:
        if value in text:
            text = text.replace(value, MASK)
    if _HINT.search(text) is None:
        return text
    text = _USERINFO.sub(lambda found: f"{found['scheme'] or found['other']}{MASK}@", text)
    text = _HEADER.sub(rf"\g<name>{MASK}", text)
    text = _BEARER.sub(rf"\g<name>{MASK}", text)
    return _ASSIGNED.sub(rf"\g<name>{MASK}", text)


def mask(value: Any, *, depth: int = 0, also: frozenset[str] = _NO_NAMES) -> Any:
    """Return ``value`` with secrets masked, through mappings and sequences; ``also`` are further names."""
    if isinstance(value, str):
        return mask_text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        if depth >= DEPTH_MAX:
            return MASK
        return {str(key): mask_entry(str(key), item, depth=depth + 1, also=also) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        if depth >= DEPTH_MAX:
            return MASK
        return [mask(item, depth=depth + 1, also=also) for item in islice(value, ITEMS_MAX)]
    # Anything else shows itself as text, because an encoder would walk its fields past this mask.
    return mask(value.value, depth=depth) if isinstance(value, Enum) else mask_text(str(value))


def mask_entry(name: str, value: Any, *, depth: int = 0, also: frozenset[str] = _NO_NAMES) -> Any:
    """Return what may be printed of ``value``, which stands under ``name``; nothing, if that is among ``also``."""
    if name in also and value is not None:
        return MASK
    if is_secret_name(name) and value is not None and not isinstance(value, bool) and value != "":
        return MASK
    return mask(value, depth=depth, also=also)
