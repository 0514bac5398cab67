"""Attributes by which the function of a job enqueues it; ``@job`` adds them.

The function stays the object it was: it is called, awaited, inspected, documented and pickled like any other.
Its attributes load the producer, and with it a Redis client, when one is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

ATTRIBUTES = ("enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async", "options", "arguments")
_CALLS = "supervisor.store.producer.job_calls"  # by name: the core imports nothing above it


def add_attributes(function: Callable[..., Any]) -> None:
    """Give a job the attributes by which it is enqueued."""
    for name in ATTRIBUTES:
        setattr(function, name, partial(_call, function, name))


def _call(function: Callable[..., Any], name: str, /, *args: Any, **kwargs: Any) -> Any:
    return getattr(import_module(_CALLS).JobCalls(function), name)(*args, **kwargs)
