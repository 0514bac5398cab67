"""Substitution of the process's producer in tests. Imports no Redis client: a pytest plugin loads it in every test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

producer: Producer | None = None
"""The producer of every ``connect`` and ``enqueue`` of this process; None: the one that they choose."""

refusal = ""
"""Message for producers that would open a connection to a real server; empty: they may."""


@contextmanager
def substituted(other: Producer) -> Iterator[None]:
    """Have ``connect`` and ``enqueue`` of the whole process use ``other`` for a while."""
    global producer  # noqa: PLW0603 - one per process, as the producer in use is
    before, producer = producer, other
    try:
        yield
    finally:
        producer = before


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Have producers raise ``message`` in place of connecting to a server, or with "" connect again, for a while."""
    global refusal  # noqa: PLW0603 - as above
    before, refusal = refusal, message
    try:
        yield
    finally:
        refusal = before
