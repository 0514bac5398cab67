"""A key of another type in one queue: turns take and settle what lies in the others, and lose nothing of it."""

from __future__ import annotations

import pytest

from supervisor.core.model import Outcome
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child, FetchedRun
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"
BOTH = ("broken", "default")
RATED = {"rate": "r", "rate_count": 1, "rate_per_ms": 3_600_000}
LIMITED = {"concurrency": "k", "concurrency_max": 1}
REPLACING = {"concurrency": "n", "concurrency_max": 1, "concurrency_replaces": True}
OF_THE_QUEUE = (
    "data", "run", "att", "err", "later", "dead", "hist", "stat", "limits", "blocked", "woken", "wait:tests.noop:k",
    "wait:tests.noop:n", "rate:a:tests.noop:r", "paused", "stale", "cancel", "ready:a:0", "ready:a:1", "ready:a:2",
    "suspect:a", "bell:a",
)  # fmt: skip
PLACES = (
    *(f"q:broken:{part}" for part in OF_THE_QUEUE), "limit:u", "limit:n", "limit:c:tests.noop:k", "limit:q:tests.noop:k",
    "limit:q:tests.noop:n", "limit:r:tests.noop:r", "result:ok", "awaited", "tally:ok", "schedule:live", "log:ok", "logs",
)  # fmt: skip
OUTCOMES = {
    "ok": Outcome.OK, "retry": Outcome.RETRY, "dead": Outcome.DEAD, "again": Outcome.AGAIN, "back": Outcome.GIVEBACK,
}  # fmt: skip


def spoil(world: StoreCalls, place: str) -> None:
    """Let another program's key stand there."""
    key = world.keys.prefix + place
    is_text = world.raw.type(key) == b"string" or place.startswith(("limit:r", "result")) or place.endswith("paused")
    world.raw.delete(key)
    if is_text:
        world.raw.lpush(key, "x")
    else:
        world.raw.set(key, "x")


def begin(world: StoreCalls) -> dict[str, FetchedRun]:
    """Let a worker execute runs of both queues, and runs of each sort wait behind them."""
    world.open(S)
    world.enqueue(*(envelope(f"rated{n}", queue="broken", **RATED) for n in range(2)))
    world.enqueue(*(envelope(f"limited{n}", queue="broken", **LIMITED) for n in range(3)))
    world.enqueue(*(envelope(f"newest{n}", queue="broken", **REPLACING) for n in range(2)))
    world.enqueue(*(envelope(name, queue="broken") for name in OUTCOMES), envelope("a"))
    runs = {run.envelope.id: run for run in world.turn(S, want=50, queues=BOTH).runs}
    assert {"a", "limited0", *OUTCOMES} <= runs.keys()
    world.enqueue(envelope("gone", queue="broken"), envelope("next", queue="broken"))
    world.enqueue(envelope("rated9", queue="broken", **RATED), envelope("limited9", queue="broken", **LIMITED))
    world.enqueue(envelope("newest9", queue="broken", **REPLACING), envelope("late", queue="broken"))
    world.raw.zadd(world.keys.queue("broken").later, {"longer than any id of ours" * 50: 0, "nobody": 1, "late": 1})
    world.cancel("gone", queue="broken")
    world.enqueue(envelope("b"), envelope("c"))
    return runs


def ends_of(runs: dict[str, FetchedRun]) -> list[Ack]:
    """Return how what is executed ended."""
    ends = {"a": Outcome.OK, "limited0": Outcome.OK, "newest0": Outcome.OK, **OUTCOMES}
    return [
        Ack(run_id=name, queue=run.queue, attempt=1, outcome=ends[name], fetched_ms=run.fetched_ms, error={"type": "x"},
            retry_delay_ms=5, result=b"1", result_ttl_ms=1000)
        for name, run in runs.items() if name in ends
    ]  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("is_ending", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_no_foreign_key_of_a_queue_holds_up_another(world: StoreCalls, place: str, *, is_ending: bool) -> None:
    """No turn is refused, so none is repeated for ever; what was taken comes to whoever took it, and all of it once."""
    runs = begin(world)
    spoil(world, place)
    acks = ends_of(runs) if is_ending else []
    got, refused = [], set()
    for turn in range(4):
        reply = world.turn(S, want=50, queues=BOTH, acks=acks if turn == 0 else [])
        got += [run.envelope.id for run in reply.runs if run.queue == "default"]
        refused |= reply.refused

    assert got == ["b", "c"]
    assert world.raw.hexists(world.keys.queue("default").run, "a") is not is_ending
    assert {queue for queue, _ in refused} <= {"broken"}


@pytest.mark.parametrize("part", ["err", "run", "later", "ready:a:1"])
def test_a_refused_end_counts_once_it_is_sent_again(world: StoreCalls, part: str) -> None:
    """A turn whose reply was lost says the same again, and nothing of a refused one was written."""
    runs = begin(world)
    key, kept = f"{world.keys.queue('broken').prefix}{part}", b"kept"
    world.raw.rename(key, kept) if world.raw.exists(key) else kept
    world.raw.set(key, "another program's")
    acks = ends_of(runs)
    reply, again = world.twice(world.turn_call(S, queues=BOTH, acks=acks))
    of_broken = {(ack.queue, ack.run_id) for ack in acks if ack.queue == "broken"}
    assert reply.refused == again.refused == of_broken
    assert (reply.stale, again.stale) == ([], [])

    world.raw.delete(key)
    world.raw.rename(kept, key) if world.raw.exists(kept) else kept
    reply = world.turn(S, queues=BOTH, acks=[ack for ack in acks if (ack.queue, ack.run_id) in of_broken])
    assert (reply.refused, reply.stale) == (frozenset(), [])
    assert {name: world.state(name) for name in ("ok", "retry", "dead", "again", "back")} == {
        "ok": "finished", "retry": "later", "dead": "dead", "again": "later", "back": "later",
    }  # fmt: skip
    assert world.fsck("default") == []


def test_an_end_whose_child_cannot_come_to_be_waits_alone(world: StoreCalls) -> None:
    """Half of a fan-out would be worse than a late one, and its neighbours have no part in it."""
    world.open(S)
    world.enqueue(envelope("parent"), envelope("neighbour"))
    assert world.fetch(S) == ["parent", "neighbour"]
    spoil(world, "q:broken:later")
    child = Child(pack(envelope("parent/1", queue="broken")), 0, "tests.noop")
    acks = [
        Ack(run_id="parent", queue="default", attempt=1, outcome=Outcome.OK, children=(child,)),
        Ack(run_id="neighbour", queue="default", attempt=1, outcome=Outcome.OK),
    ]
    assert world.turn(S, acks=acks).refused == {("default", "parent")}
    assert (world.state("parent"), world.state("neighbour")) == ("running", "finished")

    world.raw.delete(f"{world.keys.queue('broken').prefix}later")
    assert world.turn(S, acks=acks[:1]).refused == frozenset()
    assert (world.state("parent"), world.state("parent/1")) == ("finished", "queued")


def test_a_refused_end_gives_no_place_to_another_run(world: StoreCalls) -> None:
    """Its caller asked for as many as it would have room for."""
    runs = begin(world)
    spoil(world, "q:broken:err")
    acks = ends_of(runs)
    refused = [ack for ack in acks if ack.queue == "broken"]

    assert len(world.turn(S, want=len(refused) + 1, queues=BOTH, acks=acks).runs) == 1
