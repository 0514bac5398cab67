"""Fan-out: what a run spawned comes into being with its acknowledgement, all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Envelope, Kind, Outcome, Release, Template
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import CHILDREN_MAX, Ack, Child
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


def child(run_id: str, *, delay_ms: int = 0, **template: Any) -> Child:
    """Return a child as a worker sends it."""
    made = Template(**{"job": "tests.noop", "kind": Kind.ASYNC} | template)
    return Child(pack(Envelope(id=run_id, template=made, parent="p", cause="child")), delay_ms, made.job)


def finish(world: StoreCalls, *children: Child, outcome: Outcome = Outcome.OK, attempt: int = 1, **fields: Any) -> Any:
    """Return the call that acknowledges ``p`` and carries ``children``."""
    ack = Ack(
        run_id="p", queue="default", attempt=attempt, outcome=outcome, history_note="done", children=children, **fields
    )
    return world.turn_call(S, acks=[ack])


def begin(world: StoreCalls) -> None:
    """Let a worker hold the planner ``p``."""
    world.open(S)
    world.enqueue(envelope("p"))
    assert world.fetch(S) == ["p"]


def ids(world: StoreCalls, queue: str = "default") -> set[str]:
    """Return every run that exists in a queue."""
    return {name.decode() for name in world.raw.hkeys(world.keys.queue(queue).data)}


def test_children_come_with_the_acknowledgement_and_go_where_they_belong(world: StoreCalls) -> None:
    """Each into its own queue, list and delay; workers of both kinds are woken."""
    begin(world)
    world.run(
        finish(
            world,
            child("p/0", priority=0),
            child("p/1", kind=Kind.SYNC, queue="shell"),
            child("p/2", delay_ms=60_000),
        )
    )

    assert [world.state(run) for run in ("p", "p/0", "p/1", "p/2")] == ["finished", "queued", "queued", "later"]
    assert world.raw.lrange(world.keys.queue("default").ready(Kind.ASYNC, 0), 0, -1) == [b"p/0"]
    assert world.raw.lrange(world.keys.queue("shell").ready(Kind.SYNC, 1), 0, -1) == [b"p/1"]
    assert world.raw.llen(world.keys.queue("shell").bell(Kind.SYNC)) == 1
    assert set(world.run(world.queues.names())) == {"default", "shell"}
    assert world.run(world.queues.counts("default")).stats == {"in": 3, "ok": 1}
    assert world.run(world.queues.counts("shell")).stats == {"in": 1}
    assert world.fsck() == world.fsck("shell") == []


def test_children_may_be_fetched_by_the_very_turn_that_makes_them(world: StoreCalls) -> None:
    """A planner's worker need not wait for the bell."""
    begin(world)
    ack = Ack(run_id="p", queue="default", attempt=1, outcome=Outcome.OK, children=(child("p/0"), child("p/1")))
    assert world.fetch(S, acks=[ack]) == ["p/0", "p/1"]


def test_a_lost_reply_makes_no_second_set_of_children(world: StoreCalls) -> None:
    """The turn is sent again as it was, perhaps after some of them have ended."""
    begin(world)
    call = finish(world, *(child(f"p/{n}") for n in range(20)))
    first, second = world.twice(call)
    assert first.stale == second.stale == []
    assert len(ids(world)) == 20

    world.open(Z)
    assert world.fetch(Z, want=20) == [f"p/{n}" for n in range(20)]
    world.turn(Z, acks=[Ack(run_id=f"p/{n}", queue="default", attempt=1, outcome=Outcome.OK) for n in range(20)])
    world.run(call)
    assert ids(world) == set()


def test_children_of_an_acknowledgement_that_comes_too_late_never_exist(world: StoreCalls) -> None:
    """The worker was taken for dead: its run went to another, whose children are the ones that count."""
    begin(world)
    late = finish(world, child("p/0"), child("p/old"))
    world.open(Z)
    assert world.run(world.sessions.condemn(S, None))
    world.run(world.queues.release_runs(session=S, items=[("default", "p", Release.INTERRUPTED)]))
    assert world.run(late).lost
    assert ids(world) == {"p"}

    assert world.fetch(Z) == ["p"]
    world.open("r.1/w-2/1")
    stolen = Ack(run_id="p", queue="default", attempt=1, outcome=Outcome.OK, children=(child("p/x"),))
    assert world.turn("r.1/w-2/1", acks=[stolen]).stale == ["p"]
    assert ids(world) == {"p"}


