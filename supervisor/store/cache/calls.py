"""The calls of ``cached``: values kept in Redis under names of functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from supervisor.store.keys import Keys
from supervisor.store.scripts import Call, script
from supervisor.store.wire.codec import number, text

SWEEP_COUNT = 1000


class Taken(NamedTuple):
    """Result of asking for a value."""

    value: bytes | None
    is_mine: bool = False
    """There is none, and the caller is to compute it."""


class Swept(NamedTuple):
    """Result of one page of a deletion by pattern. ``cursor`` "0": the last one."""

    cursor: str
    gone: int


class CacheCalls:
    """Builds the calls of one function."""

    def __init__(self, keys: Keys, name: str) -> None:
        self._keys = keys
        self._name = name

    def _pair(self, key: str) -> dict[str, str]:
        return {
            "value": self._keys.cache("v", f"{self._name}:{key}"),
            "lease": self._keys.cache("l", f"{self._name}:{key}"),
        }

    def take(self, key: str, *, nonce: str, lease_ms: int) -> Call[Taken]:
        """Read a value, or become the one who computes it."""
        return script("cache_take").call(
            keys=self._pair(key), args={"nonce": nonce, "lease_ms": max(1, lease_ms)}, parse=_taken
        )

    def put(self, key: str, *, nonce: str, value: bytes, ttl_ms: int) -> Call[int]:
        """Keep a value, if nobody else did meanwhile; with no time: let the next one compute it at once."""
        args = {"nonce": nonce, "ttl_ms": ttl_ms, "new_value": value}
        return script("cache_put").call(keys=self._pair(key), args=args, parse=int)

    def delete(self, key: str) -> Call[int]:
        """Forget a value."""
        return script("cache_delete").call(keys=self._pair(key), args={}, parse=int)

    def sweep(self, pattern: str, cursor: str = "0") -> Call[Swept]:
        """Forget a page of the entries that ``pattern`` matches; begin with "0", end when the reply's cursor is "0"."""
        args = {"cursor": cursor, "pattern": f"{self._name}:{pattern}", "count": SWEEP_COUNT}
        return script("cache_sweep").call(keys={"prefix": self._keys.prefix}, args=args, parse=_swept)


def _taken(reply: Any) -> Taken:
    return Taken(reply[1]) if reply[0] == b"HIT" else Taken(None, reply[0] == b"MINE")


def _swept(reply: Any) -> Swept:
    return Swept(text(reply[0]), number(reply[1]))
