"""The promises of docs/guarantees.md in seeded worlds: the real election, scheduler and Lua, and everything that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.store.keys import Keys
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import S, World
from tests.simulation.cluster import Replicas
from tests.simulation.conftest import WORLDS_PER_TEST
from tests.simulation.mutants import first_caught
from tests.simulation.scenario import run

TICK = ScheduleDef(id="tick", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=10_000, overlap="allow")
MUTANT_WORLDS = 20


def test_promises_hold_in_worlds_where_things_go_wrong(first_seed: int) -> None:
    """Four seeds; a broken one prints itself. Replay: python -m tests.simulation --seed N."""
    for seed in range(first_seed, first_seed + WORLDS_PER_TEST):
        outcome = run(seed)
        assert not outcome.problems, str(outcome)


def test_a_seed_repeats_itself() -> None:
    """A failure that cannot be replayed cannot be understood."""
    first, second = run(7), run(7)

    assert [str(told) for told in first.history] == [str(told) for told in second.history]


def test_the_simulation_catches(mutant: str) -> None:
    """A variant of the program with one protection removed must be found out. All of them: make sim-mutants."""
    assert first_caught(mutant, seeds=MUTANT_WORLDS) is not None, f"no world shows that {mutant}"


class Quiet(Replicas):
    """Three replicas on a good network."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 3, TICK)
        for replica in self.replicas:
            replica.start()
        self.pass_s(3)

    def terms(self) -> int:
        return sum(
            told.event == "leader_acquired" and told.fields["reason"] == "granted" for told in self.world.history
        )


@pytest.fixture
def quiet() -> Iterator[Quiet]:
    """A cluster in which somebody leads."""
    world = World(Server(Keys("quiet")), seed=1)
    with driven_time(world.server_time_s):
        yield Quiet(world)


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


def test_a_leader_whose_scheduler_hangs_has_it_killed_and_hands_over(quiet: Quiet) -> None:
    """Leading without scheduling is worse than not leading; the lease is given back once the parent has reaped it."""
    leader = quiet.leader
    leader.hang_scheduler(3600 * S)
    quiet.pass_s(4)

    assert quiet.leader.scheduler.is_alive
    assert not quiet.leader.scheduler.is_paused
    assert any(told.event in {"leader_promoted", "leader_released"} for told in quiet.world.history)


def test_a_dead_scheduler_is_followed_by_one_with_a_later_term(quiet: Quiet) -> None:
    """What the dead one sent late must not be accepted; nobody else comes to lead."""
    leader, before = quiet.leader, quiet.leader.board.term().epoch
    leader.replace_scheduler()
    quiet.pass_s(1)

    assert quiet.leader is leader
    assert leader.board.term().epoch > before
    assert quiet.terms() == 1


def test_a_third_death_of_the_scheduler_within_a_minute_lets_another_lead(quiet: Quiet) -> None:
    """A replica whose scheduler keeps dying must not keep the others from scheduling."""
    leader = quiet.leader
    for _ in range(3):
        leader.replace_scheduler()
        quiet.pass_s(1)

    assert quiet.leader is not leader
    assert [t.fields["reason"] for t in quiet.world.history if t.event == "leader_released"] == ["scheduler_crashes"]


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_a_rolling_restart_makes_two_transitions_at_most(seed: int) -> None:
    """Whoever comes up takes part, and the one that leads first among the new ones stays."""
    rng = Random(seed)
    world = World(Server(Keys("rolling")), seed=seed)
    with driven_time(world.server_time_s):
        replicas = Replicas(world, rng.choice([3, 4, 5]), TICK).replicas
        for replica in replicas:
            replica.version = "1.0"
            replica.start()
            world.run_until(world.now_ns + rng.randrange(S, 3 * S))
        before = len(world.server.granted)
        rng.shuffle(replicas)
        for replica in replicas:
            replica.stop()
            world.run_until(world.now_ns + S // 2)
            replica.kill()
            world.run_until(world.now_ns + rng.randrange(S // 10, 2 * S))
            replica.version = "1.1"
            replica.start()
            world.run_until(world.now_ns + rng.randrange(2 * S, 8 * S))

    assert len(world.server.granted) - before <= 2
    assert sum(replica.is_leading for replica in replicas) == 1


def test_idle_replicas_ask_redis_seldom(quiet: Quiet) -> None:
    """One command a second from the leader, less than one in two seconds from each standby."""

    def asked() -> int:
        return sum(n for name, n in quiet.world.server.counts.items() if name.startswith("lease_"))

    quiet.pass_s(10)
    before = asked()
    quiet.pass_s(100)

    # Scripts of the election; each standby also sends one blocking read for each campaign.
    assert asked() - before <= 100 * (1.1 + 2 * 0.25)


def test_a_leader_with_a_wall_clock_ahead_fires_by_the_clock_of_redis(quiet: Quiet) -> None:
    """Neither early nor never: the smaller of the two clocks counts."""
    for replica in quiet.replicas:
        replica.clock.wall_offset_ms = 3_600_000
    quiet.pass_s(60)
    for replica in quiet.replicas:
        replica.clock.wall_offset_ms = 0
    quiet.pass_s(60)

    fired = [decision.nominal_ms for decision in quiet.world.server.decisions]
    assert fired == [quiet.world.start_ms + 10_000 * k for k in range(1, 13)]
    assert all(d.at_ms - d.nominal_ms < 1100 for d in quiet.world.server.decisions)
    assert quiet.terms() == 1, "nobody's clock was better"


@pytest.mark.parametrize("offset_ms", [-3_600_000, 3_600_000])
def test_a_leader_whose_wall_clock_steps_gives_way_to_one_that_has_the_time(quiet: Quiet, offset_ms: int) -> None:
    """Behind, it would fire nothing for an hour. One lease duration and a renewal are what this may cost."""
    wrong = quiet.leader
    wrong.clock.wall_offset_ms = offset_ms
    quiet.pass_s(60)

    assert quiet.leader is not wrong
    assert quiet.terms() == 2
    fired = [decision.nominal_ms for decision in quiet.world.server.decisions]
    assert fired == [quiet.world.start_ms + 10_000 * k for k in range(1, 7)]
    assert all(d.at_ms - d.nominal_ms < 7000 for d in quiet.world.server.decisions)


def test_alone_with_a_wrong_clock_a_replica_leads_on(quiet: Quiet) -> None:
    """The others are gone: what it fires late, nobody would fire."""
    leader = quiet.leader
    for replica in quiet.replicas:
        if replica is not leader:
            replica.kill()
    leader.clock.wall_offset_ms = -3_600_000
    quiet.pass_s(60)

    assert quiet.leader is leader
    assert quiet.terms() == 1


def test_a_step_of_the_clock_of_redis_hands_nothing_over_whenever_it_comes() -> None:
    """What standbys said before the step says that their clocks are right: it must not be believed after it."""
    for seed in range(6):
        rng = Random(seed)
        world = World(Server(Keys("steps")), seed=seed)
        with driven_time(world.server_time_s):
            quiet = Quiet(world)
            quiet.pass_s(5 * rng.random())
            for step_ms in (rng.choice([-1, 1]) * rng.randrange(600, 20_000), 3_600_000, -7_200_000):
                world.server_offset_ms += step_ms
                quiet.pass_s(20)

        assert quiet.terms() == 1, seed
