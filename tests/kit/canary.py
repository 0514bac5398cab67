"""The one text that stands for every secret in the tests, and where it must never be seen.

A test that needs a token, a password or other secret data uses ``CANARY``, or a text that holds it. Whatever any test of
the run prints, logs, serves or leaves in Redis as a record is searched for it: the output that pytest captured
(tests/conftest.py), the log and the pages of whole trees and the output of commands (tests/e2e/trees.py), and what
stands in a server when a test is over (tests/kit/servers.py). Only what carries a run to its worker may hold
it: the payload of a run that has not finished, and the list of another system.
"""

from __future__ import annotations

from typing import Any

CANARY = "tenure-canary-7f3a"
_PAYLOAD = b":data"
_OURS = b"{t"  # {tenure:<cluster>}: and the prefixes of tests


def show_nothing_secret(text: str | bytes, *, where: str) -> None:
    """Fail if ``text`` holds the canary; say which line, without what is around it."""
    lines = (text.decode(errors="replace") if isinstance(text, bytes) else text).splitlines()
    found = [number for number, line in enumerate(lines, 1) if CANARY in line]
    assert not found, f"a secret is shown by {where}, in line {found[0]} of {len(lines)}"


def keys_with_secrets(raw: Any) -> list[str]:
    """Return the keys of ours, but for payloads, in which the canary stands.

    Args:
        raw: a redis client of the server, without decoding.
    """
    keys = [key for key in raw.scan_iter(count=1000) if key.startswith(_OURS) and not key.endswith(_PAYLOAD)]
    return [key.decode() for key in keys if CANARY.encode() in _content(raw, key)]


def _content(raw: Any, key: bytes) -> bytes:
    """Return all that a key holds, of whatever type."""
    readers = {
        b"string": lambda: raw.get(key),
        b"hash": lambda: raw.hgetall(key),
        b"list": lambda: raw.lrange(key, 0, -1),
        b"set": lambda: raw.smembers(key),
        b"zset": lambda: raw.zrange(key, 0, -1),
        b"stream": lambda: raw.xrange(key),
    }
    reader = readers.get(raw.type(key))  # none: it expired meanwhile
    value = reader() if reader else None
    return value if isinstance(value, bytes) else repr(value).encode()
