"""Runtime context of this process: its Cloudforet settings, and the run being executed.

Set once in each worker process, before its first run. Elsewhere, in a test or a script, all of it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from supervisor.core.jobs.trace_context import checked
from supervisor.roles.worker.attempt.context import Context
from supervisor.settings.sections.cloudforet import CloudforetSettings
from supervisor.telemetry.run_context import enter_trace

_settings = CloudforetSettings()
_puts = 0  # how many tasks this process put as children of its run
_running: ContextVar[Context | None] = ContextVar("tenure_cloudforet", default=None)


def configure(settings: CloudforetSettings) -> None:
    """Set the Cloudforet settings of this process."""
    global _settings  # noqa: PLW0603 - one per process, as its configuration is
    _settings = settings


def settings() -> CloudforetSettings:
    """Return the Cloudforet settings of this process."""
    return _settings


def token() -> str | None:
    """Return the configured system token; None without one. Never to be shown."""
    found = _settings.token
    value = None if found is None else found.get_secret_value()
    return value or None


def context() -> Context | None:
    """Return the run that is being executed; None outside of one."""
    return _running.get()


def note_put() -> None:
    """Count a task that became a child of the run."""
    global _puts  # noqa: PLW0603 - a process executes one run at a time
    _puts += 1


def puts() -> int:
    """Return how many were counted so far."""
    return _puts


@contextmanager
def running(context: Context) -> Iterator[None]:
    """Note the run that the code inside belongs to."""
    before = _running.set(context)
    try:
        yield
    finally:
        _running.reset(before)


def traceparent_of(task: Mapping[str, Any]) -> str | None:
    """Return that of the first stage that has one; None: the task has no trace."""
    found = (checked(stage["metadata"].get("traceparent")) for stage in task["stages"])
    return next((each for each in found if each), None)


def follow(task: Mapping[str, Any], context: Context) -> None:
    """Have a run that belongs to no trace belong to that of its task: its lines, and its enqueued runs."""
    found = None if context.traceparent else traceparent_of(task)
    if found is not None:
        context.traceparent = found
        enter_trace(found)
