"""Errors that programs may catch. Every one that Tenure raises on purpose is a ``TenureError``.

``error.code`` is a stable name for programs, and ``error.is_retryable`` says whether the same call may succeed a
moment later.
"""

from tenure.lazy_names import lazy_names

TYPE_CHECKING = False  # as ``typing`` has it, without importing that
if TYPE_CHECKING:
    from supervisor.core.cron.errors import CronError
    from supervisor.core.errors import (
        ArgumentsError,
        CannotBindError,
        CannotCreateError,
        ConfigError,
        FencedError,
        JobFailedError,
        NotReplicatedError,
        OptionError,
        PayloadTooLargeError,
        QueueFullError,
        ResultGoneError,
        ResultTypeError,
        RunCancelledError,
        RunIdTakenError,
        RunTimeoutError,
        StoreRefusedError,
        StoreUnavailableError,
        TenureError,
        UnknownJobError,
    )
    from supervisor.core.jobs.registry import DuplicateJobError
    from supervisor.plugins.contract import PluginError, PluginUnusableError
    from supervisor.roles.worker.attempt.run_output import SpawnError
    from supervisor.roles.worker.attempt.steps import StepError
    from supervisor.roles.worker.process.resources import ResourceError
    from supervisor.store.producer.bulk import PartlyEnqueuedError
    from supervisor.store.producer.connection import NoRedisError
    from supervisor.store.producer.destination import UnknownClusterError
    from supervisor.testing.servers import ServerNotReadyError

__all__ = [
    "ArgumentsError",
    "CannotBindError",
    "CannotCreateError",
    "ConfigError",
    "CronError",
    "DuplicateJobError",
    "FencedError",
    "JobFailedError",
    "NoRedisError",
    "NotReplicatedError",
    "OptionError",
    "PartlyEnqueuedError",
    "PayloadTooLargeError",
    "PluginError",
    "PluginUnusableError",
    "QueueFullError",
    "ResourceError",
    "ResultGoneError",
    "ResultTypeError",
    "RunCancelledError",
    "RunIdTakenError",
    "RunTimeoutError",
    "ServerNotReadyError",
    "SpawnError",
    "StepError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "TenureError",
    "UnknownClusterError",
    "UnknownJobError",
]

_MODULES = dict.fromkeys(__all__, "supervisor.core.errors") | {
    "CronError": "supervisor.core.cron.errors",
    "DuplicateJobError": "supervisor.core.jobs.registry",
    "NoRedisError": "supervisor.store.producer.connection",
    "PartlyEnqueuedError": "supervisor.store.producer.bulk",
    "PluginError": "supervisor.plugins.contract",
    "PluginUnusableError": "supervisor.plugins.contract",
    "ResourceError": "supervisor.roles.worker.process.resources",
    "ServerNotReadyError": "supervisor.testing.servers",
    "SpawnError": "supervisor.roles.worker.attempt.run_output",
    "UnknownClusterError": "supervisor.store.producer.destination",
    "StepError": "supervisor.roles.worker.attempt.steps",
}

if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for a public one
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
