"""What a producer's user writes longer than any of ours is read once: it is cut, or taken out, where it is met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.integration.store.limits.limit_checks import limited, unique
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"
LONG = b"x" * 2_000_000
UNIQUE, CONCURRENCY = b"tests.noop:k", "tests.noop:k"


def size_of(reply: Any) -> int:
    """Return how many bytes of text a reply holds."""
    return sum(map(size_of, reply)) if isinstance(reply, list) else len(reply) if isinstance(reply, bytes) else 0


def test_the_limits_of_a_run_that_nobody_wrote_hold_no_unique_key(world: StoreCalls) -> None:
    """With 60 MB of them each fire with that key was seconds of parsing, so that nothing fired anywhere."""
    evil = world.keys.queue("evil")
    world.raw.hset(evil.limits, "h", b"[" + b"a;" * 1_000_000 + b"u" + UNIQUE + b"]")
    world.raw.hset(evil.data, "h", "zz")
    world.raw.hset(f"{world.keys.prefix}limit:u", UNIQUE, "evil h")

    assert world.enqueue(unique("a")) == [True]
    assert world.raw.hstrlen(evil.limits, "h") < 200_000
    assert world.raw.hget(f"{world.keys.prefix}limit:u", UNIQUE) == b"default a"


@pytest.mark.parametrize("name", ["names", "unserved", "executing", "forget", "unwanted", "show"])
def test_a_name_of_a_queue_beyond_any_length_is_taken_out(world: StoreCalls, name: str) -> None:
    """Forty of 6 MB were in each reply of the set: agents did nothing else, and the API answered 503."""
    world.enqueue(envelope("good"))
    names = {b"n%d" % n + LONG for n in range(3)}
    world.raw.sadd(world.keys.queues, *names)
    for long in names:
        world.raw.lpush(f"{world.keys.prefix}q:{long.decode()}:ready:a:1", "r")
    calls = {
        "names": world.queues.names(),
        "unserved": world.queues.unserved(),
        "executing": world.queues.executing(),
        "forget": world.queues.forget(),
        "unwanted": world.queues.unwanted([S]),
        "show": world.queues.show("good"),
    }

    assert size_of(world.run(replace(calls[name], parse=list))) < 100_000
    assert world.raw.smembers(world.keys.queues) == {b"default"}


def test_a_delayed_run_with_an_id_beyond_any_length_is_taken_out(world: StoreCalls) -> None:
    """Each turn of each worker read it, for as long as it was not due."""
    world.open(S)
    queue = world.keys.queue("default")
    world.enqueue(envelope("late"), delays_ms=[3_600_000])
    world.raw.zadd(queue.later, {LONG: 9_000_000_000_000})
    world.raw.zadd(queue.later, {b"y" + LONG: 1})
    for _ in range(2):
        world.fetch(S)
    world.raw.zadd(queue.later, {b"z" + LONG: 1})
    world.run(world.queues.counts("default"))

    assert [member for member in world.raw.zrange(queue.later, 0, -1) if member != LONG] == [b"late"]


def test_an_entry_that_is_in_a_list_many_times_is_read_once(world: StoreCalls) -> None:
    """Two hundred times an id whose data were 60 MB were 12 GB in one step, more than most servers have."""
    world.open(S)
    queue = world.keys.queue("default")
    world.enqueue(envelope("good", priority=0))
    world.raw.hset(queue.data, "evil", b"a1{" + LONG)
    world.raw.rpush(f"{world.keys.prefix}q:default:ready:a:1", *["evil"] * 200)
    before = world.raw.info("memory")["used_memory_peak"] if world.server.is_real else 0

    turn = world.turn(S, want=200)
    assert [run.envelope.id for run in turn.runs] == ["good"]
    if world.server.is_real:
        assert world.raw.info("memory")["used_memory_peak"] - before < 100_000_000
    assert world.raw.hstrlen(queue.data, "evil") < 200_000


def test_what_many_runs_with_a_key_look_at_is_forgotten_where_it_is_long(world: StoreCalls) -> None:
    """Two hundred runs of a turn that read the same 60 MB held Redis up for seconds."""
    world.open(S)
    prefix = world.keys.prefix
    world.raw.hset(f"{prefix}limit:n", CONCURRENCY, b"default " + LONG)
    world.raw.sadd(f"{prefix}limit:c:{CONCURRENCY}", b"default " + LONG)
    world.raw.sadd(f"{prefix}q:default:woken", LONG)
    world.raw.sadd(f"{prefix}limit:q:{CONCURRENCY}", LONG)
    world.enqueue(limited("a", concurrency_replaces=True))
    assert world.fetch(S) == ["a"]
    world.raw.sadd(f"{prefix}limit:q:{CONCURRENCY}", LONG)
    world.raw.hset(f"{prefix}limit:n", CONCURRENCY, b"default " + LONG)
    world.ack(S, "a")

    for key in ("limit:c:" + CONCURRENCY, "limit:q:" + CONCURRENCY, "q:default:woken"):
        assert LONG not in b"".join(world.raw.smembers(prefix + key)), key
    assert world.raw.hget(f"{prefix}limit:n", CONCURRENCY) is None


def test_a_request_to_end_a_run_beyond_any_length_is_forgotten(world: StoreCalls) -> None:
    """Each agent looks at them once a second; one that named a fence as long as itself stayed."""
    queue = world.keys.queue("default")
    world.enqueue(envelope("a"))
    cancel, fence = f"{world.keys.prefix}q:default:cancel", LONG + b"|1|1"
    world.raw.hset(queue.run, "evil", fence)
    world.raw.hset(cancel, "evil", b"cancel|" + fence + b"|1")
    world.run(world.queues.unwanted([S]))

    assert world.raw.hlen(cancel) == 0
