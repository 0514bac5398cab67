"""Metrics of schedules: fires, lateness, and runs that did not fire."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter, Gauge, Histogram

FIRES = Counter(
    "tenure_fires_total",
    "Due times handled by the scheduler, by result (fired, skipped, buffered, dropped, replaced, missed, completed, "
    "held, dup, stale, paused, skewed, refused). Alarm on any skewed: a clock is wrong; on dropped: a buffer is full; "
    "and on refused: the leader's log (schedules_put_off) says why.",
    ["code"],
)
FIRES_DOUBTFUL = Counter(
    "tenure_fires_doubtful_total",
    "Runs enqueued that may have run before Redis lost data; each carries the flag maybe_duplicate. Alarm on any.",
)
SCHEDULE_LATENESS_SECONDS = Histogram(
    "tenure_schedule_lateness_seconds",
    "How long after its due time and jitter a run was enqueued. Alarm above the election's lease duration.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300),
)
MISSED = Counter(
    "tenure_schedule_missed_total",
    "Due times that passed without a run, by reason: policy, window or cap (catchup_window, max_catchup), joined by +; "
    "the check that kept it back; or data_loss: Redis lost its data, and nobody knows whether they ran.",
    ["reason"],
)
SCHEDULES = Gauge(
    "tenure_schedules",
    "Schedules that the scheduler of this replica plans for; 0 on a standby.",
    multiprocess_mode="mostrecent",
)
SCHEDULES_OVERDUE = Gauge(
    "tenure_schedules_overdue",
    "Schedules that were to be looked at more than a minute ago, as the leader last saw. Above 0 during catch-up; "
    "alarm when it lasts.",
    multiprocess_mode="mostrecent",
)
SCHEDULES_PAUSED = Gauge(
    "tenure_schedules_paused",
    "Schedules that are paused, by a person or after failures, as the leader last saw: defined, and not fired.",
    multiprocess_mode="mostrecent",
)
SCHEDULES_INVALID = Gauge(
    "tenure_schedules_invalid",
    "Schedules whose stored definition the leader cannot use, as it last saw: shown as invalid with the reason, not "
    "fired, and looked at again each minute. Alarm on any.",
    multiprocess_mode="mostrecent",
)
SCHEDULES_REFUSED = Gauge(
    "tenure_schedules_refused",
    "Schedules that Redis refuses to fire or to plan, such as for a key of another type in their queue; each is tried "
    "again once a minute, and the leader's log (schedules_put_off) says why. Alarm on any.",
    multiprocess_mode="mostrecent",
)
CONFIG_SCHEDULES_IN_PLACE = Gauge(
    "tenure_config_schedules_in_place",
    "1 when the schedules of this replica's configuration are in place, 0 when some were refused: a clash with "
    "dynamic ones, or what Redis refuses; told by a leader. Alarm on 0: the former ones keep running.",
    multiprocess_mode="mostrecent",
)
