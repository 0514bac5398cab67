"""The check of a queue gives a run that must not run twice up: its end counts once, whatever it held."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Kind
from supervisor.operations.queues import verify
from tests.integration.store.fanout.test_store_tallies import begin, child, follow, sums
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S = "r.1/worker-io-0/1"


def mend(world: StoreCalls) -> set[str]:
    """Mend everything; return what was found."""
    return {fault.problem for fault in drive(verify(world.keys, ["default"], is_mending=True), world.run)}


@on_both("queue_fsck_run")
def test_a_child_in_no_place_that_is_given_up_counts_once(world: StoreCalls) -> None:
    """The second check ended it again for limits that the first had written down, and what follows started early."""
    begin(world, child("p", "a", at_most_once=True), child("p", "b"), then=[follow("p/then")])
    before = sums(world)
    world.raw.lrem(world.keys.queue("default").ready(Kind.ASYNC, 1), 0, "p/a")

    assert mend(world) == {"in no place: it would never run"}
    assert mend(world) == set()
    assert (before[1], sums(world)) == (2, (2, 1, {"dead": 1}))
    assert world.state("p/then") == "unknown"


def test_a_unique_run_that_is_given_up_frees_its_key(world: StoreCalls) -> None:
    """The check took the key back for the dead one."""
    world.enqueue(envelope("a", at_most_once=True, unique="u"))
    world.raw.delete(world.keys.queue("default").ready(Kind.ASYNC, 1))
    mend(world)

    world.enqueue(envelope("b", unique="u"))
    assert (world.state("a"), world.state("b"), mend(world)) == ("dead", "queued", set())


@pytest.mark.parametrize("place", ["list", "later", "blocked"])
def test_one_of_no_session_is_given_up_wherever_else_it_is(world: StoreCalls, place: str) -> None:
    """It was counted as dead, and kept in its list, to run a second time."""
    world.open(S)
    world.enqueue(envelope("a", at_most_once=True, unique="u"))
    world.fetch(S)
    queue = world.keys.queue("default")
    world.raw.hset(queue.run, "a", "gone.1/w-0/1|1|5")
    if place == "list":
        world.raw.rpush(queue.ready(Kind.ASYNC, 1), "a")
    elif place == "later":
        world.raw.zadd(queue.later, {"a": 9e12})
    else:
        world.raw.hset(queue.blocked, "a", "tests.noop:k")
    mend(world)

    assert (world.state("a"), mend(world), world.fsck()) == ("dead", set(), [])
    assert world.fetch(S) == []
