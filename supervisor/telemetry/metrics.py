"""Every metric, in one place: unit in the name, meaning and alarm in the help.

Processes of the tree write those of the first part; ``COMPUTED`` are worked out by the
web child at each scrape. docs/metrics.md is this list, kept true by a test.
"""

from __future__ import annotations

from typing import NamedTuple

from supervisor.telemetry.slots import Counter, Gauge, Histogram, claim_slot, exposition, forget, prepare, register

__all__ = ["claim_slot", "exposition", "forget", "prepare"]

_RUN_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800, 7200)
_CALL_SECONDS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5)

RUNS_FINISHED = Counter(
    "tenure_runs_finished_total",
    "Attempts that ended, by outcome (ok, retry, dead, giveback, expired, replaced). Alarm on the rate of dead.",
    ["queue", "job", "outcome"],
)
RUN_DURATION_SECONDS = Histogram(
    "tenure_run_duration_seconds",
    "How long attempts ran, from the call of the job to its end.",
    ["queue", "job"],
    buckets=_RUN_SECONDS,
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
    buckets=_CALL_SECONDS,
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
FIRES = Counter(
    "tenure_fires_total",
    "Due times handled by the scheduler, by result (fired, skipped, buffered, dropped, replaced, missed, completed, "
    "held, dup, stale, paused, skewed). Alarm on any skewed: a clock is wrong; and on dropped: a buffer is full.",
    ["code"],
)
SCHEDULE_LATENESS_SECONDS = Histogram(
    "tenure_schedule_lateness_seconds",
    "How long after its due time a run was enqueued. Alarm above the election's lease duration.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300),
)
MISSED = Counter(
    "tenure_schedule_missed_total",
    "Due times that passed without a run, by reason: policy, window or cap (catchup_window, max_catchup), joined by +.",
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
CONFIG_SCHEDULES_IN_PLACE = Gauge(
    "tenure_config_schedules_in_place",
    "1 when the schedules of this replica's configuration are in place, 0 when they were refused because of a clash "
    "with dynamic ones; told by a leader. Alarm on 0: the former configuration keeps running.",
    multiprocess_mode="mostrecent",
)
ELECTION_TRANSITIONS = Counter(
    "tenure_election_transitions_total",
    "Terms this replica won or lost, by reason. Alarm above three in ten minutes.",
    ["reason"],
)
ELECTION_RENEWALS = Counter(
    "tenure_election_renewals_total",
    "Renewals of the lease, by result (ok, timeout, lost). Alarm on a rate of timeout.",
    ["result"],
)
ELECTION_RENEW_SECONDS = Histogram(
    "tenure_election_renew_seconds",
    "How long renewals took. Alarm near the renew timeout.",
    buckets=_CALL_SECONDS,
)
ELECTION_FENCED = Counter(
    "tenure_election_fenced_total",
    "Writes refused because another term was granted since: the fence did its work. Alarm on any, and look at clocks.",
)
ELECTION_CANDIDATES = Gauge(
    "tenure_election_candidates",
    "Replicas that could lead, as this replica's agent last saw them. Alarm below two: nobody could take over.",
    multiprocess_mode="mostrecent",
)

ELECTION_CAMPAIGNS = Counter(
    "tenure_election_campaigns_total",
    "Questions for the lease, by mode (cold, free, expired, presence) and result (granted, same, denied). A standby "
    "is denied about once in a lease duration.",
    ["mode", "result"],
)
ELECTION_LAPSES = Counter(
    "tenure_election_lapses_total",
    "How often the trust of a leader here ended before a renewal was answered. Alarm on any: Redis is slow or away.",
)
ELECTION_RECLAIMS = Counter(
    "tenure_election_reclaims_total",
    "Terms that had run out and went on, since nobody had taken them: an outage without a change of leader.",
)
ELECTION_PROMOTIONS = Counter(
    "tenure_election_promotions_total",
    "Terms given a later epoch because the scheduler of this replica died. Alarm on any.",
)
ELECTION_REGRESSIONS = Counter(
    "tenure_election_regressions_total",
    "Losses of data that this replica saw in Redis, by kind (data, rolled_back). Alarm on any.",
    ["kind"],
)
ELECTION_SUSPICIONS = Counter(
    "tenure_election_suspicions_total",
    "Leaders held to be gone by their presence, by whether the script confirmed it. Alarm on a rate of no.",
    ["confirmed"],
)
ELECTION_LEADERLESS_SECONDS = Counter(
    "tenure_election_leaderless_seconds_total",
    "Time without any term before the terms won here, by Redis' clock: since the last one was released or ran out.",
)
ELECTION_HANDOFF_SECONDS = Histogram(
    "tenure_election_handoff_seconds",
    "From the release of the lease to the grant to this replica, by Redis' clock. Alarm above 0.1.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
)
ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS = Histogram(
    "tenure_election_promotion_to_first_fire_seconds",
    "From the grant of a term to the first fire that Redis accepted in it, where one was due at once or soon after.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
)
ELECTION_TWINS = Gauge(
    "tenure_election_twins",
    "Other living replicas that have this one's name. Alarm above 0: logs and metrics of the two cannot be told apart.",
    multiprocess_mode="mostrecent",
)

STORED = (
    RUNS_FINISHED, RUN_DURATION_SECONDS, RUN_WAIT_SECONDS, RUNS_RECLAIMED, ACKS_STALE, ENQUEUED, TURN_SECONDS,
    LOOP_LAG_SECONDS, JOB_BLOCKED_LOOP, RESOURCE_FAILURES, REDIS_ERRORS, FIRES, SCHEDULE_LATENESS_SECONDS, MISSED,
    SCHEDULES, SCHEDULES_OVERDUE,
    CONFIG_SCHEDULES_IN_PLACE,
    ELECTION_TRANSITIONS, ELECTION_RENEWALS, ELECTION_RENEW_SECONDS, ELECTION_FENCED, ELECTION_CANDIDATES,
    ELECTION_CAMPAIGNS, ELECTION_LAPSES, ELECTION_RECLAIMS, ELECTION_PROMOTIONS, ELECTION_REGRESSIONS,
    ELECTION_SUSPICIONS, ELECTION_LEADERLESS_SECONDS, ELECTION_HANDOFF_SECONDS,
    ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS, ELECTION_TWINS,
)  # fmt: skip
register(STORED)


class Computed(NamedTuple):
    """A metric that is worked out at each scrape."""

    name: str
    kind: str  # gauge or counter
    labels: tuple[str, ...]
    help: str


IS_LEADER = Computed(
    "tenure_election_is_leader",
    "gauge",
    (),
    "1 while this replica trusts its lease, else 0. A sum over replicas of 0 for longer than two leases means that "
    "nobody schedules; above 1 for two scrapes is a split brain.",
)
TERM_EPOCH = Computed(
    "tenure_election_epoch",
    "gauge",
    (),
    "Epoch of the term this replica last held or holds; 0: none. Only grows.",
)
TERM_TRUST = Computed(
    "tenure_election_trust_remaining_seconds",
    "gauge",
    (),
    "How long this replica may still act on its lease without a renewal; 0 on a standby.",
)
PROGRESS_AGE = Computed(
    "tenure_election_progress_age_seconds",
    "gauge",
    (),
    "How long ago the scheduler of a leader last turned its loop; absent on a standby. Alarm above 2: it gets no "
    "renewal meanwhile, and is about to be ended.",
)
CLOCK_SKEW = Computed(
    "tenure_clock_skew_seconds",
    "gauge",
    (),
    "How far this machine's wall clock is ahead of Redis', as its agent last measured; negative: behind. Alarm beyond "
    "0.5 either way: /readyz fails, and a leader gives way to a replica whose clock is right.",
)
SLOT_STATE = Computed(
    "tenure_slot_state",
    "gauge",
    ("slot", "role"),
    "State of a child: 0 stopped, 1 starting, 2 running, 3 stopping, 4 being killed, 5 waiting to be restarted, "
    "6 given up. Alarm on 6, and on 5 that lasts.",
)
SLOT_RESTARTS = Computed(
    "tenure_slot_restarts_total",
    "counter",
    ("slot",),
    "How often a child was started again after an end that nobody had planned. Alarm on its rate.",
)
SLOT_BEAT_AGE = Computed(
    "tenure_slot_beat_age_seconds",
    "gauge",
    ("slot",),
    "How long ago a child's loop last turned; absent for a child that has no process.",
)
SLOT_CPU = Computed(
    "tenure_slot_cpu_seconds_total",
    "counter",
    ("slot",),
    "Processor time of the child's current process, user and system.",
)
SLOT_RSS = Computed(
    "tenure_slot_resident_memory_bytes", "gauge", ("slot",), "Resident memory of the child's current process."
)
SLOT_FDS = Computed(
    "tenure_slot_open_fds", "gauge", ("slot",), "File descriptors that the child's current process has open."
)
WORKERS_BUSY = Computed(
    "tenure_workers_busy", "gauge", ("pool",), "Runs in flight, by pool. At the pool's capacity for long: add workers."
)
WORKER_CUT_OFF = Computed(
    "tenure_worker_cut_off_seconds",
    "gauge",
    ("slot",),
    "How long a worker has been asking Redis without an answer; 0: it is not. Alarm above 30: it runs nothing new.",
)
HEALTH = Computed(
    "tenure_healthcheck",
    "gauge",
    ("name", "type"),
    "1 while a check of /livez, /readyz or /healthz passes, else 0.",
)
BUILD_INFO = Computed("tenure_build_info", "gauge", ("version", "python"), "1; its labels say what runs.")
CONFIG_EPOCH = Computed(
    "tenure_config_epoch", "gauge", (), "Number of the reload whose configuration is in effect; 0: as it started."
)
CONFIG_LAST_RELOAD_SUCCESSFUL = Computed(
    "tenure_config_last_reload_successful",
    "gauge",
    (),
    "0 when the last reload of this replica was refused or undone, else 1. Alarm on 0: the former configuration runs.",
)
CONFIG_LAST_RELOAD = Computed(
    "tenure_config_last_reload_timestamp_seconds", "gauge", (), "When the last reload ended; 0: there was none."
)
UPTIME = Computed("tenure_uptime_seconds", "gauge", (), "How long ago this replica's process tree started.")
REDIS_UP = Computed(
    "tenure_redis_up", "gauge", (), "1 if Redis answered the web child's last question, else 0. Alarm on 0."
)
QUEUE_READY = Computed(
    "tenure_queue_ready",
    "gauge",
    ("queue", "kind", "priority"),
    "Runs that wait for a worker; absent while Redis is away. The same on every replica: do not sum over them.",
)
QUEUE_RUNNING = Computed("tenure_queue_running", "gauge", ("queue",), "Runs that workers of any replica hold.")
QUEUE_LATER = Computed("tenure_queue_later", "gauge", ("queue",), "Runs that wait for their time: delayed or retried.")
QUEUE_BLOCKED = Computed(
    "tenure_queue_blocked", "gauge", ("queue",), "Runs that wait until one with their concurrency key ends."
)
QUEUE_DEAD = Computed(
    "tenure_queue_dead", "gauge", ("queue",), "Runs given up and kept for inspection. Alarm on growth."
)
QUEUE_PAUSED = Computed("tenure_queue_paused", "gauge", ("queue",), "1 while workers take nothing from the queue.")

COMPUTED = (
    IS_LEADER, TERM_EPOCH, TERM_TRUST, PROGRESS_AGE, CLOCK_SKEW, SLOT_STATE, SLOT_RESTARTS, SLOT_BEAT_AGE, SLOT_CPU,
    SLOT_RSS, SLOT_FDS, WORKERS_BUSY, WORKER_CUT_OFF, HEALTH, BUILD_INFO, CONFIG_EPOCH,
    CONFIG_LAST_RELOAD_SUCCESSFUL, CONFIG_LAST_RELOAD, UPTIME, REDIS_UP, QUEUE_READY, QUEUE_RUNNING,
    QUEUE_LATER, QUEUE_BLOCKED, QUEUE_DEAD, QUEUE_PAUSED,
)  # fmt: skip
