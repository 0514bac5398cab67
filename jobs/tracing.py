"""A span of OpenTelemetry around each run: list ``jobs.tracing`` first under ``jobs``. Needs ``tenure[otel]``.

Where spans go, and which, is set by OpenTelemetry's own variables: docs/tracing.md.
"""

from __future__ import annotations

from supervisor.roles.worker.attempt.tracing import Tracing


class RunTracing(Tracing):
    """The one that is installed; ``@job(without=[RunTracing])`` leaves a job out."""


tracing = RunTracing().install()
