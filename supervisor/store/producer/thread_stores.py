"""Connections of a producer, one for each thread that enqueues."""

from __future__ import annotations

import threading
from collections.abc import Callable

from supervisor.store.client.sync_client import Store


class ThreadStores:
    """One client for each thread. Safe to share between threads."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._local = threading.local()

    def current(self) -> Store:
        """Return the client of the calling thread."""
        store: Store | None = getattr(self._local, "store", None)
        if store is None:
            store = self._local.store = self._open()
        return store

    def aside(self, act: Callable[[], None]) -> None:
        """Do ``act`` while the thread's client awaits an answer: what ``act`` asks itself goes by another client."""
        mine = self._local.__dict__
        store = mine.pop("store")
        try:
            act()
        finally:
            self.close()
            mine["store"] = store

    def close(self) -> None:
        """Drop the connection of the calling thread; it may be asked for again."""
        if (store := self._local.__dict__.pop("store", None)) is not None:
            store.close()
