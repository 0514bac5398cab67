"""Servers and keys that are not as they should be: nothing may be lost, and the error must say what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.election.commands import Answer, Command, Commands, Word
from supervisor.store.election.leases import LeaseCode
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.run_records import StepCalls
from supervisor.store.scripts import script, script_names
from supervisor.store.wire.poll import Ack
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import on_both
from tests.kit.tables import table

S = "r.1/w-0/1"
PARTS = ["data", "run", "att", "later", "dead", "hist", "stat", "ready:a:1", "suspect:a", "bell:a"]


def spoil(world: StoreCalls, key: str) -> None:
    """Put a key of another type in place of ``key``."""
    world.raw.delete(key)
    if ":bell:" in key or ":ready:" in key or ":suspect:" in key:
        world.raw.hset(key, "x", "1")
    else:
        world.raw.rpush(key, "x")


def refusal(world: StoreCalls, call: Call[object]) -> str:
    """Return why ``call`` was refused; empty when it was not."""
    try:
        world.run(call)
    except StoreRefusedError as error:
        return str(error)
    return ""


def placed(world: StoreCalls) -> set[str]:
    """Return every id that some place of the queue still knows."""
    keys, found = world.keys.queue("default"), set()
    readers: dict[str, Callable[[str], object]] = {
        "hash": world.raw.hkeys,
        "list": lambda k: world.raw.lrange(k, 0, -1),
        "zset": lambda k: world.raw.zrange(k, 0, -1),
    }
    for part in ("run", "later", "dead", "ready:a:1", "suspect:a"):
        kind = world.raw.type(keys.prefix + part).decode()
        found |= {value.decode() for value in readers.get(kind, lambda _: [])(keys.prefix + part)}
    return found


@pytest.mark.parametrize("part", PARTS)
def test_an_enqueue_that_meets_a_foreign_key_adds_nothing(world: StoreCalls, part: str) -> None:
    """Half an enqueue would be a run that never runs."""
    key = world.keys.queue("default").prefix + part
    spoil(world, key)
    before = sorted(world.raw.keys("*"))
    touched = part in {"data", "later", "stat", "ready:a:1", "bell:a"}

    if touched:
        with pytest.raises(StoreRefusedError, match="another type"):
            world.enqueue(envelope("a"))
        assert sorted(world.raw.keys("*")) == before
    else:
        assert world.enqueue(envelope("a")) == [True]


@pytest.mark.parametrize("part", PARTS)
def test_a_turn_that_meets_a_foreign_key_loses_no_run(world: StoreCalls, part: str) -> None:
    """Scripts are not rolled back, so their order of writes must be safe at every point."""
    world.open(S)
    world.enqueue(envelope("held"), envelope("free"))
    (held,) = world.turn(S, want=1).runs
    key = world.keys.queue("default").prefix + part
    saved = world.raw.dump(key) if world.server.is_real else None
    spoil(world, key)
    acks = [Ack(run_id="held", queue="default", attempt=1, fetched_ms=held.fetched_ms, outcome=Outcome.RETRY)]
    call = world.turn_call(S, want=5, want_suspect=True, acks=acks)
    assert refusal(world, call) == "" or "another type" in refusal(world, call)
    if saved and part in {"run", "later", "dead", "ready:a:1"}:
        world.raw.delete(key)
        world.raw.restore(key, 0, saved)

    if part not in {"data", "run", "later", "ready:a:1"} or saved:
        assert placed(world) >= {"held", "free"}


@pytest.mark.parametrize("part", [*PARTS, "err", "limits", "blocked", "woken", "stale", "cancel", "ready:a:0"])
def test_a_foreign_key_in_one_queue_stops_nothing_in_another(world: StoreCalls, part: str) -> None:
    """A turn that was refused half-way would be repeated for ever, and its worker fetch nothing any more."""
    world.open(S)
    world.enqueue(envelope("done"), envelope("next"))
    assert world.fetch(S, want=1) == ["done"]
    world.enqueue(envelope("other", queue="ill"))
    world.enqueue(envelope("late", queue="ill"), delays_ms=[1])
    spoil(world, world.keys.queue("ill").prefix + part)
    ack = Ack(run_id="done", queue="default", attempt=1, outcome=Outcome.OK)
    reply = world.turn(S, want=5, queues=["ill", "default"], acks=[ack])
    assert "next" in [run.envelope.id for run in reply.runs]
    assert reply.stale == []
    assert world.state("done") == "finished"


@pytest.mark.parametrize("part", ["run", "later", "dead", "data"])
def test_a_release_that_meets_a_foreign_key_changes_nothing(world: StoreCalls, part: str) -> None:
    """The reaper tries again once somebody has cleared the key away."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    spoil(world, world.keys.queue("default").prefix + part)
    with pytest.raises(StoreRefusedError, match="another type"):
        world.run(world.queues.release_runs(session=S, items=[("default", "a", Release.CRASHED)]))
    if part != "run":
        assert world.raw.hexists(world.keys.queue("default").run, "a")


