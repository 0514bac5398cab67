"""A paused process: what reaches it waits for it, and no pause outlasts the moment at which a test ends it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from supervisor.core.effects import RunScript, Sleep, Steps
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import Actor, Fate, Network, ReplicaClock, S, World

NEVER_NS = 1000 * S
PAUSE_NS = 60 * S


class Line:
    """A link that holds."""

    is_cut = False


class Stalling(Network):
    """A network whose first call finds its process standing still for a minute."""

    def __init__(self) -> None:
        super().__init__(Random(0))
        self.stall_ns = PAUSE_NS

    def fate(self) -> Fate:
        """Stall once."""
        stall_ns, self.stall_ns = self.stall_ns, 0
        return Fate(stall_ns, MILLISECOND_NS, MILLISECOND_NS)


class FencedClient:
    """One process that asks one question, and notes when it went on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.went_on_ns: list[int] = []
        self.actor = Actor(world, ReplicaClock(world), Line(), "asking")
        self.actor.start(self._steps())

    def pass_s(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + int(seconds * S))

    @property
    def asked(self) -> int:
        """How many questions reached the server."""
        return self.world.server.calls

    def _steps(self) -> Steps[None]:
        yield RunScript(Leases(self.world.server.keys).view(), 5 * S)
        self.went_on_ns.append(self.world.now_ns)
        yield Sleep(NEVER_NS)
        self.went_on_ns.append(self.world.now_ns)


def _world(network: Network | None = None) -> World:
    return World(Server(Keys("actor")), seed=1, network=network)


@pytest.fixture
def asking() -> Iterator[FencedClient]:
    """A process whose question is on its way."""
    world = _world()
    with driven_time(world.server_time_s):
        yield FencedClient(world)


@pytest.fixture
def stalled() -> Iterator[FencedClient]:
    """A process that stands still before it sends its question."""
    world = _world(Stalling())
    with driven_time(world.server_time_s):
        yield FencedClient(world)


def test_an_answer_waits_until_the_pause_is_over(asking: FencedClient) -> None:
    """As bytes wait in the socket of a stopped process."""
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(61)

    assert asking.went_on_ns == [PAUSE_NS]


def test_an_answer_is_read_at_once_when_the_pause_is_ended_early(asking: FencedClient) -> None:
    """A calm stretch begins with processes that run, whatever was drawn for them before."""
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(10)
    asking.actor.unpause()
    asking.pass_s(1)

    assert asking.went_on_ns == [10 * S]


def test_an_answer_waits_on_when_the_pause_grows(asking: FencedClient) -> None:
    """Two pauses that overlap are over when the later one is."""
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(30)
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(61)

    assert asking.went_on_ns == [90 * S]


def test_the_first_to_arrive_is_what_a_paused_process_finds(asking: FencedClient) -> None:
    """The answer came before the time-out, which ran off in the pause as well."""
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(120)

    assert asking.went_on_ns == [PAUSE_NS]
    assert asking.actor.is_alive, "a time-out would have been raised into it"


def test_a_pause_wakes_nobody_who_sleeps_on(asking: FencedClient) -> None:
    """SIGCONT lets a process go on with what it did: its sleep is not over."""
    asking.pass_s(1)
    asking.actor.pause(PAUSE_NS)
    asking.pass_s(10)
    asking.actor.unpause()
    asking.pass_s(100)

    assert len(asking.went_on_ns) == 1


def test_a_stalled_question_is_sent_when_the_stall_is_over(stalled: FencedClient) -> None:
    """The process stood still between its decision and the write."""
    stalled.pass_s(59)
    assert stalled.asked == 0
    stalled.pass_s(2)

    assert stalled.asked == 1
    assert stalled.went_on_ns == [PAUSE_NS + 2 * MILLISECOND_NS]


def test_a_stalled_question_is_sent_at_once_when_the_stall_is_ended_early(stalled: FencedClient) -> None:
    """A stall is a pause too: it may not reach into the calm stretch."""
    stalled.pass_s(10)
    stalled.actor.unpause()
    stalled.pass_s(1)

    assert stalled.went_on_ns == [10 * S + 2 * MILLISECOND_NS]


def test_a_process_that_dies_in_a_stall_sends_nothing(stalled: FencedClient) -> None:
    """What it had decided dies with it, and is not what its successor finds waiting."""
    stalled.pass_s(10)
    stalled.actor.kill()
    stalled.pass_s(120)

    assert stalled.asked == 0
    assert not stalled.went_on_ns
