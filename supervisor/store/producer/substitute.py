"""Substitution of the process's producer in tests. Imports no Redis client: a pytest plugin loads it in every test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

producer: Producer | None = None
"""The producer of every ``connect`` and ``enqueue`` of this process; None: the one that they choose."""

refusal = ""
"""Message for producers that would open a connection to a real server; empty: they may."""


def substituted(other: Producer) -> AbstractContextManager[None]:
    """Have ``connect`` and ``enqueue`` of the whole process use ``other`` for a while."""
    return _replaced("producer", other)


def refused(message: str) -> AbstractContextManager[None]:
    """Have producers raise ``message`` in place of connecting to a server, or with "" connect again, for a while."""
    return _replaced("refusal", message)


@contextmanager
def _replaced(name: str, value: object) -> Iterator[None]:
    before, globals()[name] = globals()[name], value
    try:
        yield
    finally:
        globals()[name] = before
