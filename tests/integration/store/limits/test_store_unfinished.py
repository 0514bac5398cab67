"""A run that comes back unfinished keeps its place among those that wait for its concurrency key or its rate."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Kind, Outcome, Release
from supervisor.operations.queues import verify
from supervisor.store.wire.poll import Ack
from tests.integration.store.limits.limit_checks import broken_limits, limited, rated
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"
BACK = ["giveback", "unstarted", "interrupted", "vanished", "fsck"]


def come_back(world: StoreCalls, how: str, *run_ids: str, queue: str = "default") -> None:
    """Give runs of session ``S`` back, as its worker does, or an agent or a person for it."""
    if how == "fsck":
        world.raw.hdel(world.keys.sessions, S)
        assert len(drive(verify(world.keys, [queue], is_mending=True), world.run)) == len(run_ids)
    elif how == "giveback":
        acks = [Ack(run_id=run_id, queue=queue, attempt=1, outcome=Outcome.GIVEBACK) for run_id in run_ids]
        assert world.turn(S, acks=acks).stale == []
    else:
        items = [(queue, run_id, Release(how)) for run_id in run_ids]
        assert world.run(world.queues.release_runs(session=S, items=items)).count == len(run_ids)


def begun_in_turn(world: StoreCalls) -> list[str]:
    """End what each turn of ``Z`` begins, until nothing begins; return the order."""
    begun: list[str] = []
    runs = world.turn(Z, want=10).runs
    while runs:
        begun += [run.envelope.id for run in runs]
        acks = [
            Ack(run_id=run.envelope.id, queue=run.queue, attempt=run.attempt, outcome=Outcome.OK) for run in runs
        ]  # fmt: skip
        runs = world.turn(Z, want=10, acks=acks).runs
    return begun


def make_all_due(world: StoreCalls) -> None:
    """Let all delays have passed."""
    for run_id in world.raw.zrange(world.keys.queue("default").later, 0, -1):
        world.make_due(run_id.decode())


@pytest.mark.parametrize(
    ("how", "most"), [(how, most) for how in BACK for most in (1, 2) if (how, most) != ("fsck", 2)]
)
def test_one_that_comes_back_unfinished_is_the_next_of_its_concurrency_key(
    world: StoreCalls, how: str, most: int
) -> None:
    """A deploy put the run that had executed behind all that waited for its slot, for as long as they took."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}", most) for n in range(6)))
    held = world.fetch(S)
    assert held == [f"r{n}" for n in range(most)]

    come_back(world, how, *held)

    assert world.fsck() == []
    assert begun_in_turn(world) == [f"r{n}" for n in range(6)]
    assert broken_limits(world, ("default",)) == []
    assert world.fsck() == []


