"""Tenure: periodic and background jobs for replicated Python services.

The implementation. Programs import ``tenure``; these nine names are kept for those written before it, through 0.x.
Each is loaded when first used, so that importing this package costs next to nothing, and declaring jobs imports no
Redis client: only ``connect`` and ``enqueue`` do.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as ``typing`` has it, without importing that
if TYPE_CHECKING:
    from supervisor.core.jobs.registry import job
    from supervisor.core.jobs.resource import Resource
    from supervisor.core.retry import Retry
    from supervisor.plugins.contract import Plugin
    from supervisor.roles.worker.attempt.context import Context
    from supervisor.roles.worker.attempt.middleware import Middleware
    from supervisor.store.cache.decorator import cached
    from supervisor.store.producer.connection import connect, enqueue

__all__ = ["Context", "Middleware", "Plugin", "Resource", "Retry", "cached", "connect", "enqueue", "job"]

_MODULES = {
    "Context": "supervisor.roles.worker.attempt.context",
    "Middleware": "supervisor.roles.worker.attempt.middleware",
    "Plugin": "supervisor.plugins.contract",
    "Resource": "supervisor.core.jobs.resource",
    "Retry": "supervisor.core.retry",
    "cached": "supervisor.store.cache.decorator",
    "connect": "supervisor.store.producer.connection",
    "enqueue": "supervisor.store.producer.connection",
    "job": "supervisor.core.jobs.registry",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'supervisor' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - nothing is loaded before it is needed

    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return [*globals(), *__all__]
