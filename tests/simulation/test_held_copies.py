"""Copies of Redis' data that come back with the record of a leader that died: who leads next holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from supervisor.core.election.lease import DataLoss
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.store.election.leases import Leases
from tests.simulation.cluster import Cluster, cluster


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three replicas with ``on_data_loss: hold``."""
    context = partial(ElectionContext, on_data_loss=DataLoss.HOLD)
    monkeypatch.setattr("supervisor.testing.replica.ElectionContext", context)
    with cluster(3) as it:
        yield it


def hold_of(it: Cluster) -> bytes | None:
    found: bytes | None = it.server.store.fields(it.server.keys.lease).get(b"hold")
    return found


@pytest.mark.parametrize("is_emptied_first", [False, True], ids=["copy", "empty, then a copy"])
def test_a_copy_of_the_term_of_a_dead_leader_is_held_by_the_next(held: Cluster, *, is_emptied_first: bool) -> None:
    """Its record names the dead one, which goes through no loss, however often the others look at it."""
    leader, snapshot = held.leader, held.server.snapshot()
    held.pass_s(20)
    leader.kill()
    if is_emptied_first:
        held.server.empty()
    else:
        held.server.restore(snapshot)
    while not held.told("redis_lost_data"):
        held.pass_s(0.1)
    held.server.restore(snapshot)
    held.world.is_server_up = False
    held.pass_s(6)  # the others are not answered, and look at the record once more
    held.world.is_server_up = True
    held.pass_s(20)

    assert hold_of(held) in {b"rolled_back", b"data"}
    assert not [each for each in held.replicas if each.is_leading]


@pytest.mark.parametrize("is_free", [False, True], ids=["led by another", "free"])
def test_a_loss_that_another_went_through_is_not_held_again(held: Cluster, *, is_free: bool) -> None:
    """A standby noticed it and was cut off: what it finds later is a later term, cleared by a person."""
    leader, snapshot = held.leader, held.server.snapshot()
    held.pass_s(20)
    standby, *others = [each for each in held.replicas if each is not leader]
    for other in others:
        other.kill()
    leader.pause(8 * 10**9)
    held.server.restore(snapshot)
    while not held.told("redis_lost_data"):
        held.pass_s(0.1)
    standby.pause(40 * 10**9)
    held.pass_s(20)
    leases = Leases(held.server.keys)
    assert hold_of(held)
    held.server.execute(leases.clear_hold(by="test"))
    held.pass_s(3)
    assert leader.is_leading
    if is_free:
        leader.stop()
    held.pass_s(40)

    assert hold_of(held) is None or hold_of(held) == b""
    assert [each for each in held.replicas if each.is_leading] == [standby if is_free else leader]


def test_a_loss_that_another_went_through_is_none_in_a_row_with_the_next() -> None:
    """Two standbys noticed it, were cut off, and found the record of that other free: one of them lost the race."""
    with cluster(3) as it:
        leader = it.leader
        it.pass_s(20)
        others = [each for each in it.replicas if each is not leader]
        it.server.empty()
        leader.pause(3 * 10**9)
        while len(it.told("redis_lost_data")) < 2:
            it.pass_s(0.05)
        for other in others:
            other.pause(40 * 10**9)
        it.pass_s(20)
        assert it.leader is leader
        leader.stop()
        it.pass_s(25)
        (second,) = [each for each in others if each is not it.leader]
        it.pass_s(120)
        it.leader.kill()
        it.server.empty()
        it.pass_s(30)

        assert it.leader is second
        (told,) = it.told("due_times_lost")[-1:]
        assert 0 < int(str(told["count"])) <= 8, "a lease of the three schedules, not two minutes of them"