@pytest.mark.parametrize("how", BACK)
def test_one_that_comes_back_unfinished_is_the_next_also_where_the_other_kind_is_served(
    world: StoreCalls, how: str
) -> None:
    """A worker of the other kind brings it for its slot: one that was charged went behind all that waited."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}") for n in range(4)))
    assert world.fetch(S) == ["r0"]

    come_back(world, how, "r0")

    assert world.fetch(Z, kind=Kind.SYNC) == []
    assert begun_in_turn(world) == ["r0", "r1", "r2", "r3"]
    assert world.fsck() == []


@pytest.mark.parametrize("how", BACK)
def test_one_that_comes_back_unfinished_is_the_next_of_its_rate(world: StoreCalls, how: str) -> None:
    """It went behind all that had come too early meanwhile, an hour of them where a rate lets one start a minute."""
    world.open(S, Z)
    world.enqueue(*(rated(f"r{n}", 2) for n in range(6)))
    assert world.fetch(S) == ["r0", "r1"]

    come_back(world, how, "r0", "r1")

    begun = world.fetch(Z)
    while len(begun) < 6:
        world.raw.delete(f"{world.keys.prefix}limit:r:tests.noop:k")  # the time of a whole rate passes
        for run_id in world.raw.zrange(world.keys.queue("default").later, 0, -1):
            world.make_due(run_id.decode())
        before, begun = begun, begun + world.fetch(Z)
        assert begun != before
    if how == "fsck":  # it meets them in no order
        begun[:2] = sorted(begun[:2])
    assert begun == [f"r{n}" for n in range(6)]
    assert world.fsck() == []


def test_one_that_goes_back_to_the_other_kind_is_the_next_of_its_key_and_its_rate(world: StoreCalls) -> None:
    """A deploy made its job a plain function: workers of that kind take it, and it is still the oldest."""
    both = {"rate": "k", "rate_count": 60, "rate_per_ms": 60_000}
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}", **both) for n in range(3)))
    assert world.fetch(S) == ["r0"]
    ack = Ack(run_id="r0", queue="default", attempt=1, outcome=Outcome.GIVEBACK, kind=Kind.SYNC)
    world.turn(S, acks=[ack])

    assert world.fetch(S) == []
    assert world.fetch(Z, kind=Kind.SYNC) == ["r0"]
    world.ack(Z, "r0")
    assert begun_in_turn(world) == ["r1", "r2"]
    assert broken_limits(world, ("default",)) == []


def test_one_that_comes_back_is_the_next_of_its_rate_also_where_it_waits_for_a_slot_first(world: StoreCalls) -> None:
    """It is blocked until the next turn only: that must not cost it its place in the line of its rate."""
    both = {"rate": "k", "rate_count": 1, "rate_per_ms": 60_000}
    world.open(S, Z)
    world.enqueue(limited("a", **both), limited("b", **both), *(rated(f"r{n}") for n in range(3)))
    assert world.fetch(S) == ["a"]
    assert [world.state(run_id) for run_id in ("b", "r0", "r1", "r2")] == ["blocked", "later", "later", "later"]

    come_back(world, "interrupted", "a")

    assert world.fetch(Z) == []
    line = world.raw.zrange(f"{world.keys.queue('default').prefix}rate:a:tests.noop:k", 0, -1)
    assert line[0] == b"a"


def test_one_that_comes_back_keeps_its_place_where_another_queue_gets_the_slot(world: StoreCalls) -> None:
    """Both queues are told of it, and one of the two runs that they bring finds it taken."""
    world.open(S, Z)
    world.enqueue(*(limited(f"a{n}") for n in range(4)))
    world.enqueue(*(limited(f"b{n}", queue="other") for n in range(4)))
    queues = ["default", "other"]
    assert world.fetch(S, queues=["default"]) == ["a0"]
    assert world.fetch(S, queues=queues) == []

    come_back(world, "interrupted", "a0")

    begun: list[str] = []
    acks: list[Ack] = []
    while runs := world.turn(Z, want=10, queues=queues, acks=acks).runs:
        begun += [run.envelope.id for run in runs]
        acks = [Ack(run_id=run.envelope.id, queue=run.queue, attempt=run.attempt, outcome=Outcome.OK) for run in runs]
    assert [name for name in begun if name[0] == "a"] == [f"a{n}" for n in range(4)]
    assert [name for name in begun if name[0] == "b"] == [f"b{n}" for n in range(4)]
    assert broken_limits(world, ("default", "other")) == []


def test_one_that_failed_is_the_next_of_its_key_when_its_delay_is_over(world: StoreCalls) -> None:
    """It is the oldest then; those that waited for its slot meanwhile do not all go first."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}") for n in range(6)))
    assert world.fetch(S) == ["r0"]
    world.ack(S, "r0", Outcome.RETRY, retry_delay_ms=60_000)
    assert world.fetch(S) == ["r1"]
    world.make_due("r0")
    assert world.fetch(S) == []
    world.ack(S, "r1")

    assert begun_in_turn(world) == ["r0", "r2", "r3", "r4", "r5"]
    assert broken_limits(world, ("default",)) == []


