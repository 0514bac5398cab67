"""Between values and the bytes in Redis. The only place in the store where types are loose.

Guarantees
    What one version writes, the version before and after it reads (see core/model.py).
    Nothing larger than its cap goes in.

Does not guarantee
    That every byte string in Redis was written by us: readers get a ``DecodeError``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.json_values import read_json
from supervisor.core.model import PAYLOAD_BYTES_MAX

ERROR_BYTES_MAX = 4096
WORDS_MAX = 200
"""Characters of who asks, and why, that are taken from a record in Redis."""

_DIGITS_MAX = 15  # below 2^53, which Lua counts exactly
_CHARGES = re.compile(rb"(\d{1,15}),(\d{1,15}),(\d{1,15})")
_ENCODER = msgspec.json.Encoder()
T = TypeVar("T")


def pack_result(run_id: str, result: bytes) -> bytes:
    """Return ``result`` if it is within its cap.

    Raises:
        PayloadTooLargeError: it is over 64 KiB.
    """
    if len(result) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"run {run_id}: its result has {len(result)} bytes, the limit is {PAYLOAD_BYTES_MAX}; "
            f"store the data elsewhere and return a reference"
        )
    return result


def pack_error(error: dict[str, Any] | None) -> bytes:
    """Return ``error`` as JSON of at most 4 KiB, its longest texts cut at the front: the end of a traceback tells."""
    if error is None:
        return b""
    body = _ENCODER.encode(error)
    keep = ERROR_BYTES_MAX
    while len(body) > ERROR_BYTES_MAX and keep > 16:
        keep //= 2
        body = _ENCODER.encode({str(k)[:64]: _tail(v, keep) for k, v in list(error.items())[:16]})
    return body if len(body) <= ERROR_BYTES_MAX else b'{"reason":"error too large"}'


def _tail(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= keep else "…" + value[-keep:]
    return value if isinstance(value, int | float | bool) or value is None else _tail(repr(value), keep)


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


def cut(words: str, length_max: int = WORDS_MAX) -> str:
    """Return ``words`` that a person wrote, as far as they are shown: who writes to Redis knows no limit."""
    return words[:length_max]


def number(value: Any) -> int:
    """Return a reply's number; 0 for nil and for an empty string."""
    return int(value) if value else 0


def foreign_number(value: Any) -> int | None:
    """Return a number of a record that anybody may have written; None for what is none, or has more than 15 digits."""
    written = text(value)
    return int(written) if written.isascii() and written.isdigit() and len(written) <= _DIGITS_MAX else None


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


def charges(value: bytes | None) -> tuple[int, int, int]:
    """Return the attempts, crashes and interrupts in ``value``; zeros for a run on a clean first attempt."""
    found = _CHARGES.fullmatch(value or b"")
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def fence_parts(token: bytes) -> tuple[str, int, int]:
    """Return the session, attempt and fetch time in a fence; empty and zeros when there is none."""
    session, _, rest = text(token).partition("|")
    attempt, _, fetched = rest.partition("|")
    is_one = attempt.isdecimal() and fetched.isdecimal()
    return (session, int(attempt), int(fetched)) if is_one else ("", 0, 0)
