"""Which faults make which endpoint fail, and how the answer reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.supervision.health import (
    Facts,
    HealthCheck,
    HealthEndpoint,
    SlotFacts,
    checks,
    facts,
    report,
    report_one,
    role_of,
)
from supervisor.core.supervision.scoreboard import HEADER_WORDS, MAGIC, Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from tests.kit.tables import table

S = 1_000_000_000
NOW = 1000 * S
LEASE_S = 5.0

HEALTHY = Facts(
    now_ns=NOW,
    is_board_sound=True,
    phase=Phase.READY,
    parent_beat_ns=NOW - S // 2,
    term=Term(7, "f" * 32, NOW + 4 * S),
    elector_due_ns=NOW + S,
    ineligible_until_ns=0,
    is_held=False,
    clock_skew_ms=0,
    lease_duration_s=LEASE_S,
    pools=("io", "cpu"),
    slots=(
        SlotFacts("agent", "agent", None, SlotState.RUNNING, redis_ok_ns=NOW - S),
        SlotFacts("scheduler", "scheduler", None, SlotState.RUNNING),
        SlotFacts("web", "web", None, SlotState.RUNNING),
        SlotFacts("worker-io-0", "worker", "io", SlotState.RUNNING),
        SlotFacts("worker-cpu-0", "worker", "cpu", SlotState.BACKOFF),
        SlotFacts("worker-cpu-1", "worker", "cpu", SlotState.RUNNING),
    ),
)


def trusted_until(moment_ns: int) -> Facts:
    """Return healthy facts with another end of trust."""
    return replace(HEALTHY, term=replace(HEALTHY.term, trusted_until_ns=moment_ns))


def with_slot(name: str, **changes: object) -> Facts:
    """Return healthy facts with one slot changed."""
    return replace(
        HEALTHY, slots=tuple(replace(slot, **changes) if slot.name == name else slot for slot in HEALTHY.slots)
    )


def failing(of: Facts) -> dict[str, list[str]]:
    """Return the failed checks of each endpoint."""
    return {
        endpoint.title: [check.name for check in checks(endpoint, of) if not check.ok]
        for endpoint in HealthEndpoint
        if not all(check.ok for check in checks(endpoint, of))
    }


def test_a_healthy_replica_passes_everything() -> None:
    """A worker in back-off beside a running one of its pool is no reason to take traffic away."""
    assert failing(HEALTHY) == {}


def test_a_standby_is_as_healthy_as_a_leader() -> None:
    """It serves, and must be ready so that a rolling update goes on."""
    assert failing(trusted_until(0)) == {}


@table(
    ("of", "expected"),
    [
        (replace(HEALTHY, parent_beat_ns=NOW - 5 * S), {"livez": ["supervisor"], "healthz": ["supervisor"]}),
        (replace(HEALTHY, parent_beat_ns=0), {"livez": ["supervisor"], "healthz": ["supervisor"]}),
        (replace(HEALTHY, is_board_sound=False), {"livez": ["scoreboard"], "healthz": ["scoreboard"]}),
        (replace(HEALTHY, phase=Phase.STARTING), {"readyz": ["startup"]}),
        (replace(HEALTHY, phase=Phase.RELOADING), {}),
        (replace(HEALTHY, phase=Phase.DRAINING), {"readyz": ["shutdown"]}),
        (replace(HEALTHY, phase=Phase.KILLING), {"readyz": ["shutdown"]}),
        (with_slot("agent", state=SlotState.BACKOFF), {"readyz": ["agent"]}),
        (with_slot("agent", state=SlotState.STARTING), {"readyz": ["agent"]}),
        (with_slot("scheduler", state=SlotState.FATAL), {"readyz": ["scheduler"]}),
        (with_slot("scheduler", state=SlotState.STARTING), {}),
        (with_slot("worker-cpu-1", state=SlotState.FATAL), {"readyz": ["workers"]}),
        (with_slot("worker-io-0", state=SlotState.STOPPING), {"readyz": ["workers"]}),
        (with_slot("agent", redis_ok_ns=NOW - 10 * S), {"readyz": ["redis"]}),
        (with_slot("agent", redis_ok_ns=0), {"readyz": ["redis"]}),
        (with_slot("worker-io-0", asking_ns=NOW - 29 * S), {}),
        (with_slot("worker-io-0", asking_ns=NOW - 30 * S), {"readyz": ["turns"]}),
        (with_slot("worker-cpu-0", asking_ns=NOW - 99 * S), {}),  # it has no process
        (with_slot("scheduler", asking_ns=NOW - 29 * S), {}),
        (with_slot("scheduler", asking_ns=NOW - 30 * S), {"readyz": ["scheduler"]}),
        (with_slot("agent", asking_ns=NOW - 99 * S), {}),
        (with_slot("worker-io-0", ill_resources=1), {"readyz": ["resources"]}),
        (with_slot("worker-cpu-0", ill_resources=1), {}),  # it has no process
        (replace(HEALTHY, slots=()), {"readyz": ["agent", "scheduler", "workers", "redis"]}),
        (replace(HEALTHY, pools=(), slots=HEALTHY.slots[:3]), {}),
        (trusted_until(NOW - 5 * S), {}),
        (trusted_until(NOW - 6 * S), {"readyz": ["election"]}),
        (trusted_until(NOW - 26 * S), {"readyz": ["election"], "healthz": ["leaderElection"]}),
        (replace(HEALTHY, term=NO_TERM), {}),
        (replace(HEALTHY, elector_due_ns=NOW - S), {}),
        (replace(HEALTHY, elector_due_ns=NOW - 2 * S), {"readyz": ["election"], "healthz": ["electionWatchdog"]}),
        (replace(HEALTHY, elector_due_ns=0), {}),
        (replace(HEALTHY, ineligible_until_ns=NOW + S), {"readyz": ["election"]}),
        (replace(HEALTHY, ineligible_until_ns=NOW - S), {}),
        (replace(HEALTHY, is_held=True), {"readyz": ["election"]}),
        (replace(HEALTHY, clock_skew_ms=500), {}),
        (replace(HEALTHY, clock_skew_ms=501), {"readyz": ["clock"]}),
        (replace(HEALTHY, clock_skew_ms=-3_600_000), {"readyz": ["clock"]}),
    ],
)
def test_each_fault_fails_exactly_the_endpoints_it_should(of: Facts, expected: dict[str, list[str]]) -> None:
    """Above all: no fault outside this replica's own processes may fail /livez, since a restart would not help."""
    assert failing(of) == expected


