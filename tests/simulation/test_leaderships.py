"""Leaderships of programs in a hostile world: one leads at most, by its own clock, and each start has its stop."""

from __future__ import annotations

from random import Random

import pytest

from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.leadership.contender import Contender, candidate
from supervisor.roles.leadership.leadership import timing_of
from supervisor.roles.leadership.threads import Callbacks
from supervisor.store.keys import Keys
from supervisor.testing.leaderships import SimulatedLeadership
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import Network, ReplicaClock, S, World
from tests.kit.shares import share
from tests.simulation.faults import BadNetwork, Profile

KEYS = Keys("programs").leadership("billing")
LEASE_NS = 5 * S
LOOK_NS = 100 * MILLISECOND_NS
NETWORK = frozenset({"slow", "stall", "lost_request", "lost_reply", "repeated", "reset"})


class Program:
    """One program that contends; ``start`` makes another process of it."""

    def __init__(self, world: World, number: int, *, lease_ns: int = LEASE_NS) -> None:
        self.world = world
        self.lease_ns = lease_ns
        self.rng = Random(f"{world.seed}/{number}")
        self.clock = ReplicaClock(world, boot_offset_ns=number * S, rate=1 + self.rng.uniform(-0.02, 0.02))
        self.number = number
        self.incarnation = 0
        self.calls: list[tuple[str, int]] = []
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.calls = []
        callbacks = Callbacks(
            on_started=lambda epoch: self.calls.append(("started", epoch)),
            on_stopped=lambda epoch: self.calls.append(("stopped", epoch)),
            on_changed=None,
        )

        def contender(changed: object) -> Contender:
            return Contender(
                KEYS,
                clock=self.clock,
                timing=timing_of(self.lease_ns / S),
                me=candidate(f"p{self.number}.{self.incarnation}", pid=1, host="h", started_ms=0, participates=True),
                rng=self.rng,
                new_nonce=lambda: f"{self.rng.getrandbits(128):032x}",
                changed=changed,  # type: ignore[arg-type]
            )

        self.execution = SimulatedLeadership(self.world, self.clock, contender, callbacks, None)
        self.execution.start()

    @property
    def is_leader(self) -> bool:
        """True if code of the program that looks now is told that it leads, also while the others stand still."""
        return self.execution.actor.is_alive and self.execution.contender.leader_seen().epoch > 0

    def check_calls(self) -> None:
        """Starts and stops alternate, a stop has the epoch of its start, and epochs never go back."""
        started = [epoch for kind, epoch in self.calls if kind == "started"]
        stopped = [epoch for kind, epoch in self.calls if kind == "stopped"]
        assert [kind for kind, _ in self.calls] == ["started", "stopped"] * len(stopped) + ["started"] * (
            len(started) - len(stopped)
        ), self.calls
        assert started[: len(stopped)] == stopped
        assert started == sorted(started)


def made(
    seed: int, network: Network | None = None, programs: int = 3, lease_ns: int = LEASE_NS
) -> tuple[World, list[Program]]:
    world = World(Server(Keys("programs")), seed=seed, network=network)
    return world, [Program(world, number, lease_ns=lease_ns) for number in range(programs)]


def strike(world: World, program: Program, fault: str) -> None:
    """Let one fault happen to a program, or to Redis."""
    seconds = world.rng.uniform(0.1, 12)
    if fault == "pause":
        program.execution.actor.pause(int(seconds * S))
    elif fault == "kill":
        program.execution.actor.kill()
        program.start()
    elif fault == "cut":
        program.execution.is_cut = not program.execution.is_cut
    elif fault == "close" and program.execution.actor.is_alive:
        program.execution.end(0)
    elif fault == "outage":
        world.is_server_up = not world.is_server_up
    elif fault == "loss":
        world.server.empty()
        world.executed()
    if not program.execution.actor.is_alive:
        program.start()


