"""Metrics of plugins."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter

PLUGIN_CALLS = Counter(
    "tenure_plugin_calls_total",
    "Runs of plugins that called them, by how that ended (ok, failed, unusable). Alarm on a rate of unusable: "
    "the schedules of that plugin are suspended.",
    ["plugin", "outcome"],
)
PLUGIN_RESULTS = Counter(
    "tenure_plugin_results_total",
    "Results that plugins gave in runs that came to their end, by state (success, failure).",
    ["plugin", "state"],
)
