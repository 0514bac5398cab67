"""Connections of a producer, one for each event loop that enqueues.

Guarantees
    A loop that ends as ``asyncio.run`` ends it takes its connection with it. That of another that was closed is given
    up when the next loop asks for its own: the system closes it with the next collection of garbage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from supervisor.store.client.async_client import AsyncStore


class LoopStores:
    """One client for each event loop. Safe to share between threads."""

    def __init__(self, open_store: Callable[[], AsyncStore]) -> None:
        self._open = open_store
        # A client leads to its loop, so that none of these goes by itself.
        self._by_loop: WeakKeyDictionary[Any, tuple[AsyncStore, AsyncGenerator[None, None]]] = WeakKeyDictionary()

    def current(self) -> AsyncStore:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        if (found := self._by_loop.get(loop)) is None:
            for ended in [each for ref in self._by_loop.keyrefs() if (each := ref()) is not None and each.is_closed()]:
                self._by_loop.pop(ended, None)
            store = self._open()
            found = self._by_loop[loop] = store, _begun(_held(store))
        return found[0]

    async def close(self) -> None:
        """Drop the connection of the running loop; it may be asked for again."""
        if (found := self._by_loop.pop(asyncio.get_running_loop(), None)) is not None:
            await found[1].aclose()


async def _held(store: AsyncStore) -> AsyncGenerator[None, None]:
    """Close ``store`` when the running loop ends, which ends its generators before."""
    try:
        yield
    finally:
        await store.close()


def _begun(generator: AsyncGenerator[None, None]) -> AsyncGenerator[None, None]:
    with suppress(StopIteration):  # it got to its first value, and the loop knows of it
        generator.__anext__().send(None)
    return generator
