"""Values of replies: Redis' answers as numbers, texts and groups. Any value may be missing or foreign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from supervisor.core.json_values import read_json

WORDS_MAX = 200
"""Characters of who asks, and why, that are taken from a record in Redis."""

_DIGITS_MAX = 15  # below 2^53, which Lua counts exactly
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
T = TypeVar("T")


def unpack_json(data: bytes | None) -> dict[str, Any]:
    """Return the object in ``data``; empty when there is none or it is no object."""
    try:
        value = read_json(data) if data else {}
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a reply's bytes, number or nil as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def is_text(value: bytes) -> bool:
    """Return whether a call can carry a reply's ``value`` back: a name of another form is none of ours."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def cut(words: str, length_max: int = WORDS_MAX) -> str:
    """Return ``words`` that a person wrote, as far as they are shown: who writes to Redis knows no limit."""
    return words[:length_max]


def number(value: Any) -> int:
    """Return a reply's number; 0 for nil and for an empty string."""
    return int(value) if value else 0


def foreign_number(value: Any) -> int | None:
    """Return a number of a record that anybody may have written; None where it is none, or has more than 15 digits."""
    written = value if isinstance(value, bytes) else text(value).encode("utf-8", "replace")
    return int(written) if written.isdigit() and len(written) <= _DIGITS_MAX else None  # of bytes: 0 to 9 only


def foreign_numbers(line: bytes, count: int) -> Sequence[int] | None:
    """Return the ``count`` numbers of a line that anybody may have written; None where it holds anything else."""
    words = line.split()
    is_read = len(words) == count and b"".join(words).isdigit() and max(map(len, words)) <= _DIGITS_MAX
    return tuple(map(int, words)) if is_read else None


def foreign_moment(value: Any) -> int | None:
    """Return a score in ms that anybody may have written, of the years 1 to 9999; None where it is none."""
    try:
        moment = float(value)
    except (TypeError, ValueError):
        return None
    return int(moment) if _YEAR_1_MS <= moment < _YEAR_10000_MS else None


def optional_number(value: Any) -> int | None:
    """Return a reply's number; None for nil and for an empty string."""
    return None if value is None or value == b"" else int(value)


def texts(reply: Any) -> list[str]:
    """Return a reply's list as texts."""
    return [text(item) for item in reply]


def chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return ``items`` in groups of ``size``, as replies flatten records. The last must be whole."""
    assert len(items) % size == 0
    return [items[i : i + size] for i in range(0, len(items), size)]


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """Return a flat reply as pairs."""
    return list(zip(reply[::2], reply[1::2], strict=True))
