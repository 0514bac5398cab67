"""The agent as a process on a real server: death of the scheduler, requests to resign, lost data, presence."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from supervisor.core.supervision.states import SlotState
from supervisor.store.client.preflight import known_clusters
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import LeaseCode, Leases
from supervisor.store.keys import Keys
from tests.integration.roles.role_processes import SLOTS, Replica
from tests.kit.servers import wait_until

pytestmark = pytest.mark.server
Make = Callable[..., Replica]
SCHEDULER = SLOTS.index("scheduler")


def leading(made: Replica) -> Replica:
    made.start("agent")
    wait_until(lambda: made.board.header.is_leading, what=f"{made.name} to lead")
    return made


def reasons(store: Store, keys: Keys) -> list[str]:
    """Return how each term came about, newest first."""
    return [event.reason for event in store.run(Leases(keys).history(50)) if event.kind == "acquired"]


def test_the_death_of_the_scheduler_promotes_the_term(replica: Make, store: Store, keys: Keys) -> None:
    """As soon as the parent says that it has reaped it, long before the next renewal."""
    one = replica("r1", election={"lease_duration_s": 60.0, "renew_period_s": 20.0})
    row = one.board.rows[SCHEDULER]
    row.generation, row.state = 1, SlotState.RUNNING
    leading(one)
    before = one.board.term()
    row.state, row.ended_generation = SlotState.BACKOFF, 1
    one.signal("agent", signal.SIGURG)
    wait_until(lambda: one.board.term().epoch > before.epoch, what="a later term")

    wait_until(lambda: one.board.header.is_leading, what="the later term to be trusted")
    assert one.board.header.scheduler_generation == 2
    assert reasons(store, keys) == ["promoted", "vacant"]
    assert store.run(Leases(keys).view()).transitions == 1


def test_a_leader_that_is_asked_to_resign_hands_over(replica: Make, store: Store, keys: Keys) -> None:
    """To the replica that was named, and it says so in the history."""
    patient = {"lease_duration_s": 15.0, "renew_period_s": 0.5, "renew_timeout_s": 0.5}
    one = leading(replica("r1", election=patient))
    for name in ("r2", "r3"):
        other = replica(name, election=patient)
        other.start("agent")
        wait_until(lambda log=other: "standby" in log.log, what=f"{name} to stand by")
    epoch = one.board.term().epoch
    asked = store.run(Leases(keys).request_resign(epoch=epoch, to="r2", by="test"))
    assert asked.code is LeaseCode.REQUESTED
    wait_until(lambda: store.run(Leases(keys).view()).holder == "r2", what="r2 to lead")

    assert one.processes["agent"].poll() is None
    kinds = [event.kind for event in store.run(Leases(keys).history(10))]
    assert kinds == ["acquired", "released", "resign_requested", "acquired"]


def test_an_emptied_server_is_led_again_with_a_later_epoch(replica: Make, store: Store, keys: Keys) -> None:
    """And the board says which term is the first after the loss."""
    one = leading(replica("r1"))
    before = one.board.term()
    store.command("FLUSHALL")
    wait_until(lambda: one.board.term().epoch > before.epoch, what="a later term")

    wait_until(lambda: one.board.header.is_leading, what="the later term to be trusted")
    assert one.board.header.data_loss_epoch == one.board.term().epoch
    assert one.log.count("redis_lost_data") == 1
    assert "data_loss" in {event.kind for event in store.run(Leases(keys).history(10))}


def test_what_producers_need_is_back_soon_after_redis_lost_its_data(replica: Make, store: Store, keys: Keys) -> None:
    """Until the next round, up to five minutes later, programs that enqueue by name were refused."""

    def is_published() -> bool:
        return keys.cluster in known_clusters(store) and store.command("GET", keys.length_max) == b"7"

    leading(replica("r1", queues={"length_max": 7}))
    wait_until(is_published, what="the first publication")
    store.command("FLUSHALL")

    wait_until(is_published, what="another one")


def test_a_held_leader_waits_for_a_person(replica: Make, store: Store, keys: Keys) -> None:
    """It renews, and nothing may fire, until the hold is cleared."""
    one = leading(replica("r1", election={"on_data_loss": "hold"}))
    store.command("FLUSHALL")
    wait_until(lambda: one.board.header.is_held, what="the hold")
    seq = store.run(Leases(keys).view()).seq
    wait_until(lambda: store.run(Leases(keys).view()).seq > seq, what="a renewal of the held term")
    assert not one.board.header.is_leading
    store.run(Leases(keys).clear_hold(by="test"))

    wait_until(lambda: one.board.header.is_leading, what="the fires to be allowed")
    assert not one.board.header.is_held


def test_presence_finds_a_killed_leader(replica: Make, store: Store, keys: Keys) -> None:
    """Its kernel closed the connection; the history says that nobody waited for the end of the lease.

    A question without an answer in time begins the watch anew, so that time is generous.
    """
    election = {"lease_duration_s": 8.0, "renew_period_s": 2.4, "renew_timeout_s": 2.4, "presence": True}
    election |= {"presence_poll_s": 0.2}
    one = leading(replica("r1", election=election))
    two = replica("r2", election=election)
    two.start("agent")
    wait_until(lambda: two.board.header.elector_due_ns, what="r2 to stand by")
    leases = Leases(keys, has_presence=True)
    wait_until(lambda: store.run(leases.view(with_presence=True)).presence == 1, what="r1 to show itself")
    guarded_from = store.run(leases.view()).seq
    wait_until(lambda: store.run(leases.view()).seq > guarded_from + 3, what="r2 to have watched for a lease")
    one.kill("agent")
    wait_until(lambda: two.board.header.is_leading, what="r2 to lead")

    assert reasons(store, keys)[0] == "presence"


def test_a_cut_connection_of_a_living_leader_replaces_nobody(replica: Make, store: Store, keys: Keys) -> None:
    """It subscribes again at once."""
    election = {"lease_duration_s": 3.0, "presence": True, "presence_poll_s": 0.1}
    one = leading(replica("r1", election=election))
    two = replica("r2", election=election)
    two.start("agent")
    leases = Leases(keys, has_presence=True)
    for _ in range(5):
        wait_until(lambda: store.run(leases.view(with_presence=True)).presence == 1, what="r1 to show itself")
        seq = store.run(leases.view()).seq
        store.command("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda before=seq: store.run(leases.view()).seq > before, what="a renewal")

    assert one.board.header.is_leading
    assert reasons(store, keys) == ["vacant"]


@pytest.mark.parametrize(("features", "shown"), [({"FastCrashDetection": True}, 1), ({"AllAlpha": True}, 0)])
def test_the_feature_shows_a_leader_without_its_setting(
    replica: Make, store: Store, keys: Keys, features: dict[str, bool], shown: int
) -> None:
    """FastCrashDetection is what election.presence says where that says nothing."""
    leading(replica("r1", features=features))
    leases = Leases(keys, has_presence=True)
    seq = store.run(leases.view()).seq

    wait_until(lambda: store.run(leases.view()).seq > seq + 2, what="renewals")
    wait_until(lambda: store.run(leases.view(with_presence=True)).presence == shown, what="r1 to show itself or not")
