"""Metrics of runs, and of the workers, resources and loops that carry them out."""

from __future__ import annotations

from collections.abc import Container

from supervisor.telemetry.metric_files.slots import Counter, Histogram

RUN_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800, 7200)
UNKNOWN_JOB = "unknown"  # a name that no module registered, or that nobody can read: their number is not bounded
CALL_SECONDS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5)


def job_label(name: str, jobs: Container[str]) -> str:
    """Return the label of the job ``name``: of one that is not among ``jobs``, which were registered, that of all."""
    return name if name in jobs else UNKNOWN_JOB


RUNS_FINISHED = Counter(
    "tenure_runs_finished_total",
    "Attempts that ended, by outcome (ok, retry, again, dead, giveback, expired, replaced, cancelled, rejected). "
    "Alarm on the rate of dead.",
    ["queue", "job", "outcome"],
)
RUN_DURATION_SECONDS = Histogram(
    "tenure_run_duration_seconds",
    "How long attempts ran, from the call of the job to its end.",
    ["queue", "job"],
    buckets=RUN_SECONDS,
)
RUN_WAIT_SECONDS = Histogram(
    "tenure_run_wait_seconds",
    "How long runs were ready before a worker took them. Alarm: too few workers.",
    ["queue"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800),
)
RUNS_RECLAIMED = Counter(
    "tenure_runs_reclaimed_total",
    "Runs taken back from workers that died or stopped, by reason (unstarted, interrupted, crashed, suspect). "
    "Alarm on the rate of crashed.",
    ["reason"],
)
ACKS_STALE = Counter(
    "tenure_acks_stale_total",
    "Acknowledgements refused because the run had been given to another worker: its work was done twice.",
)
ENQUEUED = Counter("tenure_enqueued_total", "Runs enqueued by this replica, schedules included.", ["queue", "job"])
TURN_SECONDS = Histogram(
    "tenure_turn_seconds",
    "How long workers' combined acknowledge-and-fetch call to Redis took.",
    buckets=CALL_SECONDS,
)
LOOP_LAG_SECONDS = Histogram(
    "tenure_loop_lag_seconds",
    "How late event loops woke up. Above 0.1 something blocks a loop: look for a job that does not await.",
    ["role"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
)
RESOURCE_FAILURES = Counter(
    "tenure_resource_failures_total",
    "Resources of jobs that could not be opened, pinged or closed, by class and step (open, ping, close). "
    "Alarm on a rate that lasts.",
    ["resource", "step"],
)
JOB_BLOCKED_LOOP = Counter(
    "tenure_job_blocked_loop_total",
    "How often a coroutine job held its event loop, and with it every neighbour, for 0.1 s or more. Alarm on any: it "
    "must await, or be a plain function.",
    ["queue", "job"],
)
REDIS_ERRORS = Counter(
    "tenure_redis_errors_total",
    "Calls to Redis that failed, by operation. Alarm on a rate that lasts.",
    ["op"],
)
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
