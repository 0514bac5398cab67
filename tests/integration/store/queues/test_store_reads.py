"""What people see of a queue, how its invariants are verified, and how it is trimmed."""

from __future__ import annotations

import pytest

from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.queues.reads import Served
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


def test_counts_show_every_place_a_run_can_be_in(world: StoreCalls) -> None:
    """The one view that queue list, metrics and the dashboard share."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i}") for i in range(4)))
    world.fetch(S, want=3)
    world.ack(S, "r0", Outcome.RETRY, retry_delay_ms=60_000)
    world.ack(S, "r1", Outcome.DEAD)
    world.run(world.queues.release_runs(session=S, items=[("default", "r2", Release.SUSPECT)]))
    world.enqueue(envelope("hi", priority=0, kind=Kind.SYNC))
    world.fetch(S, want=1)
    counts = world.run(world.queues.counts("default"))

    assert counts.ready == {(k, p): int((k, p) == (Kind.SYNC, 0)) for k in Kind for p in (0, 1, 2)}
    assert counts.suspects == {Kind.ASYNC: 1, Kind.SYNC: 0}
    assert (counts.running, counts.later, counts.dead, counts.paused) == (1, 1, 1, None)
    assert 50_000 < counts.next_due_ms - counts.now_ms <= 60_000
    assert (counts.stats["retry"], counts.stats["dead"], counts.stats["reclaim_suspect"]) == (1, 1, 1)


def test_the_oldest_ready_run_tells_how_long_work_waits(world: StoreCalls) -> None:
    """By its producer's clock, over all lists."""
    new, old = envelope("new"), envelope("old", priority=2)
    stamp = lambda one, at: type(one)(id=one.id, template=one.template, enqueued_ms=at)  # noqa: E731
    world.enqueue(stamp(new, 2000), stamp(old, 1000))
    assert world.run(world.queues.counts("default")).oldest_ready_ms == 1000


def test_one_run_is_shown_wherever_it_is(world: StoreCalls) -> None:
    """By its id alone, in whatever queue."""
    world.open(S)
    world.enqueue(envelope("a", queue="qa"), envelope("b", queue="qb"))
    assert world.run(world.queues.show("b")).queue == "qb"
    assert world.run(world.queues.show("b", ["qa"])) is None
    assert world.run(world.queues.show("never")) is None

    world.fetch(S, queues=["qa", "qb"])
    view = world.run(world.queues.show("a"))
    assert (view.state, view.queue, view.session, view.attempts) == ("running", "qa", S, 0)
    assert view.fetched_ms > 0
    world.ack(S, "a", Outcome.RETRY, queue="qa", retry_delay_ms=60_000)
    view = world.run(world.queues.show("a"))
    assert (view.state, view.attempts, view.history[0].outcome) == ("later", 1, "retry")
    assert view.due_ms
    world.ack(S, "b", queue="qb")
    assert world.run(world.queues.show("b")).queue == "qb"
    assert world.run(world.queues.running("qb")).items == []


def test_running_runs_name_session_attempt_and_job(world: StoreCalls) -> None:
    """Who works on what, and since when."""
    world.open(S)
    world.enqueue(envelope("a", job="slow"))
    world.fetch(S)
    run = world.run(world.queues.running("default")).items[0]
    assert (run.run_id, run.session, run.attempt, run.envelope.template.job) == ("a", S, 1, "slow")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda w, q: w.raw.rpush(q.ready(Kind.ASYNC, 1), "a"), "a: in ready:a:1 and in ready:a:1"),
        (lambda w, q: w.raw.rpush(q.ready(Kind.SYNC, 1), "b"), "its data says a1"),
        (lambda w, q: w.raw.lrem(q.ready(Kind.ASYNC, 1), 1, "a"), "a: in no list"),
        (lambda w, q: w.raw.zadd(q.later, {"a": 1}), "a: in later and in ready:a:1"),
        (lambda w, q: w.raw.hset(q.run, "b", "ghost|1|5"), "runs in session ghost"),
        (lambda w, q: w.raw.hset(q.run, "b", "nonsense"), "b: its fence cannot be read"),
        (lambda w, q: w.raw.zadd(q.dead, {"c": 1}), "c: in dead without data"),
        (lambda w, q: w.raw.hset(q.att, "c", "1,0,0"), "c: charged without data"),
        (lambda w, q: w.raw.hset(q.att, "a", "x"), "a: its charges cannot be read"),
    ],
)
def test_each_broken_invariant_is_named(world: StoreCalls, break_it: object, words: str) -> None:
    """A check that cannot fail proves nothing."""
    world.open(S)
    world.enqueue(envelope("b"), envelope("a"))
    world.fetch(S, want=1)
    assert world.fsck() == []
    break_it(world, world.keys.queue("default"))  # type: ignore[operator]

    assert any(words in line for line in world.fsck()), world.fsck()


def test_dead_runs_are_read_with_the_names_of_their_arguments_alone(world: StoreCalls) -> None:
    """The values of a page took the memory of a web child, ten times their bytes in several queues."""
    world.open(S)
    world.enqueue(envelope("r1", args={"rows": [[]] * 1000, "day": "monday"}))
    world.fetch(S)
    world.ack(S, "r1", Outcome.DEAD, error={})

    (dead,) = world.run(world.queues.dead("default"))
    assert dead.envelope is not None
    assert dead.envelope.template.args == {"rows": None, "day": None}