@pytest.mark.parametrize("seed", share(range(12), 3))
@pytest.mark.parametrize(
    ("faults", "kinds"),
    [
        (("pause", "kill", "cut", "close", "outage"), NETWORK),
        (("pause", "kill", "cut", "outage", "loss"), frozenset[str]()),  # a lost reply may have told of the lost data
    ],
    ids=["any fault", "loss of data"],
)
def test_at_most_one_program_leads_whatever_happens(seed: int, faults: tuple[str, ...], kinds: frozenset[str]) -> None:
    """Programs are paused beyond the lease, killed and cut off; Redis stops, and in the second world loses its data."""
    network = BadNetwork(Random(seed), Profile(kinds, is_rate_skewed=False))
    world, programs = made(seed, network)
    with driven_time(world.server_time_s):
        for turn in range(600):
            if turn % 25 == 0:
                strike(world, world.rng.choice(programs), world.rng.choice(faults))
            world.run_until(world.now_ns + LOOK_NS)
            leading = [program.number for program in programs if program.is_leader]
            assert len(leading) <= 1, f"seed {seed}, {world.now_ns / S} s: {leading}"
            for program in programs:
                program.check_calls()
        network.is_calm = world.is_server_up = True
        for program in programs:
            program.execution.is_cut = False
            program.execution.actor.unpause()
        world.run_until(world.now_ns + 4 * LEASE_NS)
        assert sum(program.is_leader for program in programs) == 1
        (leader,) = [program for program in programs if program.is_leader]
        assert leader.calls[-1] == ("started", leader.execution.contender.leader_seen().epoch)
        granted = [
            int(fields["epoch"])
            for _, fields in world.server.entries_after(KEYS.events, "0-0")
            if fields["kind"] == "acquired"
        ]
        assert granted == sorted(set(granted))


def test_a_paused_leader_is_none_by_its_own_clock_before_another_one_leads() -> None:
    """Its threads stand still, so nobody tells it: whoever asks ``is_leader`` after the pause gets the clock's answer."""
    world, programs = made(1, programs=2)
    with driven_time(world.server_time_s):
        world.run_until(2 * S)
        (leader,) = [program for program in programs if program.is_leader]
        leader.execution.actor.pause(60 * S)
        other = programs[1 - leader.number]
        ended_ns = 0
        while not other.is_leader:
            world.run_until(world.now_ns + LOOK_NS)
            ended_ns = ended_ns or (0 if leader.is_leader else world.now_ns)
        assert 0 < ended_ns < world.now_ns
        assert leader.calls[-1][0] == "started"
        leader.execution.actor.unpause()
        world.run_until(world.now_ns + S)
        assert leader.calls[-1] == ("stopped", leader.calls[-2][1])
        assert not leader.is_leader


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_newcomer", [False, True], ids=["Redis loses its data", "Redis' clock steps"])
def test_a_short_lease_takes_nothing_from_a_long_one(seed: int, *, is_newcomer: bool) -> None:
    """Each program chooses the length of its lease: the others wait as long as the holder's says, also for a lost one."""
    world, [holder] = made(seed, programs=1, lease_ns=30 * S)
    with driven_time(world.server_time_s):
        world.run_until(2 * S)
        assert holder.is_leader
        if is_newcomer:
            world.server_offset_ms += 3_600_000
            other = Program(world, 1, lease_ns=S)
        else:
            other = Program(world, 1, lease_ns=S)
            world.run_until(world.now_ns + S)
            world.is_server_up = False
            world.server.empty()
            world.run_until(world.now_ns + LOOK_NS)
            world.is_server_up = True
        end_ns = world.now_ns + 90 * S
        while world.now_ns < end_ns:
            world.run_until(world.now_ns + LOOK_NS)
            assert not (holder.is_leader and other.is_leader), f"{world.now_ns / S} s"
        assert holder.is_leader or other.is_leader


def test_a_release_is_heard_by_the_next_one_within_milliseconds() -> None:
    """A program that ends hands over at once: nobody waits for a lease."""
    world, programs = made(3)
    with driven_time(world.server_time_s):
        world.run_until(7 * S)
        (leader,) = [program for program in programs if program.is_leader]
        leader.execution.end(0)
        assert leader.calls[-1][0] == "stopped"
        world.run_until(world.now_ns + 200 * MILLISECOND_NS)
        assert [program.number for program in programs if program.is_leader] != []


def test_a_program_never_touches_the_lease_of_the_replicas() -> None:
    """No key outside of its own: the scheduler's election is the trees' alone."""
    world, _ = made(4)
    with driven_time(world.server_time_s):
        world.run_until(30 * S)
        keys = {key.decode().removeprefix(KEYS.prefix) for key in world.server.store.raw.keys("*")}
        assert keys == {f"leadership:billing:{name}" for name in ("lease", "fence", "genesis", "events", "candidates")}


def test_the_record_of_a_leadership_expires_when_nobody_contends() -> None:
    """Names come and go with programs: each key has an end, which every contender puts off."""
    world, programs = made(5)
    with driven_time(world.server_time_s):
        world.run_until(30 * S)
        raw = world.server.store.raw
        assert all(raw.ttl(key) > 29 * 86_400 for key in raw.keys("*"))
        for program in programs:
            program.execution.actor.kill()
        world.run_until(world.now_ns + 31 * 86_400 * S)
        assert raw.keys("*") == []
