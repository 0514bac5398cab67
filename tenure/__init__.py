"""Tenure: periodic and background jobs for replicated Python services.

The public API; beside it only ``tenure.errors``, ``tenure.testing`` and the jobs that ship, ``tenure.jobs``.
Every name is loaded when first used: importing this package costs next to nothing, and declaring jobs imports no
Redis client. The implementation is the package ``supervisor``, which may change between releases.
"""

from tenure.lazy_names import lazy_names

TYPE_CHECKING = False  # as ``typing`` has it, without importing that
if TYPE_CHECKING:
    from supervisor.core.jobs.resource import Resource
    from supervisor.core.retry import Again, GiveUp, Retry
    from supervisor.main import main
    from supervisor.plugins.contract import Plugin
    from supervisor.roles.leadership.leadership import Leadership, leadership
    from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
    from supervisor.roles.worker.attempt.middleware import Middleware
    from supervisor.store.cache.decorator import cached
    from supervisor.store.producer.bulk import Totals
    from supervisor.store.producer.connection import connect, enqueue, enqueue_async, enqueue_many
    from supervisor.store.producer.producer import Producer
    from supervisor.store.producer.run_handle import Run
    from supervisor.store.producer.run_status import RunPhase, RunStatus
    from tenure import errors, testing
    from tenure.declaring import JobFunction, job, schedule

__all__ = [
    "Again",
    "Context",
    "GiveUp",
    "Interrupted",
    "JobFunction",
    "Leadership",
    "Middleware",
    "Plugin",
    "Producer",
    "Resource",
    "Retry",
    "Run",
    "RunPhase",
    "RunStatus",
    "SoftTimeout",
    "Totals",
    "cached",
    "connect",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "errors",
    "job",
    "leadership",
    "main",
    "schedule",
    "testing",
]

_MODULES = {
    "Again": "supervisor.core.retry",
    "Context": "supervisor.roles.worker.attempt.context",
    "GiveUp": "supervisor.core.retry",
    "Interrupted": "supervisor.roles.worker.attempt.context",
    "JobFunction": "tenure.declaring",
    "Leadership": "supervisor.roles.leadership.leadership",
    "Middleware": "supervisor.roles.worker.attempt.middleware",
    "Plugin": "supervisor.plugins.contract",
    "Producer": "supervisor.store.producer.producer",
    "Resource": "supervisor.core.jobs.resource",
    "Retry": "supervisor.core.retry",
    "Run": "supervisor.store.producer.run_handle",
    "RunPhase": "supervisor.store.producer.run_status",
    "RunStatus": "supervisor.store.producer.run_status",
    "SoftTimeout": "supervisor.roles.worker.attempt.context",
    "Totals": "supervisor.store.producer.bulk",
    "cached": "supervisor.store.cache.decorator",
    "connect": "supervisor.store.producer.connection",
    "enqueue": "supervisor.store.producer.connection",
    "enqueue_async": "supervisor.store.producer.connection",
    "enqueue_many": "supervisor.store.producer.connection",
    "errors": "tenure",
    "job": "supervisor.core.jobs.registry",
    "leadership": "supervisor.roles.leadership.leadership",
    "main": "supervisor.main",
    "schedule": "supervisor.core.schedules.declared",
    "testing": "tenure",
}

if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for a public one
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
