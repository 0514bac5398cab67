"""The settings of logs, metrics and events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, StringConstraints

from supervisor.settings.base import Seconds, Section

JobPattern = Annotated[str, StringConstraints(pattern=r"^(\*|[^\s*]{1,200})$")]
_ShortName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LogSettings(Section):
    """Level, format, file and masking of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""

    format: Literal["auto", "json", "console"] = "auto"
    """``auto``: readable on a terminal, JSON lines otherwise."""

    file: str | None = Field(default=None, min_length=1)
    """Append to this file instead of standard error. SIGUSR1 opens it anew after a rotation."""

    runs: Literal["failures", "all", "none"] = "failures"
    """Attempts whose output (prints and log lines) is kept for a week, for ``tenure runs logs``: up to 64 KiB of each,
    and 32 MiB of a cluster. ``failures``: those that did not succeed."""

    mask: dict[JobPattern, Annotated[tuple[_ShortName, ...], Field(max_length=100)]] = Field(
        default_factory=dict, max_length=1000
    )
    """By job, names of fields and of what lies in them whose values are masked on its lines: ``{mail.send: [to]}``;
    ``"*"``: on every line. In addition to secrets, which are always masked."""

    exclude: tuple[_ShortName, ...] = Field(default=(), max_length=100)
    """Events whose lines are not written, such as ``run_succeeded``. Errors are written in any case."""


MetricName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$")]
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,99}$")]
LabelValue = Annotated[str, StringConstraints(max_length=200)]


class MetricsSettings(Section):
    """Selection of metrics, and limits on their series."""

    disabled: tuple[MetricName, ...] = Field(default=(), max_length=1000)
    """Metrics that /metrics leaves out, and that are not counted."""

    label_allow: dict[MetricName, dict[LabelName, tuple[LabelValue, ...]]] = Field(
        default_factory=dict, max_length=1000
    )
    """By metric and label, the values that are expected: ``{tenure_enqueued_total: {job: [shell.command]}}``. Every
    other value of that label is counted as ``unexpected``."""

    label_values_max: int = Field(default=1000, ge=1, le=100_000)
    """How many values of one label, and how many series of one metric, each process keeps; what comes later is
    counted as ``other``."""


class EventSettings(Section):
    """Events: leader changes, failures, refusals and stops. See docs/events.md."""

    runs: Literal["failures", "all", "none"] = "failures"
    """``failures``: attempts that failed and runs that were given up; ``all``: starts and successes too; ``none``."""

    kept: int = Field(default=10_000, ge=100, le=1_000_000)
    """About how many events Redis keeps, of all replicas together. The oldest go first."""

    webhook_url: SecretStr | None = None
    """Send events to this http:// or https:// address, by POST, in batches. A secret: it may hold a token."""

    webhook_token: SecretStr | None = None
    """Sent along as ``Authorization: Bearer …``. Use ${file:/run/secrets/webhook} or ${env:NAME}."""

    webhook_secret: SecretStr | None = None
    """Signs each request to the webhook (``Tenure-Signature``, docs/events.md); at least 16 characters."""

    webhook_level: Literal["info", "warning", "error"] = "info"
    """Least level that is sent to the webhook."""

    webhook_timeout_s: Seconds = Field(default=5.0, ge=0.1, le=60)
    """How long one request to the webhook may take. Four are made for a batch, then it is dropped."""
