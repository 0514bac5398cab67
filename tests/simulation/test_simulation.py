"""The promises of docs/guarantees.md in seeded worlds: the real election, scheduler and Lua, and everything that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.agent.standing import Timing
from supervisor.settings.models import ElectionSettings
from supervisor.store.keys import Keys
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import ReplicaClock, S, World
from tests.simulation.conftest import WORLDS_PER_TEST
from tests.simulation.mutants import first_caught
from tests.simulation.scenario import run

TICK = ScheduleDef(id="tick", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=10_000, overlap="allow")
MUTANT_WORLDS = 300


def test_promises_hold_in_worlds_where_things_go_wrong(first_seed: int) -> None:
    """Ten seeds; a broken one prints itself. Replay: python -m tests.simulation --seed N."""
    for seed in range(first_seed, first_seed + WORLDS_PER_TEST):
        outcome = run(seed)
        assert not outcome.problems, str(outcome)


def test_a_seed_repeats_itself() -> None:
    """A failure that cannot be replayed cannot be understood."""
    first, second = run(7), run(7)

    assert [str(told) for told in first.history] == [str(told) for told in second.history]


@pytest.mark.timeout(1200)  # all of them together are no part of a usual run
def test_the_simulation_catches(mutant: str) -> None:
    """A variant of the program with one protection removed must be found out."""
    assert first_caught(mutant, seeds=MUTANT_WORLDS) is not None, f"no world shows that {mutant}"


class Quiet:
    """Three replicas on a good network."""

    def __init__(self) -> None:
        self.world = World(Server(Keys("quiet")), seed=1)
        timing = Timing.of(ElectionSettings())
        self.replicas = [
            Replica(
                self.world,
                self.world.server.keys,
                f"r{i}",
                timing=timing,
                definitions=(TICK,),
                clock=ReplicaClock(self.world),
            )
            for i in range(3)
        ]
        for replica in self.replicas:
            replica.start()
        self.pass_s(3)

    def pass_s(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + int(seconds * S))

    @property
    def leader(self) -> Replica:
        (leader,) = [replica for replica in self.replicas if replica.is_leading]
        return leader

    def terms(self) -> int:
        return sum(
            told.event == "leader_acquired" and told.fields["reason"] == "granted" for told in self.world.history
        )


@pytest.fixture
def quiet() -> Iterator[Quiet]:
    """A cluster in which somebody leads."""
    holder: list[Quiet] = []
    with driven_time(lambda: holder[0].world.server_time_s() if holder else 0.0):
        made = Quiet.__new__(Quiet)
        holder.append(made)
        made.__init__()  # type: ignore[misc]  # the clock must be readable while it is built
        yield made


def test_a_release_is_answered_within_milliseconds(quiet: Quiet) -> None:
    """A standby waits for the event, not for the lease to end."""
    quiet.leader.stop()
    asked_ns = quiet.world.now_ns
    quiet.pass_s(1)

    acquired = [told for told in quiet.world.history if told.event == "leader_acquired"]
    assert len(acquired) == 2
    assert acquired[-1].at_ns - asked_ns < S // 20


def test_a_dead_leader_is_replaced_when_its_lease_ends(quiet: Quiet) -> None:
    """Five seconds and a round trip, however unlucky the moment."""
    quiet.leader.kill()
    quiet.pass_s(5.1)

    assert quiet.leader.is_alive


def test_an_outage_of_redis_changes_no_leader(quiet: Quiet) -> None:
    """Silence while Redis is away is nobody's silence: the same term goes on when it is back."""
    leader = quiet.leader
    quiet.world.is_server_up = False
    quiet.pass_s(60)
    assert not leader.is_leading
    quiet.world.is_server_up = True
    quiet.pass_s(1)

    assert quiet.leader is leader
    assert quiet.terms() == 1


def test_a_healthy_leader_survives_any_step_of_the_clock_of_redis(quiet: Quiet) -> None:
    """Followers count on their own clock; the server's is a hint."""
    leader = quiet.leader
    for step_ms in (3_600_000, -7_200_000, 86_400_000):
        quiet.world.server_offset_ms += step_ms
        quiet.pass_s(20)

    assert quiet.leader is leader
    assert quiet.terms() == 1


def test_a_restarted_agent_resumes_the_term(quiet: Quiet) -> None:
    """The scheduler beside it fires on: nobody else noticed."""
    leader = quiet.leader
    leader.kill_elector()
    quiet.pass_s(2)
    leader.start_elector()
    quiet.pass_s(20)

    assert quiet.leader is leader
    assert quiet.terms() == 1


def test_an_agent_that_died_with_its_question_open_finds_the_term_it_won(quiet: Quiet) -> None:
    """The nonce is on the board before it is sent, so the grant is not orphaned for a whole lease."""
    holder = quiet.leader
    holder.stop()
    while not any(told.event == "leader_released" for told in quiet.world.history):
        quiet.world.run_until(quiet.world.now_ns + S // 10_000)
    asking = [r for r in quiet.replicas if r.board.next_nonce]
    while not asking:
        quiet.world.run_until(quiet.world.now_ns + S // 10_000)
        asking = [r for r in quiet.replicas if r.board.next_nonce and r is not holder]
    asking[0].kill_elector()
    quiet.pass_s(0.01)
    asking[0].start_elector()
    quiet.pass_s(1)

    assert quiet.leader is asking[0]


def test_a_leader_whose_scheduler_stands_still_hands_over(quiet: Quiet) -> None:
    """Leading without scheduling is worse than not leading."""
    leader = quiet.leader
    leader.scheduler.pause(3600 * S)
    quiet.pass_s(15)

    assert quiet.leader is not leader
    assert [told.fields["reason"] for told in quiet.world.history if told.event == "leader_released"] == ["no_progress"]


def test_idle_replicas_ask_redis_seldom(quiet: Quiet) -> None:
    """One command a second from the leader, less than one in two seconds from each standby."""
    quiet.pass_s(10)
    before = quiet.world.server.calls
    quiet.pass_s(100)

    # Scripts only; each standby also sends one blocking read for each campaign, and six fires came from "tick".
    scripts = quiet.world.server.calls - before - 10
    assert scripts <= 100 * (1.1 + 2 * 0.25)


def test_a_leader_with_a_wall_clock_ahead_fires_by_the_clock_of_redis(quiet: Quiet) -> None:
    """Neither early nor never: the smaller of the two clocks counts."""
    quiet.leader.clock.wall_offset_ms = 3_600_000
    quiet.pass_s(60)
    quiet.leader.clock.wall_offset_ms = 0
    quiet.pass_s(60)

    fired = [decision.nominal_ms for decision in quiet.world.server.decisions]
    assert fired == [quiet.world.start_ms + 10_000 * k for k in range(1, 13)]
    assert all(d.at_ms - d.nominal_ms < 1100 for d in quiet.world.server.decisions)