def test_each_failure_says_why() -> None:
    """A probe that only says no sends someone to read code at night."""
    reasons = {check.name: check.reason for check in checks(HealthEndpoint.READYZ, replace(HEALTHY, slots=()))}
    age = checks(HealthEndpoint.LIVEZ, replace(HEALTHY, parent_beat_ns=NOW - 7 * S))[1].reason

    assert reasons["agent"] == "there is no agent"
    assert reasons["workers"] == "no worker is running in pool io, cpu"
    cut_off = tuple(replace(slot, asking_ns=NOW - 40 * S) for slot in HEALTHY.slots)
    turns = {check.name: check.reason for check in checks(HealthEndpoint.READYZ, replace(HEALTHY, slots=cut_off))}[
        "turns"
    ]
    assert turns == "worker-io-0 has had no answer of Redis for 40 s, and 1 more"
    assert age == "the parent's last beat was 7.0 s ago, more than 5 s"


RESULTS = [HealthCheck("ping"), HealthCheck("redis", "no answer"), HealthCheck("agent")]


def test_the_short_answer_is_ok() -> None:
    """What kubectl and load balancers expect, to the byte."""
    assert report(HealthEndpoint.LIVEZ, [HealthCheck("ping")]).body == "ok"


def test_the_verbose_answer_lists_every_check() -> None:
    """The format of kube-scheduler's /healthz?verbose."""
    answer = report(HealthEndpoint.HEALTHZ, [HealthCheck("ping"), HealthCheck("leaderElection")], verbose=True)

    assert (answer.status, answer.body) == (200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n")


@pytest.mark.parametrize(
    ("endpoint", "status"), [(HealthEndpoint.LIVEZ, 500), (HealthEndpoint.READYZ, 503), (HealthEndpoint.HEALTHZ, 500)]
)
def test_a_failure_is_always_verbose(endpoint: HealthEndpoint, status: int) -> None:
    """Whoever sees it fail needs the reason, asked for or not."""
    answer = report(endpoint, RESULTS)

    assert answer.status == status
    assert answer.body == f"[+]ping ok\n[-]redis failed: no answer\n[+]agent ok\n{endpoint.title} check failed\n"


def test_an_excluded_check_cannot_fail() -> None:
    """?exclude=redis: whoever does not want Redis in readiness can have it so."""
    answer = report(HealthEndpoint.READYZ, RESULTS, verbose=True, exclude=["redis"])

    assert (answer.status, answer.body) == (
        200,
        "[+]ping ok\n[+]redis excluded: ok\n[+]agent ok\nreadyz check passed\n",
    )


def test_excluding_an_unknown_check_warns() -> None:
    """A misspelt exclusion must not fail silently; kube-scheduler's wording."""
    answer = report(HealthEndpoint.LIVEZ, [HealthCheck("ping")], verbose=True, exclude=["zzz", "redsi"])

    assert answer.body == (
        '[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "redsi","zzz"\nlivez check passed\n'
    )


def test_a_single_check_can_be_asked() -> None:
    """One path per check, as in Kubernetes."""
    assert report_one(HealthEndpoint.READYZ, RESULTS, "agent") == report(HealthEndpoint.READYZ, [HealthCheck("agent")])
    failed = report_one(HealthEndpoint.READYZ, RESULTS, "redis")
    assert failed is not None
    assert (failed.status, failed.body) == (503, "internal server error: no answer\n")
    assert report_one(HealthEndpoint.READYZ, RESULTS, "nothing") is None


@pytest.mark.parametrize(
    ("slot", "expected"),
    [("agent", ("agent", None)), ("worker-io-0", ("worker", "io")), ("worker-a-b-12", ("worker", "a-b"))],
)
def test_a_slots_name_says_its_role_and_pool(slot: str, expected: tuple[str, str | None]) -> None:
    """Pools are named by people, who like dashes."""
    assert role_of(slot) == expected


def board() -> Board:
    """Return a board in private memory."""
    made = Board(memoryview(bytearray(8 * board_words(slots=2, inflight=1))).cast("Q"), slots=2, inflight=1)
    made.header.magic, made.header.slots = MAGIC, 2
    return made


def read(of: Board) -> Facts:
    """Read facts from ``of`` as the web child does."""
    return facts(of, now_ns=NOW, slot_names=("agent", "worker-io-0"), pools=("io",), lease_duration_s=LEASE_S)


def test_facts_come_from_the_board() -> None:
    """Nothing is remembered: a web child that was just restarted knows as much."""
    made = board()
    made.header.phase, made.header.parent_beat_ns = Phase.READY, NOW
    made.publish_term(Term(7, "ab" * 16, NOW + S))
    made.rows[0].state, made.rows[0].redis_ok_ns = SlotState.RUNNING, NOW - S

    seen = read(made)

    assert (seen.phase, seen.term.epoch, seen.term.trusted_until_ns, seen.is_board_sound) == (
        Phase.READY,
        7,
        NOW + S,
        True,
    )
    assert seen.slots[0] == SlotFacts("agent", "agent", None, SlotState.RUNNING, NOW - S)
    assert seen.slots[1] == SlotFacts("worker-io-0", "worker", "io", SlotState.STOPPED, 0)


@pytest.mark.parametrize("word", [0, 1, 3, HEADER_WORDS], ids=["magic", "slots", "phase", "state of a slot"])
def test_a_board_that_holds_nonsense_fails_a_check_instead_of_raising(word: int) -> None:
    """The probe must answer above all when memory was overwritten."""
    size = board_words(slots=2, inflight=1)
    words = memoryview(bytearray(8 * size)).cast("Q")
    made = Board(words, slots=2, inflight=1)
    made.header.magic, made.header.slots, made.header.parent_beat_ns = MAGIC, 2, NOW

    words[word] = 99

    assert failing(read(made))["livez"] == ["scoreboard"]


def test_late_schedules_are_named_and_fail_nothing() -> None:
    """Another replica would be as late; who looks learns which ones, up to a few."""
    found = checks(HealthEndpoint.READYZ, HEALTHY, late=[f"s{n:02d}" for n in range(40)])
    (note,) = [check.note for check in found if check.name == "schedules"]
    assert all(check.ok for check in found)
    assert note.startswith("late by their own promise: s00, s01, ")
    assert note.endswith(" more")


def test_replicas_with_other_static_schedules_are_named_and_fail_nothing() -> None:
    """Beside schedules that are late; the leader's set alone fires, and no probe can mend that."""
    found = checks(HealthEndpoint.READYZ, HEALTHY, late=["s"], differing="2 sets that differ, of a.1 - b.2")
    (note,) = [check.note for check in found if check.name == "schedules"]
    assert all(check.ok for check in found)
    assert note == "late by their own promise: s; static schedules: 2 sets that differ, of a.1 - b.2"
