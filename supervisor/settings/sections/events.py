"""The settings of events: which are published, how many are kept, and where else they go."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, SecretStr

from supervisor.settings.base import Section
from supervisor.settings.sections.durations import Seconds


class RunEvents(StrEnum):
    """Ends of runs that are events."""

    FAILURES = "failures"
    ALL = "all"
    NONE = "none"


class EventLevel(StrEnum):
    """Severity of an event."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EventSettings(Section):
    """Events: leader changes, failures, refusals and stops. See docs/events.md."""

    runs: RunEvents = RunEvents.FAILURES
    """``failures``: attempts that failed and runs that were given up; ``all``: starts and successes too; ``none``."""

    kept: int = Field(default=10_000, ge=100, le=1_000_000)
    """About how many events Redis keeps, of all replicas together. The oldest go first."""

    webhook_url: SecretStr | None = None
    """Send events to this http:// or https:// address, by POST, in batches. A secret: it may hold a token."""

    webhook_token: SecretStr | None = None
    """Sent along as ``Authorization: Bearer …``. Use ${file:/run/secrets/webhook} or ${env:NAME}."""

    webhook_secret: SecretStr | None = None
    """Signs each request to the webhook (``Tenure-Signature``, docs/events.md); at least 16 characters."""

    webhook_level: EventLevel = EventLevel.INFO
    """Least level that is sent to the webhook."""

    webhook_timeout_s: Seconds = Field(default=5.0, ge=0.1, le=60)
    """How long one request to the webhook may take. Four are made for a batch, then it is dropped."""
