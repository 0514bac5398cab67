"""Runs that wait for a slot where pools of both kinds look for them: the oldest begins next."""

from __future__ import annotations

import pytest

from supervisor.core.model import Kind
from tests.integration.store.limits.limit_checks import broken_limits, limited
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


@pytest.mark.parametrize(
    ("looks", "is_charged"), [(0, False), (1, False), (2, False), (2, True)], ids=["none", "one", "two", "charged"]
)
def test_a_run_that_the_other_kind_brings_is_not_overtaken_by_newer_ones(
    world: StoreCalls, looks: int, *, is_charged: bool
) -> None:
    """With two slots that end one after the other, each look brought newer runs in front of it, for good."""
    world.open(S, Z)
    made = iter(range(100))

    def enqueue(count: int) -> None:
        for _ in range(count):
            world.enqueue(limited(f"r{next(made):03}", 2))

    enqueue(2)
    held = world.turn(S, want=2).runs
    enqueue(4)
    assert world.fetch(S, want=50) == []
    if is_charged:  # as after Again, a deploy, a requeue
        queue = world.keys.queue("default")
        for run_id in world.raw.hkeys(queue.blocked):
            world.raw.hset(queue.att, run_id, "0,0,1")
    begun: list[str] = []
    for _ in range(12):
        for number, run in enumerate(held):
            world.ack(S, run.envelope.id, attempt=run.attempt)  # it wants none
            if number < looks:
                assert world.fetch(Z, kind=Kind.SYNC) == []
        held = world.turn(S, want=2).runs
        begun += [run.envelope.id for run in held]
        enqueue(2)
        world.fetch(S, want=50)

    assert sorted(begun) == [f"r{number:03}" for number in range(2, 26)], "each has its slot, and none is passed over"
    assert all(abs(int(run_id[1:]) - 2 - place) <= 1 for place, run_id in enumerate(begun))
    assert broken_limits(world, ("default",)) == []
    assert world.fsck() == []


@pytest.mark.parametrize("between", ["nothing", "a cancelled run", "a run that is tried again"])
def test_what_was_brought_goes_in_front_of_newer_ones_for_a_pool_with_one_free_place(
    world: StoreCalls, between: str
) -> None:
    """Its turn takes one of two that the other kind brought; what its next look finds is newer than the other."""
    world.open(S, Z)
    queue = world.keys.queue("default")
    ready = queue.ready(Kind.ASYNC, 1)
    world.enqueue(*(limited(f"r{number:02}", 3) for number in range(12)))
    begun = world.fetch(S, want=3)
    assert world.fetch(S, want=20) == []

    def end_one() -> None:
        """One slot becomes free, and the other kind looks first."""
        running = sorted(run_id.decode() for run_id in world.raw.hkeys(queue.run))
        world.ack(S, running[running[0] == "again"])
        assert world.fetch(Z, kind=Kind.SYNC) == []

    end_one()
    end_one()
    assert world.raw.lrange(ready, 0, 1) == [b"r03", b"r04"]
    if between == "a cancelled run":
        world.cancel("r03")
        begun.append("r03")
    elif between == "a run that is tried again":
        world.enqueue(envelope("again"))
        world.raw.hset(queue.att, "again", "1,0,0")
        world.raw.rpoplpush(ready, ready)  # to the head
    for _ in range(30):
        begun += [run_id for run_id in world.fetch(S, want=1) if run_id != "again"]
        if world.raw.hlen(queue.run) > 1:
            end_one()

    assert begun == [f"r{number:02}" for number in range(12)]
    assert broken_limits(world, ("default",)) == []
    assert world.fsck() == []
