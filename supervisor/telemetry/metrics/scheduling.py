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
    "the check that kept it back; id_taken: a program's run has its id; or data_loss: Redis lost its data, and nobody "
    "knows whether they ran.",
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
SCHEDULES_LATE = Gauge(
    "tenure_schedules_late",
    "Schedules without a success or with a run that has not ended in the time that they promise, as the leader last "
    "saw, up to 1,000: expect_success_every and finish_within. Alarm on any.",
    multiprocess_mode="mostrecent",
)
SCHEDULE_LATE = Counter(
    "tenure_schedule_late_total",
    "Broken promises of schedules, by promise: finish_within (a run) or expect_success_every.",
    ["promise"],
)
CONFIG_SCHEDULES_IN_PLACE = Gauge(
    "tenure_config_schedules_in_place",
    "1 when the schedules of this replica's configuration are in place, 0 when some were refused (a clash with "
    "dynamic ones, or what Redis refuses), or when those of a replica with other files are, for over a minute. "
    "Alarm on 0: the former ones, or the others, keep running.",
    multiprocess_mode="mostrecent",
)
EVENTS = Counter("tenure_events_total", "Events that processes of this replica told, by reason.", ["reason"])
EVENTS_DROPPED = Counter(
    "tenure_events_dropped_total",
    "Events that found no room or no time before the web child ended, by sink (recorder: in the process itself or in "
    "the pipe of the tree; stream; webhook; follower: a client of /api/v1/events that reads too slowly). Alarm on a "
    "rate that lasts.",
    ["sink"],
)
EVENTS_SENT = Counter(
    "tenure_events_sent_total",
    "Events that the web child passed on, by sink (stream, webhook).",
    ["sink"],
)
HTTP_FAILURES = Counter(
    "tenure_http_failures_total", "Requests answered with 500 because of an error in the program. Alarm on any."
)
TOKENS_REFUSED = Counter(
    "tenure_http_tokens_refused_total",
    "Requests over HTTP with a token that is unknown or has ended. Alarm on a rate that lasts: somebody guesses, or a "
    "client was forgotten at a rotation.",
)
HEALTHCHECKS = Counter(
    "tenure_healthchecks_total",
    "Checks of /livez, /readyz and /healthz that somebody asked for over HTTP, by name, type and status (success, "
    "error).",
    ["name", "type", "status"],
)
