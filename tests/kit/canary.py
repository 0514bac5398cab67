"""The one text that stands for every secret in the tests, and where it must never be seen.

A test that needs a token, a password or other secret data uses ``CANARY``, or a text that holds it. Whatever any test of
the run prints, logs, serves or leaves in Redis as a record is searched for it: the output that pytest captured
(tests/conftest.py), the log and the pages of whole trees and the output of commands (tests/e2e/trees.py), and what
stands in a server when a test is over (tests/kit/servers.py). Only what carries a run to its worker may hold
it: the payload of a run that has not finished, and the list of another system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CANARY = "tenure-canary-7f3a"
_PAYLOAD = b":data"
_OURS = b"{t"  # {tenure:<cluster>}: and the prefixes of tests


def show_nothing_secret(text: str | bytes, *, where: str) -> None:
    """Fail if ``text`` holds the canary; say which line, without what is around it."""
    lines = (text.decode(errors="replace") if isinstance(text, bytes) else text).splitlines()
    found = [number for number, line in enumerate(lines, 1) if CANARY in line]
    assert not found, f"a secret is shown by {where}, in line {found[0]} of {len(lines)}"


Commands = Sequence[tuple[bytes | str, ...]]
Ask = Callable[[Commands], Sequence[Any]]
"""Sends commands to a server at once, and returns what it answered."""

_READERS: dict[bytes, Callable[[bytes], tuple[bytes | str, ...]]] = {
    b"string": lambda key: ("GET", key),
    b"hash": lambda key: ("HGETALL", key),
    b"list": lambda key: ("LRANGE", key, "0", "-1"),
    b"set": lambda key: ("SMEMBERS", key),
    b"zset": lambda key: ("ZRANGE", key, "0", "-1"),
    b"stream": lambda key: ("XRANGE", key, "-", "+"),
}


def keys_with_secrets(ask: Ask) -> list[str]:
    """Return the keys of ours, but for payloads, in which the canary stands."""
    (found,) = ask([("KEYS", "*")])
    keys = [key for key in found if key.startswith(_OURS) and not key.endswith(_PAYLOAD)]
    types = ask([("TYPE", key) for key in keys]) if keys else ()
    kept = [(key, _READERS[kind]) for key, kind in zip(keys, types, strict=True) if kind in _READERS]  # others expired
    contents = ask([reader(key) for key, reader in kept]) if kept else ()
    return [key.decode() for (key, _), content in zip(kept, contents, strict=True) if CANARY in repr(content)]


def asking(raw: Any) -> Ask:
    """Return what sends commands by a redis client, without decoding."""

    def ask(commands: Commands) -> Sequence[Any]:
        line = raw.pipeline(transaction=False)
        for command in commands:
            line.execute_command(*command)
        answers: Sequence[Any] = line.execute(raise_on_error=False)
        return answers

    return ask
