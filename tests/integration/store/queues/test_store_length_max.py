"""``queues.length_max``: how many runs may wait in a queue, for whoever enqueues."""

from __future__ import annotations

import random
import uuid

import pytest

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.store.queues.runs import Enqueued
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"


def put(world: StoreCalls, *ids: str, queue: str = "default") -> str:
    """Enqueue runs of these ids in one call; return a letter for each: new, known, or full."""
    call = world.queues.enqueue(nonce=uuid.uuid4().hex, envelopes=[envelope(each, queue=queue) for each in ids])
    return "".join("n" if each.is_new else "f" if each.is_full else "k" for each in world.run(call))


def waiting(world: StoreCalls, queue: str = "default") -> int:
    """Return how many runs of a queue are neither executed nor dead."""
    own = world.keys.queue(queue)
    return int(world.raw.hlen(own.data) - world.raw.hlen(own.run) - world.raw.zcard(own.dead))


def test_beyond_the_limit_new_runs_are_refused_and_known_ones_are_not(world: StoreCalls) -> None:
    """In their order, so that what is in is a beginning of what was sent; a queue beside it has room of its own."""
    world.run(world.sessions.bound_queues(3))

    assert put(world, "a", "b", "c", "d", "a", "e") == "nnnfkf"
    assert put(world, "a", "d", queue="other") == "nn"
    assert (waiting(world), waiting(world, "other")) == (3, 2)
    assert world.fsck() == []

    world.run(world.sessions.bound_queues(0))
    assert put(world, "d", "e") == "nn"
    assert not world.raw.exists(world.keys.length_max)


def test_runs_that_are_executed_or_dead_take_no_room(world: StoreCalls) -> None:
    """A pool that works makes room by taking runs; what was given up is kept apart, under a cap of its own."""
    world.run(world.sessions.bound_queues(2))
    world.open(S)
    assert put(world, "a", "b") == "nn"
    assert world.fetch(S, want=1) == ["a"]
    assert put(world, "c", "d") == "nf"
    world.turn(S, acks=[Ack(run_id="a", queue="default", attempt=1, outcome=Outcome.DEAD, history_note="gave up")])
    assert world.state("a") == "dead"

    assert put(world, "d") == "f"
    assert world.fetch(S, want=1) == ["b"]
    assert put(world, "d") == "n"


def test_a_call_that_is_repeated_gets_its_first_reply(world: StoreCalls) -> None:
    """Its reply was lost; meanwhile there is room, and the runs that were refused are not in."""
    world.run(world.sessions.bound_queues(1))
    call = world.queues.enqueue(nonce="n", envelopes=[envelope("a"), envelope("b")])
    first = world.run(call)
    world.run(world.sessions.bound_queues(5))

    assert world.run(call) == first == [Enqueued("a", is_new=True), Enqueued("b", is_new=False, is_full=True)]


def test_children_of_a_run_are_taken_and_count(world: StoreCalls) -> None:
    """They come with an acknowledgement, which cannot be refused; programs wait until there is room again."""
    world.run(world.sessions.bound_queues(1))
    world.open(S)
    put(world, "p")
    assert world.fetch(S) == ["p"]
    template = Template(job="tests.noop", kind=Kind.ASYNC)
    made = [pack(Envelope(id=f"p/{n}", template=template, parent="p", cause="child")) for n in range(3)]
    children = [Child(each, 0, template.job) for each in made]
    world.turn(
        S, acks=[Ack(run_id="p", queue="default", attempt=1, outcome=Outcome.OK, history_note="", children=children)]
    )

    assert (waiting(world), put(world, "x")) == (3, "f")


@pytest.mark.parametrize("seed", range(5))
def test_no_history_of_enqueues_lets_more_wait_than_may(world: StoreCalls, seed: int) -> None:
    """Whatever is fetched, ended and enqueued again in between, and however the limit changes."""
    draw = random.Random(seed)
    world.open(S)
    ids = [f"r{n}" for n in range(40)]
    most = 0
    for _ in range(25):
        if draw.random() < 0.3:
            most = draw.choice([0, 1, 5, 12])
            world.run(world.sessions.bound_queues(most))
        before = waiting(world)
        answered = put(world, *draw.sample(ids, draw.randint(1, 10)))
        assert waiting(world) == before + answered.count("n")
        assert waiting(world) <= max(before, most or len(ids))
        assert "f" not in answered or waiting(world) >= most > 0
        for run in world.fetch(S, want=draw.randint(0, 3)) if draw.random() < 0.5 else ():
            done = Ack(run_id=run, queue="default", attempt=1, outcome=Outcome.OK, history_note="")
            world.turn(S, acks=[done])
    assert world.fsck() == []


@pytest.mark.parametrize("kind", ["text", "list"])
def test_a_bound_that_nobody_wrote_stops_no_producer(world: StoreCalls, kind: str) -> None:
    """It is published anew within five minutes; until then nothing is bounded."""
    if kind == "list":
        world.raw.rpush(world.keys.length_max, "1")
    else:
        world.raw.set(world.keys.length_max, "nan")
    assert put(world, "a", "b") == "nn"
