"""Hand-overs in a quiet world: how often the leader changes in a rolling restart, what a dead scheduler costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

import msgspec
import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import World
from tests.kit.shares import share
from tests.simulation.cluster import Replicas

TICK = ScheduleDef(id="tick", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=5000, overlap="allow")
TRANSITIONS_MAX = 2
ORDERS = [*permutations(range(3)), (0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)]


class Fleet(Replicas):
    """Replicas on a good network, started one after the other."""

    def start(self) -> None:
        """Start all; the first leads."""
        for replica in self.replicas:
            replica.start()
            self.pass_s(0.05)
        self.pass_s(1)

    def kinds(self) -> list[str]:
        """Return what happened to the lease, oldest first."""
        return [f"{e.kind} {e.reason}" for e in reversed(self.world.server.execute(HISTORY))]

    def transitions(self) -> int:
        """Return how often another replica came to lead."""
        return self.world.server.execute(VIEW).transitions - 1

    def restart(self, replica: Replica) -> None:
        """Stop one replica, and start it anew when it has ended."""
        replica.stop()
        for _ in range(100):
            if not replica.is_alive:
                break
            self.pass_s(0.1)
        replica.start()


Make = Callable[[int], Fleet]
VIEW = Leases(Keys("fleet")).view()
HISTORY = Leases(Keys("fleet")).history(100)


@pytest.fixture
def make_fleet() -> Iterator[Make]:
    """Make fleets whose server's time is the world's."""
    worlds: list[World] = []
    with driven_time(lambda: worlds[-1].server_time_s() if worlds else 0.0):

        def make(count: int) -> Fleet:
            worlds.append(World(Server(Keys("fleet")), seed=1))
            fleet = Fleet(worlds[-1], count, TICK)
            fleet.start()
            return fleet

        yield make


@pytest.mark.share(3)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("pause_s", share([0.3, 2, 8], 3))
def test_a_rolling_restart_changes_the_leader_at_most_twice(
    make_fleet: Make, order: tuple[int, ...], pause_s: float
) -> None:
    """In any order and at any pace: the youngest goes first, and is restarted last or not at all."""
    fleet = make_fleet(len(order))
    for index in order:
        fleet.restart(fleet.replicas[index])
        fleet.pass_s(pause_s)

    assert fleet.leader.is_alive
    assert fleet.transitions() <= TRANSITIONS_MAX, fleet.kinds()


def test_a_dead_scheduler_costs_no_transition_and_a_later_epoch(make_fleet: Make) -> None:
    """The replacement fires with a term of its own as soon as it lives."""
    fleet = make_fleet(3)
    leader, before = fleet.leader, fleet.leader.board.term()
    leader.kill_scheduler()
    fleet.pass_s(0.01)
    after = leader.board.term()
    assert after.epoch > before.epoch
    leader.start_scheduler()
    fleet.pass_s(20)

    assert fleet.leader is leader
    assert fleet.transitions() == 0
    assert fleet.kinds()[-1] == "acquired promoted"
    nominal = [decision.nominal_ms for decision in fleet.world.server.decisions]
    assert nominal == [fleet.world.start_ms + 5000 * k for k in range(1, len(nominal) + 1)]


def test_an_agent_and_a_scheduler_that_die_together_cost_no_transition(make_fleet: Make) -> None:
    """The next agent reads from the board which process the term was issued to, and promotes it."""
    fleet = make_fleet(3)
    leader, before = fleet.leader, fleet.leader.board.term()
    leader.kill_elector()
    leader.kill_scheduler()
    leader.start_scheduler()
    leader.start_elector()
    fleet.pass_s(1)

    assert fleet.leader is leader
    assert fleet.transitions() == 0
    assert leader.board.term().epoch > before.epoch


def test_a_request_to_hand_over_is_obeyed_by_the_one_it_names(make_fleet: Make) -> None:
    """Within a renewal; the one that was asked for leads, though others rank better."""
    fleet = make_fleet(4)
    before, heir = fleet.leader, fleet.replicas[1]
    assert heir is not before
    leases, term = Leases(Keys("fleet")), before.board.term()
    fleet.world.server.execute(leases.request_resign(epoch=term.epoch, to=heir.id, by="ops"))
    fleet.world.executed()
    fleet.pass_s(1.3)

    assert fleet.leader is heir
    assert fleet.transitions() == 1
    released = [told for told in fleet.world.history if told.event == "leader_released"]
    acquired = [told for told in fleet.world.history if told.event == "leader_acquired"]
    assert acquired[-1].at_ns - released[-1].at_ns < 10 * MILLISECOND_NS


@pytest.mark.parametrize("is_own", [True, False])
def test_an_emptied_server_is_led_again_by_the_leader_within_a_second(make_fleet: Make, *, is_own: bool) -> None:
    """With a later epoch; without the leader, the others wait out the term that they saw."""
    fleet = make_fleet(3)
    leader, before = fleet.leader, fleet.leader.board.term()
    fleet.world.server.empty()
    if not is_own:
        leader.kill()
    fleet.pass_s(1.2 if is_own else 10)

    assert (fleet.leader is leader) is is_own
    assert fleet.leader.board.term().epoch > before.epoch
    assert fleet.leader.board.header.data_loss_epoch == fleet.leader.board.term().epoch


def test_a_deploy_that_is_rolled_back_is_so_at_once() -> None:
    """The former leader is on the list of candidates for a moment more; its set kept that of the next away for 5 s."""
    world = World(Server(Keys("handover")), seed=1)
    with driven_time(world.server_time_s):
        fleet = Fleet(world, 3, TICK)
        first, deployed, back = fleet.replicas
        more = msgspec.structs.replace(TICK, id="more")
        deployed.definitions = (TICK, more)
        for replica, former in (first, None), (deployed, first), (back, deployed):
            replica.start()
            fleet.pass_s(2)
            if former is not None:
                former.stop()
                fleet.pass_s(1)
            names = world.server.store.raw.hkeys(world.server.keys.schedule_def)
            assert sorted(names) == ([b"more", b"tick"] if replica is deployed else [b"tick"])
        assert back.is_leading
