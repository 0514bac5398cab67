"""Metrics of the election: terms, renewals, hand-overs, and failures between them."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter, Gauge, Histogram
from supervisor.telemetry.metrics.runs import CALL_SECONDS

ELECTION_TERMS = Counter(
    "tenure_election_terms_total",
    "Terms this replica won or lost, by event as in the log (leader_acquired, leader_lost, leader_released) and its "
    "reason. Alarm above three in ten minutes.",
    ["event", "reason"],
)
ELECTION_TRANSITIONS = Counter(
    "tenure_election_transitions_total",
    "Former name of tenure_election_terms_total, with lost_ in front of a reason; gone in the next release.",
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
    buckets=CALL_SECONDS,
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
REDIS_LOST_DATA = Counter(
    "tenure_redis_lost_data_total",
    "Losses of data that this replica saw in Redis, by kind (data, rolled_back). Alarm on any.",
    ["kind"],
)
ELECTION_REGRESSIONS = Counter(
    "tenure_election_regressions_total",
    "Former name of tenure_redis_lost_data_total; gone in the next release.",
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
