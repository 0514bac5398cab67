"""The trace that a task message belongs to: ``traceparent`` in the metadata of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.core.jobs.trace_context import checked
from supervisor.roles.worker.attempt.context import Context
from supervisor.telemetry.run_context import enter_trace


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
