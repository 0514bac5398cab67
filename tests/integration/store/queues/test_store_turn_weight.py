"""The turn where runs are large: its reply has a bound, and the rest is brought by the next ones."""

from __future__ import annotations

from supervisor.core.model import Kind
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"
COUNT = 45


def test_a_turn_brings_a_bounded_weight_of_runs_and_the_next_ones_the_rest(world: StoreCalls) -> None:
    """200 of 60 KB took longer over a slow link than a worker waits, and so did the same turn each time it came again."""
    world.open(S)
    world.enqueue(*(envelope(f"r{n:02}", priority=n % 3, args={"text": "x" * 60_000}) for n in range(COUNT)))
    bell = world.keys.queue("default").bell(Kind.ASYNC)

    sizes: list[int] = []
    brought: set[str] = set()
    while len(brought) < COUNT:
        world.raw.delete(bell)
        reply = world.turn(S, want=200 - len(brought))
        sizes.append(len(reply.runs))
        brought |= {run.envelope.id for run in reply.runs}
        assert world.raw.llen(bell) == (len(brought) < COUNT), "whoever is free is told that there is more"

    assert sizes == [18, 18, 9]
    assert world.fsck() == []


def test_of_a_run_beyond_any_size_its_worker_gets_the_beginning(world: StoreCalls) -> None:
    """A user of Redis may lay 500 MB; no worker reads that in time, and each that fetched one was out for good."""
    world.open(S)
    world.enqueue(envelope("evil"), envelope("good"))
    data = world.keys.queue("default").data
    known = world.raw.hget(data, "evil")
    world.raw.hset(data, "evil", known[:-1] + b',"x":"' + b"x" * 2_000_000 + b'"}')

    first, again = world.twice(world.turn_call(S, want=2))
    second = world.turn(S, want=2)

    for reply in (first, again):
        assert [broken.run_id for broken in reply.broken] == ["evil"]
        assert reply.runs == []
    assert [run.envelope.id for run in second.runs] == ["good"]


def test_large_runs_of_a_higher_priority_leave_room_for_lower_ones(world: StoreCalls) -> None:
    """What a turn may weigh was used up by the first class, in each turn, while it had that much."""
    world.open(S)
    for priority in range(3):
        world.enqueue(
            *(envelope(f"r{priority}-{n:02}", priority=priority, args={"text": "x" * 60_000}) for n in range(40))
        )
    brought = {run.envelope.id for run in world.turn(S, want=100).runs}

    assert len(brought) == 18
    counts = [sum(name.startswith(f"r{priority}") for name in brought) for priority in range(3)]
    assert 9 <= counts[0] <= 12
    assert counts[1] >= 4
    assert counts[2] >= 1
