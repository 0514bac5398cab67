"""A small cache in this process: bytes by key, each until its time, the least recently used go first.

Time enters as an argument, and so does the lock under which threads share it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any


class BoundedCache:
    """At most ``entries_max`` values."""

    def __init__(self, entries_max: int, lock: AbstractContextManager[Any]) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        self._lock = lock
        self.generation = 0
        """Grows with each deletion: what was being computed at that time is not to be kept."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now_ns: int) -> bytes | None:
        """Return the value of ``key``, unless its time is over."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            if found[1] <= now_ns:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: str, value: bytes, until_ns: int) -> None:
        """Keep ``value``, and forget the least recently used if there is too much."""
        with self._lock:
            self._entries[key] = value, until_ns
            self._entries.move_to_end(key)
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)

    def delete(self, key: str) -> int:
        """Forget ``key``; return how many values went."""
        with self._lock:
            self.generation += 1
            return int(self._entries.pop(key, None) is not None)

    def delete_matching(self, pattern: str) -> int:
        """Forget every key that ``pattern`` matches: ``*``, ``?`` and ``[…]``."""
        with self._lock:
            self.generation += 1
            matching = [key for key in self._entries if fnmatchcase(key, pattern)]
            for key in matching:
                del self._entries[key]
            return len(matching)
