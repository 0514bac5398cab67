"""``queues:`` retention of queues and leases of worker sessions."""

from __future__ import annotations

from pydantic import Field

from supervisor.settings.base import Seconds, Section


class QueueSettings(Section):
    """Retention of queues and leases of worker sessions. Must be equal on all replicas."""

    session_lease_s: Seconds = Field(default=15.0, ge=1, le=600)
    """How long a worker process of a vanished replica keeps its runs."""

    beat_period_s: Seconds = Field(default=3.0, ge=0.2, le=60)
    """Time between two session beats; at most a third of session_lease."""

    length_max: int | None = Field(default=None, ge=0, le=100_000_000)
    """How many runs may wait in a queue: beyond it programs and the API are refused. Unset or 0: any number."""

    history: int = Field(default=10_000, ge=0, le=1_000_000)
    """How many finished runs each queue remembers."""

    dead: int = Field(default=10_000, ge=1, le=1_000_000)
    """How many dead runs each queue keeps."""

    history_age_s: Seconds | None = Field(default=None, ge=60, le=316_224_000)
    """How long a queue remembers a finished run, within `history`. Unset: up to that number, however long ago."""

    dead_age_s: Seconds | None = Field(default=None, ge=60, le=316_224_000)
    """How long a queue keeps a dead run, within `dead`; 500 of each queue go in a minute. Unset: up to that number."""
