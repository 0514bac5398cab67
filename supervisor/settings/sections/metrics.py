"""Settings of the metrics: which there are, and how many series they may have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from supervisor.settings.base import Section

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
