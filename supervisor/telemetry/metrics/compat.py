"""Metrics of the compatibility with Cloudforet."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter

CLOUDFORET_EMPTY_PLANS = Counter(
    "tenure_cloudforet_empty_plans_total",
    "Plans of scheduler classes that made no task: nothing was due, and nothing failed.",
)
CLOUDFORET_INGESTED = Counter(
    "tenure_cloudforet_ingested_total",
    "Task messages that were taken out of a list of SpaceONE's, by queue and result (moved, set_aside). "
    "Alarm on set_aside: a message was too large.",
    ["queue", "result"],
)
