"""Metrics that the web child works out at each scrape, from the board, /proc and Redis."""

from __future__ import annotations

from typing import NamedTuple


class Computed(NamedTuple):
    """A metric that is worked out at each scrape: a counter if its name says ``_total``, else a gauge."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Type of the exposition: gauge or counter."""
        return "counter" if self.name.endswith("_total") else "gauge"


IS_LEADER = Computed(
    "tenure_election_is_leader",
    "1 while this replica trusts its lease, else 0. A sum over replicas of 0 for longer than two leases means that "
    "nobody schedules; above 1 for two scrapes is a split brain. 1 says nothing of the scheduler's own answers: see "
    "the check `scheduler` of `tenure_healthcheck`.",
)
TERM_EPOCH = Computed(
    "tenure_election_epoch", "Epoch of the term this replica last held or holds; 0: none. Only grows."
)
TERM_TRUST = Computed(
    "tenure_election_trust_remaining_seconds",
    "How long this replica may still act on its lease without a renewal; 0 on a standby.",
)
PROGRESS_AGE = Computed(
    "tenure_election_progress_age_seconds",
    "How long ago the scheduler of a leader last turned its loop; absent on a standby. Alarm above 2: it gets no "
    "renewal meanwhile, and is about to be ended.",
)
CLOCK_SKEW = Computed(
    "tenure_clock_skew_seconds",
    "How far this machine's wall clock is ahead of Redis', as its agent last measured; negative: behind. Alarm beyond "
    "0.5 either way: /readyz fails, and a leader gives way to a replica whose clock is right.",
)
SLOT_STATE = Computed(
    "tenure_slot_state",
    "State of a child: 0 stopped, 1 starting, 2 running, 3 stopping, 4 being killed, 5 waiting to be restarted, "
    "6 given up. Alarm on 6, and on 5 that lasts.",
    ("slot", "role"),
)
SLOT_RESTARTS = Computed(
    "tenure_slot_restarts_total",
    "How often a child was started again after an end that nobody had planned. Alarm on its rate.",
    ("slot",),
)
SLOT_BEAT_AGE = Computed(
    "tenure_slot_beat_age_seconds",
    "How long ago a child's loop last turned; absent for a child that has no process.",
    ("slot",),
)
SLOT_CPU = Computed(
    "tenure_slot_cpu_seconds_total", "Processor time of the child's current process, user and system.", ("slot",)
)
SLOT_RSS = Computed("tenure_slot_resident_memory_bytes", "Resident memory of the child's current process.", ("slot",))
SLOT_FDS = Computed("tenure_slot_open_fds", "File descriptors that the child's current process has open.", ("slot",))
WORKERS_BUSY = Computed(
    "tenure_workers_busy", "Runs in flight, by pool. At the pool's capacity for long: add workers.", ("pool",)
)
WORKER_CUT_OFF = Computed(
    "tenure_worker_cut_off_seconds",
    "How long a worker has been asking Redis without an answer; 0: it is not. Alarm above 30: it runs nothing new.",
    ("slot",),
)
HEALTH = Computed(
    "tenure_healthcheck", "1 while a check of /livez, /readyz or /healthz passes, else 0.", ("name", "type")
)
BUILD_INFO = Computed("tenure_build_info", "1; its labels say what runs.", ("version", "python"))
CONFIG_EPOCH = Computed(
    "tenure_config_epoch", "Number of the reload whose configuration is in effect; 0: as it started."
)
CONFIG_LAST_RELOAD_SUCCESSFUL = Computed(
    "tenure_config_last_reload_successful",
    "0 when the last reload of this replica was refused or undone, else 1. Alarm on 0: the former configuration runs.",
)
CONFIG_LAST_RELOAD = Computed(
    "tenure_config_last_reload_timestamp_seconds", "When the last reload ended; 0: there was none."
)
CALENDAR_END = Computed(
    "tenure_calendar_end_timestamp_seconds",
    "When the last day of a calendar of dates is over, in UTC; absent for one that recurs. Alarm a month before.",
    ("calendar",),
)
DEPRECATED_SETTINGS = Computed(
    "tenure_deprecated_settings",
    "Flags in the spelling of kube-scheduler that the configuration in effect uses. Alarm on any before an update.",
)
FEATURE_ENABLED = Computed(
    "tenure_feature_enabled", "1 while a feature is on, else 0; one series for each gate.", ("name", "stage")
)
UPTIME = Computed("tenure_uptime_seconds", "How long ago this replica's process tree started.")
REDIS_UP = Computed("tenure_redis_up", "1 if Redis answered the web child's last question, else 0. Alarm on 0.")
QUEUE_READY = Computed(
    "tenure_queue_ready",
    "Runs that wait for a worker; absent while Redis is away. The same on every replica: do not sum over them.",
    ("queue", "kind", "priority"),
)
QUEUE_RUNNING = Computed("tenure_queue_running", "Runs that workers of any replica hold.", ("queue",))
QUEUE_LATER = Computed("tenure_queue_later", "Runs that wait for their time: delayed or retried.", ("queue",))
QUEUE_UNSERVED = Computed(
    "tenure_queue_unserved",
    "Runs that wait where no live worker of any replica takes them; only queues of which that is so. Alarm on any: "
    "add the queue to a pool of that kind, or purge it.",
    ("queue", "kind"),
)
QUEUE_BLOCKED = Computed(
    "tenure_queue_blocked", "Runs that wait until one with their concurrency key ends.", ("queue",)
)
QUEUE_DEAD = Computed("tenure_queue_dead", "Runs given up and kept for inspection. Alarm on growth.", ("queue",))
QUEUE_PAUSED = Computed("tenure_queue_paused", "1 while workers take nothing from the queue.", ("queue",))