def test_those_that_failed_are_the_next_of_their_rate_when_their_delay_is_over(world: StoreCalls) -> None:
    """Runs start in the order in which they first came."""
    world.open(S, Z)
    world.enqueue(*(rated(f"r{n}", 2) for n in range(5)))
    assert world.fetch(S) == ["r0", "r1"]
    acks = [
        Ack(run_id=run_id, queue="default", attempt=1, outcome=Outcome.RETRY, retry_delay_ms=delay_ms)
        for run_id, delay_ms in (("r0", 60_000), ("r1", 60_001))
    ]
    world.turn(S, acks=acks)
    world.make_due("r0")
    world.make_due("r1")
    assert world.fetch(S) == []

    line = world.raw.zrange(f"{world.keys.queue('default').prefix}rate:a:tests.noop:k", 0, -1)
    assert line == [b"r0", b"r1", b"r2", b"r3", b"r4"]


def test_one_that_asked_to_run_again_is_the_last_of_its_key(world: StoreCalls) -> None:
    """What waits for the slot may be what it waits for."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}") for n in range(3)))
    assert world.fetch(S) == ["r0"]
    world.ack(S, "r0", Outcome.AGAIN, retry_delay_ms=60_000)
    assert world.fetch(S) == ["r1"]
    world.make_due("r0")
    assert world.fetch(S) == []
    world.ack(S, "r1")

    assert begun_in_turn(world) == ["r2", "r0"]


@pytest.mark.parametrize("priority", [1, 2])
def test_those_that_come_back_keep_their_order_where_a_worker_takes_one_at_a_time(
    world: StoreCalls, priority: int
) -> None:
    """What one turn brought for the slots that were free, and did not take, the next one overtook with those behind it."""
    world.open(S, Z)
    names = [f"r{n:02}" for n in range(12)]
    world.enqueue(*(limited(name, 3, priority=priority) for name in names))
    held = world.fetch(S)
    assert world.fetch(S) == []
    come_back(world, "interrupted", *held)
    world.enqueue(*(envelope(f"other-{n}") for n in range(40)))

    begun: list[str] = []
    acks: list[Ack] = []
    while runs := world.turn(Z, want=1, acks=acks).runs:
        begun += [run.envelope.id for run in runs]
        acks = [Ack(run_id=run.envelope.id, queue=run.queue, attempt=run.attempt, outcome=Outcome.OK) for run in runs]
    assert [name for name in begun if name in names] == names
    assert world.fsck() == []


@pytest.mark.parametrize("limit", [limited, rated])
@pytest.mark.parametrize("how", [Outcome.AGAIN, Outcome.GIVEBACK])
def test_those_that_failed_once_and_are_to_run_again_hold_up_no_other(
    world: StoreCalls, how: Outcome, limit: Any
) -> None:
    """Two that asked again, or that a hook put off, had all the starts of their key, or rate: both were older."""
    world.open(S, Z)
    world.enqueue(*(limit(f"r{n}") for n in range(5)))
    begun: list[str] = []
    while len(begun) < 14:
        world.raw.delete(f"{world.keys.prefix}limit:r:tests.noop:k")  # the time of a whole rate passes
        make_all_due(world)
        [run_id] = world.fetch(S)
        make_all_due(world)
        assert world.fetch(Z) == []
        if run_id not in {"r0", "r1"}:
            world.ack(S, run_id)
        elif run_id in begun:
            world.ack(S, run_id, how, attempt=2, retry_delay_ms=60_000)
        else:
            world.ack(S, run_id, Outcome.RETRY, retry_delay_ms=60_000, error={"type": "ValueError"})
        begun.append(run_id)

    assert {"r2", "r3", "r4"} <= set(begun)
    assert begun[-4:] == ["r0", "r1"] * 2 or begun[-4:] == ["r1", "r0"] * 2
    assert broken_limits(world, ("default",)) == []
    assert world.fsck() == []