def test_trimming_drops_the_oldest_of_history_and_dead(world: StoreCalls) -> None:
    """By number and by age; what is dropped leaves nothing behind."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i}") for i in range(6)))
    world.fetch(S)
    for i in range(6):
        world.ack(S, f"r{i}", Outcome.DEAD, error={"n": i})
        world.raw.zadd(world.keys.queue("default").dead, {f"r{i}": 100 + i})

    assert world.run(world.queues.trim("default", history=4, dead_before_ms=102)) == 4
    assert {run.run_id for run in world.run(world.queues.dead("default"))} == {"r2", "r3", "r4", "r5"}
    assert world.run(world.queues.trim("default", history=4, dead_cap=1)) == 3
    assert [run.run_id for run in world.run(world.queues.dead("default"))] == ["r5"]
    keys = world.keys.queue("default")
    assert world.raw.hkeys(keys.data) == world.raw.hkeys(keys.att) == world.raw.hkeys(keys.err) == [b"r5"]
    assert world.twice(world.queues.trim("default", history=4, dead_cap=1)) == (0, 0)


def test_foreign_lines_in_a_history_are_left_out(world: StoreCalls) -> None:
    """Another version may write more fields; what cannot be read is not shown as something else."""
    world.raw.rpush(world.keys.queue("default").hist, "only|three|parts", "id|ok|x|s|1|2|j|n")
    assert world.run(world.queues.recent("default")) == []


def test_queues_that_no_open_session_serves_are_found_by_kind(world: StoreCalls) -> None:
    """A run there would lie for ever and nobody would know; one that a worker takes sooner or later is no news."""
    world.enqueue(envelope("a", queue="gpu"), envelope("b"))
    world.run(world.sessions.open("r.1/w-0/1", {"kind": "async", "queues": "default,mail"}))
    world.run(world.sessions.open("r.1/w-1/1", {"kind": "sync", "queues": "gpu"}))
    assert [str(each) for each in world.run(world.queues.unserved()).items] == ["1 async runs in queue gpu"]
    world.run(world.sessions.open("r.2/w-0/1", {"kind": "async", "queues": "gpu"}))

    assert world.run(world.queues.unserved()).items == []
    kinds = {"default": (Kind.ASYNC,), "mail": (Kind.ASYNC,), "gpu": (Kind.ASYNC, Kind.SYNC)}
    assert world.run(world.queues.served_kinds()) == kinds
    world.run(world.sessions.open("r.3/w-0/1", {"kind": "of later", "queues": "x"}))
    world.run(world.sessions.open("r.3/w-1/1", {"pid": 1}))
    assert world.run(world.queues.served_kinds()) == kinds, "nothing is known of the others"
    served = {name: world.run(world.queues.served(name)) for name in ("gpu", "mail", "default", "gp", "mai")}
    assert [name for name, answer in served.items() if answer is Served.YES] == ["gpu", "mail", "default"]
    assert {served["gp"], served["mai"]} == {Served.NO}


@pytest.mark.parametrize("kind", list(Kind))
def test_delayed_runs_that_came_due_where_nobody_moves_them_on_are_found(world: StoreCalls, kind: Kind) -> None:
    """A deploy took the last worker of a queue away while reminders and retries lay there."""
    world.enqueue(envelope("due", queue="gpu", kind=kind), envelope("more", queue="gpu"), delays_ms=[1, 60_000])
    key = world.keys.queue("gpu").later
    world.raw.zadd(key, {"due": 1})
    assert [str(each) for each in world.run(world.queues.unserved()).items] == [f"1 {kind.value} runs in queue gpu"]

    world.run(world.sessions.open("r.1/w-0/1", {"kind": "sync", "queues": "gpu"}))
    assert world.run(world.queues.unserved()).items == []


@pytest.mark.parametrize("sign", ["fence", "lease", "candidates"])
def test_a_cluster_of_which_no_replica_was_ever_seen_is_told_from_one_without_workers(
    world: StoreCalls, sign: str
) -> None:
    """The one is a name that somebody mistyped, the other waits for its workers."""
    world.enqueue(envelope("a"))
    assert world.run(world.queues.served("default")) is Served.NO_CLUSTER

    world.raw.set(getattr(world.keys, sign), "x")

    assert world.run(world.queues.served("default")) is Served.NO


def test_a_foreign_key_in_a_queue_hides_no_other_queue_that_nobody_serves(world: StoreCalls) -> None:
    """What cannot be counted counts as empty."""
    world.enqueue(envelope("b"))
    world.raw.sadd(world.keys.queues, "broken")
    world.raw.set(world.keys.queue("broken").suspect(Kind.ASYNC), "another program's")

    assert [each.queue for each in world.run(world.queues.unserved()).items] == ["default"]


@pytest.mark.parametrize("count", ["rubbish", "", "-1", "9" * 400])
def test_a_count_of_stale_entries_that_is_no_number_counts_as_none(world: StoreCalls, count: str) -> None:
    """Whoever looks at the queue, or for suspects in it, gets an answer."""
    world.enqueue(envelope("a"))
    world.raw.hset(f"{world.keys.queue('default').prefix}stale", "ready:s:1 x", count)

    assert world.run(world.queues.counts("default")).ready_total == 1