def test_a_child_that_exists_already_is_left_alone(world: StoreCalls) -> None:
    """Its id names one run, whoever enqueued it first."""
    begin(world)
    world.enqueue(envelope("p/0", args={"first": True}))
    world.run(finish(world, child("p/0"), child("p/1")))
    world.open(Z)
    runs = world.turn(Z, want=9).runs
    assert [(run.envelope.id, run.envelope.template.args) for run in runs] == [("p/0", {"first": True}), ("p/1", {})]


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.DEAD, Outcome.GIVEBACK])
def test_a_run_that_did_not_finish_has_no_children(world: StoreCalls, outcome: Outcome) -> None:
    """Whatever a caller sends: an attempt that may be repeated has spawned nothing."""
    begin(world)
    world.run(finish(world, child("p/0"), outcome=outcome))
    assert ids(world) == {"p"}


def test_the_children_of_several_runs_in_one_turn_go_to_the_right_parents(world: StoreCalls) -> None:
    """An async pool acknowledges many at once; a stale one among them takes nothing from the others."""
    world.open(S)
    world.enqueue(*(envelope(run) for run in ("a", "b", "c")))
    world.fetch(S)
    acks = [
        Ack(run_id="a", queue="default", attempt=1, outcome=Outcome.OK, children=(child("a/0"), child("a/1"))),
        Ack(run_id="b", queue="default", attempt=7, outcome=Outcome.OK, children=(child("b/0"),)),
        Ack(run_id="c", queue="default", attempt=1, outcome=Outcome.OK, children=(child("c/0"),)),
    ]
    assert world.turn(S, acks=acks).stale == ["b"]
    assert ids(world) == {"b", "a/0", "a/1", "c/0"}


def test_a_thousand_children_fit_and_one_more_is_refused_with_nothing_done(world: StoreCalls) -> None:
    """What keeps Redis busy has a bound; the refusal comes before the first write."""
    begin(world)
    full = [child(f"p/{n}") for n in range(CHILDREN_MAX)]
    call = finish(world, *full)
    one_more = child("p/more")
    parts = (one_more.packed.run_id, one_more.packed.queue, 0, one_more.packed.data)
    more = "default - 0 0 - {}".format
    counts = [more(CHILDREN_MAX + 1) if arg == more(CHILDREN_MAX) else arg for arg in call.args]
    with pytest.raises(StoreRefusedError, match="up to 1000 children"):
        world.run(Call(call.script, call.keys, (*counts, *parts), call.parse))
    assert ids(world) == {"p"}

    world.run(call)
    assert ids(world) == {f"p/{n}" for n in range(CHILDREN_MAX)}
    assert world.fsck() == []


@pytest.mark.parametrize("part", ["data", "later", "stat", "ready:a:1", "bell:a"])
def test_a_foreign_key_in_the_childrens_queue_stops_the_acknowledgement_as_a_whole(
    world: StoreCalls, part: str
) -> None:
    """Half of a fan-out is worse than a worker that has to ask again."""
    begin(world)
    key = f"{world.keys.queue('other').prefix}{part}"
    world.raw.set(key, "foreign")
    children = child("p/0"), child("p/1", queue="other")
    assert world.run(finish(world, *children)).refused == {("default", "p")}
    assert (world.state("p"), ids(world)) == ("running", {"p"})

    world.raw.delete(key)
    assert world.run(finish(world, *children)).refused == frozenset()
    assert (ids(world), ids(world, "other")) == ({"p/0"}, {"p/1"})


def test_full_memory_does_not_tear_a_fan_out_apart(world: StoreCalls) -> None:
    """A worker that ends frees memory first, and then all its children are let in."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    begin(world)
    world.raw.config_set("maxmemory", 1)
    try:
        world.run(finish(world, *(child(f"p/{n}") for n in range(50))))
    finally:
        world.raw.config_set("maxmemory", 0)
    assert len(ids(world)) == 50


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.REPLACED])
def test_an_end_that_is_no_failure_leaves_history_and_frees_its_schedule(world: StoreCalls, outcome: Outcome) -> None:
    """Neither dead nor finished: a run that expired, or made room for a newer one, is gone and told of."""
    world.open(S)
    world.enqueue(envelope("s@5"))
    world.fetch(S)
    world.raw.hset(world.keys.schedule_live, "s", "default s@5")
    world.ack(S, "s@5", outcome, schedule="s", history_note="why")
    assert world.state("s@5") == "finished"
    assert world.raw.hget(world.keys.schedule_live, "s") is None
    entry = world.run(world.queues.recent("default"))[0]
    assert (entry.run_id, entry.outcome, entry.note) == ("s@5", outcome.value, "why")
    assert world.run(world.queues.counts("default")).stats == {"in": 1, outcome.value: 1}
    world.run(world.sessions.close(S))