@pytest.mark.parametrize("part", ["mark", "next", "live", "def"])
def test_a_fire_that_meets_a_foreign_key_is_refused(world: StoreCalls, part: str) -> None:
    """And is not taken for a fence or a duplicate."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s")))
    item = world.item("s")
    spoil(world, f"{world.keys.prefix}schedule:{part}")
    with pytest.raises(StoreRefusedError, match="another type"):
        world.run(world.fire_call(term, item))
    if part != "mark":
        assert int(world.raw.hget(world.keys.schedule_mark, "s")) == item.mark_ms
    assert world.raw.exists(world.keys.queue("default").data) == 0


@on_both()
@table("name", script_names())
def test_no_script_survives_garbage_with_an_effect_or_a_global(world: StoreCalls, name: str) -> None:
    """Wrong arguments get an error or an empty answer, and the interpreter is as it was."""
    world.raw.flushall()
    item, term = script(name), world.lead()
    keys = tuple(world.keys.prefix if key == "prefix" else f"{world.keys.prefix}{key}" for key in item.key_names)
    for garbage in ("", "x", "-1", "1" * 400, "\n|, "):
        args = [garbage] * (len(item.arg_names) + (3 if item.rest else 0))
        if "epoch" in item.arg_names:  # pass the fence, to reach what is behind it
            args[:2] = [str(term.epoch), term.nonce]
        error = refusal(world, Call(name, keys, tuple(args), lambda reply: reply))
        assert "attempted to" not in error  # "attempted to set global variables"
        assert "nil value" not in error
    assert world.raw.exists(world.keys.queue("x").data) == 0
    assert world.raw.exists(world.keys.schedule_mark) == 0
    assert world.raw.eval("return redis.call('PING')['ok']", 0) == b"PONG"


def test_memory_that_is_full_lets_what_is_queued_run_but_nothing_be_added(world: StoreCalls) -> None:
    """Only runs that begin and end free memory, so both must go on; and nothing may be half done."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S, want=1)
    world.raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="out of memory"):
            world.enqueue(envelope("c"))
        assert world.ack(S, "a").stale == []
        assert world.run(world.queues.counts("default")).stats["ok"] == 1
        assert world.fetch(S, want=1) == ["b"]
        assert world.ack(S, "b", Outcome.RETRY, error={"reason": "x"}, retry_delay_ms=60_000).stale == []
    finally:
        world.raw.config_set("maxmemory", 0)
    assert world.state("b") == "later"
    assert world.raw.llen(world.keys.queue("default").ready(Kind.ASYNC, 1)) == 0
    assert world.fsck() == []


def test_memory_that_is_full_refuses_no_turn_that_can_write_no_end(world: StoreCalls) -> None:
    """Nor one that tells nothing: its worker would send it again and again, and the ends that it has meanwhile never."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    world.open(S)
    world.enqueue(*(envelope(name) for name in ("due", "unowned", "refused")))
    world.fetch(S, want=3)
    queue = world.keys.queue("default")
    world.raw.hdel(queue.run, "due", "unowned")
    world.raw.zadd(queue.later, {"due": 1})
    world.raw.config_set("maxmemory", 1)
    try:
        assert world.ack(S, "unowned", fetched_ms=1).stale == ["unowned"]
        assert world.state("due") == "queued"
        assert world.turn(S).stale == []
        world.raw.config_set("maxmemory", 0)
        spoil(world, queue.err)
        world.raw.config_set("maxmemory", 1)
        assert world.ack(S, "refused").refused == {("default", "refused")}
    finally:
        world.raw.config_set("maxmemory", 0)


def test_memory_that_is_full_keeps_no_worker_out_and_no_leader(world: StoreCalls) -> None:
    """Workers that restart then must be able to empty the queues: nobody else would ever free memory."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    world.open(S)
    term = world.lead()
    world.enqueue(envelope("held"), envelope("asked"), envelope("waits"))
    assert len(world.fetch(S, want=2)) == 2
    control, commands = QueueControl(world.keys), Commands(world.keys)
    world.raw.config_set("maxmemory", 1)
    try:
        assert world.run(world.sessions.open("r.2/w-0/1", {"pid": 1}))
        assert world.run(world.sessions.beat([S])) == []
        renewed = world.run(world.leases.renew(term, duration_ms=5000))
        assert renewed.code is LeaseCode.RENEWED
        assert world.run(commands.send("r.1", "c", Command(word=Word.REPORT)))
        world.run(commands.answer("r.1", "c", Answer(is_done=True)))
        world.run(control.cancel([("default", "asked")], kill_ms=1))
        assert world.run(world.queues.unwanted([S]))
        assert world.run(world.sessions.condemn(S, None))
        assert (
            world.run(world.queues.release_runs(session=S, items=[("default", "held", Release.INTERRUPTED)])).count == 1
        )
        world.run(world.sessions.bury(S))
        assert world.fetch("r.2/w-0/1", want=1) == ["held"]
        assert world.ack("r.2/w-0/1", "held").stale == []
        assert world.run(control.purge("default", "ready:a:1")) is not None
        released = world.leases.release(term, reason="a test")
        assert world.run(released).code is LeaseCode.RELEASED
    finally:
        world.raw.config_set("maxmemory", 0)


def test_memory_that_is_full_refuses_no_note_of_a_step(world: StoreCalls) -> None:
    """The step was called already: refused, it was called again by each attempt until the run was dead."""
    if not world.server.is_real:
        return  # fakeredis has no memory limit
    world.open(S)
    world.enqueue(envelope("order"))
    world.fetch(S, want=1)
    fence = f"{S}|1|{world.fetched_ms('order')}"
    calls = StepCalls(world.keys, run_id="order", queue="default", fence=fence, born="1")
    world.raw.config_set("maxmemory", 1)
    try:
        noted = [
            world.run(calls.write(name, b'{"status":"done","number":1,"attempt":1}', ttl_ms=60_000)) for name in "abc"
        ]
        known = world.run(calls.read(ttl_ms=60_000))
    finally:
        world.raw.config_set("maxmemory", 0)
    assert (noted, list(known)) == ([1, 1, 1], ["a", "b", "c"])
