"""Metrics of the fire pipeline: hooks, checks and webhooks."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter, Histogram

HOOK_ANSWERS = Counter(
    "tenure_hook_answers_total",
    "Answers of hooks, by hook, point (gate, filter, reserve, unreserve, dispatch, after) and answer: admit, reject, "
    "defer (asked again later), error, ignored (an error of an ignorable webhook). Of checks only reject. Alarm on the "
    "rate of error.",
    ["hook", "point", "answer"],
)
HOOK_SECONDS = Histogram(
    "tenure_hook_seconds",
    "How long hooks took to answer, by hook and point.",
    ["hook", "point"],
    buckets=(0.0001, 0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60),
)
