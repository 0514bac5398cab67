"""The truth table of health: every fault that the board can show, by every question that can be asked.

Written out by hand, on purpose: a table that is derived from the code would agree with any code.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.election.lease import NO_TERM
from supervisor.core.supervision import health
from supervisor.core.supervision.health import Facts, HealthEndpoint, checks, is_serving, report
from supervisor.core.supervision.states import Phase, SlotState
from tests.kit.tables import table
from tests.unit.core.test_health import HEALTHY, NOW, S, trusted_until, with_slot

OK, LIVE, READY = 200, 500, 503

NO_PROCESS = with_slot("scheduler", state=SlotState.BACKOFF)
# fault: what it looks like; then what /livez, /readyz and /healthz answer, and which check says why.
TABLE: dict[str, tuple[Facts, int, int, int, str]] = {
    "nothing is wrong, leading": (HEALTHY, OK, OK, OK, ""),
    "nothing is wrong, standing by": (
        replace(HEALTHY, term=NO_TERM), OK, OK, OK, "",
    ),
    "a reload is under way": (replace(HEALTHY, phase=Phase.RELOADING), OK, OK, OK, ""),
    "the tree is starting": (replace(HEALTHY, phase=Phase.STARTING), OK, READY, OK, "startup"),
    "the tree is draining": (replace(HEALTHY, phase=Phase.DRAINING), OK, READY, OK, "shutdown"),
    "the tree is being killed": (replace(HEALTHY, phase=Phase.KILLING), OK, READY, OK, "shutdown"),
    "the parent hangs": (replace(HEALTHY, parent_beat_ns=NOW - 5 * S), LIVE, OK, LIVE, "supervisor"),
    "the shared memory is damaged": (replace(HEALTHY, is_board_sound=False), LIVE, OK, LIVE, "scoreboard"),
    "the agent died": (with_slot("agent", state=SlotState.BACKOFF), OK, READY, OK, "agent"),
    "the agent comes up": (with_slot("agent", state=SlotState.STARTING), OK, READY, OK, "agent"),
    "the agent was given up": (with_slot("agent", state=SlotState.FATAL), OK, READY, OK, "agent"),
    "the scheduler died": (NO_PROCESS, OK, READY, OK, "scheduler"),
    "the scheduler comes up": (with_slot("scheduler", state=SlotState.STARTING), OK, OK, OK, ""),
    "a leader's scheduler is cut off from Redis": (
        with_slot("scheduler", asking_ns=NOW - 30 * S), OK, READY, OK, "scheduler",
    ),
    "the scheduler was given up": (with_slot("scheduler", state=SlotState.FATAL), OK, READY, OK, "scheduler"),
    "one worker of two died": (HEALTHY, OK, OK, OK, ""),
    "the last worker of a pool died": (with_slot("worker-cpu-1", state=SlotState.BACKOFF), OK, READY, OK, "workers"),
    "a person made a pool quiet": (
        with_slot("worker-io-0", state=SlotState.STOPPED, is_quiet=True), OK, OK, OK, "",
    ),
    "Redis does not answer": (with_slot("agent", redis_ok_ns=NOW - 10 * S), OK, READY, OK, "redis"),
    "Redis never answered": (with_slot("agent", redis_ok_ns=0), OK, READY, OK, "redis"),
    "a worker is cut off from Redis": (with_slot("worker-io-0", asking_ns=NOW - 30 * S), OK, READY, OK, "turns"),
    "a job's database is away": (with_slot("worker-io-0", ill_resources=1), OK, READY, OK, "resources"),
    "the elector hangs": (replace(HEALTHY, elector_due_ns=NOW - 2 * S), OK, READY, LIVE, "electionWatchdog"),
    "the scheduler keeps failing": (replace(HEALTHY, ineligible_until_ns=NOW + S), OK, READY, OK, "election"),
    "Redis lost data, fires are held": (replace(HEALTHY, is_held=True), OK, READY, OK, "election"),
    "a leader's trust ended, for less than a lease": (trusted_until(NOW - 5 * S), OK, OK, OK, ""),
    "a leader's trust ended a lease ago": (trusted_until(NOW - 6 * S), OK, READY, OK, "election"),
    "a leader overslept its term by far": (
        trusted_until(NOW - 26 * S), OK, READY, LIVE, "leaderElection",
    ),
    "the clock is ahead": (replace(HEALTHY, clock_skew_ms=501), OK, READY, OK, "clock"),
    "the clock is behind": (replace(HEALTHY, clock_skew_ms=-501), OK, READY, OK, "clock"),
}  # fmt: skip


@table("endpoint", HealthEndpoint)
@table("fault", TABLE)
def test_each_fault_fails_the_endpoints_of_its_row(fault: str, endpoint: HealthEndpoint) -> None:
    """Faults by endpoints: liveness for what a restart of this replica heals, readiness for what it cannot do now."""
    of, *codes, name = TABLE[fault]
    expected = codes[(HealthEndpoint.LIVEZ, HealthEndpoint.READYZ, HealthEndpoint.HEALTHZ).index(endpoint)]
    found = checks(endpoint, of)

    assert report(endpoint, found).status == expected
    assert is_serving(found) == (expected == OK)
    if expected != OK and name in {check.name for check in found}:
        assert next(check for check in found if check.name == name).reason


@table("fault", TABLE)
def test_the_check_that_says_why_is_named(fault: str) -> None:
    """A person who reads the answer must find the fault in it."""
    of, *_, name = TABLE[fault]
    failed = {check.name for endpoint in HealthEndpoint for check in checks(endpoint, of) if not check.ok}

    assert (name in failed) if name else failed == set()


def test_the_table_has_a_fault_for_every_check() -> None:
    """A check that nothing fails is not tested; that of ping is that there is an answer, and those of queues and schedules only note."""
    known = {check.name for endpoint in HealthEndpoint for check in checks(endpoint, HEALTHY)}

    assert known - {row[-1] for row in TABLE.values()} == {"ping", "queues", "schedules"}


def test_the_facts_have_no_word_that_the_table_leaves_out() -> None:
    """Whoever adds a fact adds its fault here; what identifies is not a fault."""
    turned = {
        field
        for of, *_ in TABLE.values()
        for field in Facts.__dataclass_fields__
        if getattr(of, field) != getattr(HEALTHY, field)
    }

    assert set(Facts.__dataclass_fields__) - turned == {"now_ns", "lease_duration_s", "pools"}


def test_liveness_never_depends_on_redis() -> None:
    """An outage would otherwise restart every replica at once; by the sources, not by examples."""
    of = replace(trusted_until(0), slots=(), clock_skew_ms=9**9, is_held=True)

    assert is_serving(checks(HealthEndpoint.LIVEZ, of))
    assert not is_serving(checks(HealthEndpoint.READYZ, of))
    assert health.report(HealthEndpoint.LIVEZ, checks(HealthEndpoint.LIVEZ, of)).body == "ok"
