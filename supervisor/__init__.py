"""Tenure: periodic and background jobs for replicated Python services.

The public API, at most nine names. Everything else may change between releases.
Importing this package imports no Redis client: producers and contexts load when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from supervisor.core.registry import job
from supervisor.core.retry import Retry

if TYPE_CHECKING:
    from supervisor.roles.worker.context import Context, SoftTimeout
    from supervisor.store.producer import connect, enqueue, enqueue_async

__all__ = ["Context", "Retry", "SoftTimeout", "connect", "enqueue", "enqueue_async", "job"]

_LAZY = {
    "Context": "supervisor.roles.worker.context",
    "SoftTimeout": "supervisor.roles.worker.context",
    "connect": "supervisor.store.producer",
    "enqueue": "supervisor.store.producer",
    "enqueue_async": "supervisor.store.producer",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'supervisor' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value
