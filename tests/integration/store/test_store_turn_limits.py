"""The turn at its edges: what wakes whom, what is capped, what cannot be read, and the largest call."""

from __future__ import annotations

from supervisor.core.model import Kind, Outcome
from supervisor.store.queues import Ack
from tests.integration.store.making import World, envelope

S = "r.1/w-0/1"


def test_a_paused_queue_hands_out_nothing_but_takes_acknowledgements(world: World) -> None:
    """Pausing stops starts, not what runs."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S, want=1)
    world.raw.set(world.keys.queue("default").paused, "deploy")

    assert world.fetch(S) == []
    assert world.ack(S, "a").stale == []
    assert world.run(world.queues.counts("default")).paused == "deploy"


def test_a_fetch_of_nothing_writes_nothing(world: World) -> None:
    """An idle cluster must not write its append-only file."""
    world.open(S)
    before = {key: world.raw.dump(key) if world.server.is_real else world.raw.type(key) for key in world.raw.keys("*")}
    world.turn(S, want=10)
    after = {key: world.raw.dump(key) if world.server.is_real else world.raw.type(key) for key in world.raw.keys("*")}

    assert before == after


def test_the_bell_wakes_idle_workers_of_the_right_kind(world: World) -> None:
    """And whoever leaves work behind rings for the next; tokens are bounded."""
    world.open(S)
    keys = world.keys.queue("default")
    bells = [keys.bell(Kind.ASYNC), keys.bell(Kind.SYNC)]
    world.enqueue(*(envelope(f"r{i}") for i in range(3)))
    assert [world.store.ring(bells, 0.05) for _ in range(4)] == [bells[0]] * 3 + [None]

    world.fetch(S, want=1)
    assert world.store.ring(bells, 0.05) == bells[0]
    world.fetch(S, want=2)
    assert world.store.ring(bells, 0.05) is None
    for i in range(40):
        world.enqueue(envelope(f"many{i}", kind=Kind.SYNC))
    assert world.raw.llen(bells[1]) == 16


def test_a_fetch_does_not_ring_where_somebody_is_being_woken(world: World) -> None:
    """Each token costs an idle worker a turn."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    assert world.raw.llen(bell) == 2
    world.fetch(S, want=1)
    assert world.raw.llen(bell) == 2


def test_history_is_capped_and_can_be_turned_off(world: World) -> None:
    """Nothing grows without a bound."""
    world.open(S)
    for i in range(400):
        world.enqueue(envelope(f"r{i}"))
        world.turn(
            S, want=1, history=100, acks=[Ack(run_id=f"r{i - 1}", queue="default", attempt=1, outcome=Outcome.OK)]
        )
    assert world.raw.xlen(world.keys.queue("default").hist) < 350  # "~" leaves up to a node of 100 more
    world.turn(S, history=0, acks=[Ack(run_id="r399", queue="default", attempt=1, outcome=Outcome.OK)])
    assert world.run(world.queues.recent("default", 1))[0].run_id == "r398"


def test_an_envelope_that_cannot_be_read_is_handed_out_as_broken(world: World) -> None:
    """Raising would crash every worker in turn, for ever; its worker acknowledges it as dead."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.raw.hset(world.keys.queue("default").data, "a", "a1{not json")

    reply = world.turn(S, want=2)
    assert [run.envelope.id for run in reply.runs] == ["b"]
    assert [(run.run_id, run.attempt) for run in reply.broken] == [("a", 1)]
    assert world.ack(S, "a", Outcome.DEAD, error={"reason": reply.broken[0].reason}).stale == []
    assert world.run(world.queues.dead("default"))[0].envelope is None


def test_a_full_turn_of_two_hundred_runs_of_the_largest_size(world: World) -> None:
    """The bounds of one call, both at once."""
    world.open(S)
    big = [envelope(f"r{i}", args={"blob": "x" * 60_000}) for i in range(200)]
    for i in range(0, 200, 50):
        world.enqueue(*big[i : i + 50])

    runs = world.turn(S, want=200).runs
    assert len(runs) == 200
    assert all(len(run.envelope.template.args["blob"]) == 60_000 for run in runs)
    acks = [Ack(run_id=run.envelope.id, queue="default", attempt=1, outcome=Outcome.OK) for run in runs]
    assert world.turn(S, acks=acks).stale == []
    assert world.run(world.queues.counts("default")).stats == {"in": 200, "ok": 200}
