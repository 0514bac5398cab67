"""Unique keys, concurrency keys and rates, as the scripts keep them (docs/adr/0021)."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.queues.runs import Enqueued
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child
from tests.integration.store.limits.limit_checks import broken_limits, limit_keys, limited, put, rated, unique
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


def release(world: StoreCalls, session: str, run_id: str, how: Release) -> int:
    """Give a run back for a worker that is gone."""
    count: int = world.run(world.queues.release_runs(session=session, items=[("default", run_id, how)])).count
    return count


def outcomes(world: StoreCalls, queue: str = "default") -> list[tuple[str, str, str]]:
    """Return what a queue remembers, oldest first."""
    entries = world.run(world.queues.recent(queue))
    return [(entry.run_id, entry.outcome, entry.note) for entry in reversed(entries)]


# Unique keys


def test_a_second_run_with_a_unique_key_is_refused_by_the_name_of_the_first(world: StoreCalls) -> None:
    """The caller learns which run stands for what it asked; a repeated call gets the same answer."""
    world.open(S)
    batch = [unique("a"), unique("b"), unique("c", "other"), envelope("d")]
    expected = [
        Enqueued("a", is_new=True),
        Enqueued("a", is_new=False, is_duplicate=True),
        Enqueued("c", is_new=True),
        Enqueued("d", is_new=True),
    ]
    assert put(world, *batch, nonce="n1") == expected
    assert sorted(world.fetch(S)) == ["a", "c", "d"]
    assert put(world, unique("e", queue="elsewhere"), nonce="n2") == [Enqueued("a", is_new=False, is_duplicate=True)]
    world.ack(S, "a")
    assert put(world, *batch, nonce="n1") == expected
    assert put(world, unique("e"), nonce="n3") == [Enqueued("e", is_new=True)]
    assert put(world, unique("e"), nonce="n4") == [Enqueued("e", is_new=False)]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.EXPIRED, Outcome.REPLACED, Outcome.CANCELLED, Outcome.DEAD])
def test_every_end_frees_a_unique_key(world: StoreCalls, outcome: Outcome) -> None:
    """A lock that outlives its run blocks a job for ever."""
    world.open(S)
    world.enqueue(unique("a"))
    world.fetch(S)
    world.ack(S, "a", outcome)
    assert limit_keys(world) == set()
    assert world.enqueue(unique("b")) == [True]


def test_a_unique_key_is_held_until_the_last_attempt(world: StoreCalls) -> None:
    """Between two attempts the run is not over, whoever gave it back; a reclaim that gives it up is its end."""
    world.open(S, Z)
    world.enqueue(unique("a", max_crashes=1))
    world.fetch(S)
    world.ack(S, "a", Outcome.RETRY, retry_delay_ms=60_000)
    assert world.enqueue(unique("b")) == [False]
    world.make_due("a")
    assert world.fetch(S) == ["a"]
    world.ack(S, "a", Outcome.GIVEBACK, attempt=2)
    assert world.enqueue(unique("b")) == [False]
    assert world.fetch(Z) == ["a"]
    assert release(world, Z, "a", Release.CRASHED) == 1
    assert world.state("a") == "dead"
    assert world.enqueue(unique("b")) == [True]


def test_a_unique_key_whose_holder_is_gone_is_taken_over(world: StoreCalls) -> None:
    """Somebody deleted it, by hand or with its queue: the key alone must not stop its job."""
    world.enqueue(unique("a"), unique("x", "other"))
    world.cancel("a")
    assert world.enqueue(unique("b")) == [True]
    world.raw.delete(world.keys.queue("default").data, f"{world.keys.queue('default').prefix}limits")
    assert world.enqueue(unique("c"), unique("y", "other")) == [True, True]
    world.open(S)
    assert world.fetch(S) == ["c", "y"]


def test_a_child_whose_unique_key_is_taken_ends_at_once(world: StoreCalls) -> None:
    """The fan-out of its parent is not an error for it; the history names who holds the key."""
    world.open(S)
    world.enqueue(envelope("p"), unique("a", queue="other"))
    world.fetch(S)
    children = tuple(Child(packed=pack(run), delay_ms=0, job="j") for run in (unique("p/0"), envelope("p/1")))
    world.ack(S, "p", children=children)
    assert world.state("p/0") == "finished"
    assert outcomes(world) == [("p/0", "duplicate", "its unique key is held by a"), ("p", "ok", "")]
    assert world.fetch(S) == ["p/1"]


# Concurrency


def test_as_many_as_may_run_and_the_next_when_one_ends(world: StoreCalls) -> None:
    """Those that wait keep their order, cost no slot of the worker, and hold up nobody behind them."""
    world.open(S, Z)
    world.enqueue(*(limited(f"a{i}", 2) for i in range(5)), envelope("free"))
    assert world.fetch(S, want=3) == ["a0", "a1", "free"]
    assert world.fetch(Z) == []
    assert world.ack(S, "a1").runs == []
    assert world.fetch(Z) == ["a2"]
    ended = [Ack(run_id=run_id, queue="default", attempt=1, outcome=Outcome.OK) for run_id in ("a0", "free")]
    assert [run.envelope.id for run in world.turn(S, want=9, acks=ended).runs] == ["a3"]
    assert broken_limits(world, ("default",)) == []


@pytest.mark.parametrize(
    "outcome", [Outcome.OK, Outcome.RETRY, Outcome.DEAD, Outcome.GIVEBACK, Outcome.EXPIRED, Outcome.CANCELLED]
)
def test_every_end_of_an_attempt_frees_its_slot_and_wakes_who_waits(world: StoreCalls, outcome: Outcome) -> None:
    """A worker that waits for the bell must hear it, in whatever queue the next run is, and of whatever kind."""
    world.open(S, Z)
    world.enqueue(limited("a"), limited("b", queue="other", kind=Kind.SYNC))
    world.fetch(S)
    bell = world.keys.queue("other").bell(Kind.SYNC)
    assert world.fetch(Z, kind=Kind.SYNC, queues=["other"]) == []
    world.raw.delete(bell)

    world.ack(S, "a", outcome, retry_delay_ms=60_000)
    assert world.rung(bell) == bell
    assert world.fetch(Z, kind=Kind.SYNC, queues=["other"]) == ["b"]


@pytest.mark.parametrize("how", list(Release))
def test_a_reclaimed_run_gives_its_slot_back(world: StoreCalls, how: Release) -> None:
    """Its worker cannot: and it must not hold the slot twice when it runs again elsewhere."""
    world.open(S, Z)
    world.enqueue(limited("a"), limited("b"))
    assert world.fetch(S) == ["a"]
    assert world.fetch(Z) == []
    assert release(world, S, "a", how) == 1
    assert release(world, S, "a", how) == 0
    assert len(world.fetch(Z, want=5)) == 1
    assert broken_limits(world, ("default",)) == []
    assert world.ack(S, "a").stale == ["a"]
    assert broken_limits(world, ("default",)) == []


def test_a_slot_that_a_dead_key_still_holds_is_found_free(world: StoreCalls) -> None:
    """Whatever leaked it: the run that finds all slots taken looks whether their holders run."""
    world.open(S)
    held = f"{world.keys.prefix}limit:c:tests.noop:k"
    world.raw.sadd(held, "default gone-1", "default gone-2", "nonsense")
    world.enqueue(limited("a", 3))
    assert world.fetch(S) == ["a"]
    assert world.raw.smembers(held) == {b"default a"}


def test_each_run_is_judged_by_its_own_limit(world: StoreCalls) -> None:
    """A deploy that changes the number reaches runs that are queued with the old one as they come."""
    world.open(S)
    world.enqueue(limited("a", 1), limited("b", 3), limited("c", 3), limited("d", 1), limited("e", 3))
    assert world.fetch(S) == ["a", "b", "c"]


def test_cancelled_runs_among_those_that_wait_stop_nobody(world: StoreCalls) -> None:
    """Their ids stay in the list and are skipped, also when one was just to start."""
    world.open(S, Z)
    world.enqueue(*(limited(f"a{i}") for i in range(60)))
    assert world.fetch(S) == ["a0"]
    assert world.fetch(Z) == []
    for i in range(1, 59):
        world.cancel(f"a{i}")
    world.ack(S, "a0")
    found = [run_id for _ in range(4) for run_id in world.fetch(Z, want=1)]
    assert found == ["a59"]
    world.ack(Z, "a59")
    assert limit_keys(world) == set()


def test_a_paused_queue_does_not_keep_others_from_a_shared_slot(world: StoreCalls) -> None:
    """Its own runs wait; the slot goes to whoever can use it, and comes back to it later."""
    world.open(S)
    runs = limited("a"), limited("p1", queue="paused"), limited("b", queue="other")
    world.enqueue(*runs)
    queues = ["default", "paused", "other"]
    assert world.fetch(S, queues=["default"]) == ["a"]
    assert world.fetch(S, queues=queues) == []
    world.raw.set(world.keys.queue("paused").paused, "x")
    world.ack(S, "a")
    assert world.fetch(S, queues=queues) == ["b"]
    world.raw.delete(world.keys.queue("paused").paused)
    assert world.fetch(S, queues=queues) == []
    world.ack(S, "b", queue="other")
    assert world.fetch(S, queues=queues) == ["p1"]


def test_a_thousand_that_wait_are_put_aside_in_bounded_steps(world: StoreCalls) -> None:
    """One turn looks at some 200 ids; it rings for the next, so that what is behind them starts soon."""
    world.open(S, Z)
    world.enqueue(limited("a"))
    assert world.fetch(S) == ["a"]
    for start in (0, 500):
        world.enqueue(*(limited(f"r{i}") for i in range(start, start + 500)))
    world.enqueue(envelope("behind"))
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    world.raw.delete(bell)
    turns = 0
    while not (found := world.fetch(Z, want=1)):
        assert world.rung(bell) == bell
        turns += 1
    assert found == ["behind"]
    assert 3 <= turns <= 5


def test_a_suspect_keeps_its_lane_while_its_slot_is_taken(world: StoreCalls) -> None:
    """It must run alone, whenever that is; others of the lane go first meanwhile."""
    world.open(S, Z)
    world.enqueue(limited("a"), limited("b", 2), envelope("c"))
    assert world.fetch(S) == ["a", "b", "c"]
    items = [("default", run_id, Release.SUSPECT) for run_id in ("a", "c")]
    assert world.run(world.queues.release_runs(session=S, items=items)).count == 2
    found = world.fetch(Z, want_suspect=True) or world.fetch(Z, want_suspect=True)  # the first turn may meet a first
    assert found == ["c"]
    world.ack(S, "b")
    runs = world.turn(Z, want=1, want_suspect=True).runs
    assert [(run.envelope.id, run.suspect) for run in runs] == [("a", True)]


# Rates


def test_as_many_start_as_the_rate_allows_and_the_rest_come_one_after_another(world: StoreCalls) -> None:
    """Each early one gets a time of its own, so that a thousand do not come back at once."""
    world.open(S)
    world.enqueue(*(rated(f"a{i}", 2, 60_000) for i in range(5)), envelope("free"))
    reply = world.turn(S, want=4)
    assert [run.envelope.id for run in reply.runs] == ["a0", "a1", "free"]
    due = world.raw.zrange(world.keys.queue("default").later, 0, -1, withscores=True)
    assert [(run_id, round((at - reply.now_ms) / 1000)) for run_id, at in due] == [
        (b"a2", 30),
        (b"a3", 60),
        (b"a4", 90),
    ]
    assert reply.next_due_ms == due[0][1]


def test_an_early_run_comes_back_to_the_head_and_is_judged_again(world: StoreCalls) -> None:
    """It is older than what waits; and time alone is no permission."""
    world.open(S)
    world.enqueue(rated("a"), rated("b"), envelope("c"), envelope("d"))
    assert world.fetch(S, want=2) == ["a", "c"]
    world.make_due("b")
    assert world.fetch(S, want=0) == []
    world.enqueue(envelope("e"))
    assert world.fetch(S, want=1) == ["d"]
    assert world.state("b") == "later"
    world.raw.delete(f"{world.keys.prefix}limit:r:tests.noop:k")
    world.make_due("b")
    assert world.fetch(S, want=1) == ["b"]


def test_a_rate_reaches_no_further_than_its_period_when_the_clock_is_set_back(world: StoreCalls) -> None:
    """The bucket was written in what is now the future: runs wait one period, not the whole step."""
    world.open(S)
    world.raw.set(f"{world.keys.prefix}limit:r:tests.noop:k", "99999999999999999 0")
    world.enqueue(rated("a", 1, 60_000))
    reply = world.turn(S, want=1)
    assert reply.runs == []
    assert reply.next_due_ms is not None
    assert reply.next_due_ms - reply.now_ms <= 60_001


def test_a_bucket_expires(world: StoreCalls) -> None:
    """A rate by tenant must not leave a key for each tenant for ever."""
    world.open(S)
    world.enqueue(rated("a", 1, 5000))
    world.fetch(S)
    assert 0 < world.raw.pttl(f"{world.keys.prefix}limit:r:tests.noop:k") <= 10_000


# All of them


def test_a_foreign_key_in_place_of_the_unique_keys_refuses_the_batch(world: StoreCalls) -> None:
    """Before the first write: nothing of it is there."""
    world.raw.lpush(f"{world.keys.prefix}limit:u", "x")
    with pytest.raises(StoreRefusedError, match="another type"):
        world.enqueue(envelope("a"), unique("b"))
    assert world.state("a") == "unknown"


@pytest.mark.parametrize("part", ["limit:c:tests.noop:k", "limit:r:tests.noop:k", "limit:q:tests.noop:k"])
def test_a_foreign_key_in_place_of_a_limit_loses_no_run(world: StoreCalls, part: str) -> None:
    """Other queues go on, nothing is half done, and the runs start once it is gone."""
    world.open(S)
    key = f"{world.keys.prefix}{part}"
    both = {"concurrency": "k", "concurrency_max": 1, "rate": "k", "rate_count": 9, "rate_per_ms": 1000}
    world.enqueue(envelope("a", **both), envelope("b", **both), envelope("c", queue="other"))
    world.raw.lpush(key, "x")
    queues = ["default", "other"]
    first = world.fetch(S, queues=queues)
    assert set(first) - {"a"} == {"c"}
    world.raw.delete(key)
    for run_id, queue in (("c", "other"), ("a", "default"), ("a", "default"), ("b", "default")):
        world.ack(S, run_id, queue=queue)
        world.fetch(S, queues=queues)
    assert [world.state(run_id) for run_id in "abc"] == ["finished"] * 3
    assert broken_limits(world, ("default",)) == []


def test_the_largest_turn_with_limits(world: StoreCalls) -> None:
    """200 acknowledgements and 200 runs, each with all limits, in one call."""
    world.open(S)
    template: dict[str, Any] = {"concurrency_max": 5, "rate_count": 5, "rate_per_ms": 1000}
    for start in (0, 200):
        keys = ({"unique": f"u{i}", "concurrency": f"c{i}", "rate": f"r{i}"} for i in range(start, start + 200))
        world.enqueue(*(envelope(key["unique"], **key, **template) for key in keys))
    first = world.fetch(S, want=200)
    acks = [Ack(run_id=run_id, queue="default", attempt=1, outcome=Outcome.OK) for run_id in first]
    again = world.turn(S, want=200, acks=acks).runs
    assert (len(first), len(again)) == (200, 200)
    assert broken_limits(world, ("default",)) == []
    acks = [Ack(run_id=run.envelope.id, queue="default", attempt=1, outcome=Outcome.OK) for run in again]
    assert world.turn(S, want=200, acks=acks).stale == []
    assert {name for name in limit_keys(world) if not name.startswith("limit:r:")} == set()


def test_memory_that_is_full_refuses_a_batch_with_limits_as_a_whole_and_no_turn(world: StoreCalls) -> None:
    """A key without its run would block a job; a turn that cannot put a blocked run aside would stop its queue."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    world.open(S)
    world.enqueue(limited("a"), limited("b"), rated("c"), rated("d"), envelope("e"))
    world.raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="out of memory"):
            world.enqueue(unique("x"))
        assert world.fetch(S) == ["a", "c", "e"]
        assert world.ack(S, "a", Outcome.RETRY, retry_delay_ms=60_000).stale == []
        assert world.fetch(S) == ["b"]
    finally:
        world.raw.config_set("maxmemory", 0)
    assert broken_limits(world, ("default",)) == []
    assert world.enqueue(unique("x")) == [True]
