"""Whatever a producer's user writes beside Tenure's scripts: turns go on, and so do the runs of everybody else."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest

from supervisor.core.model import Kind, Outcome
from supervisor.store.queues.reads import QueueReads
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, BrokenRun, FetchedRun
from tests.kit.builders import StoreCalls, envelope

SEEDS = int(os.environ.get("TENURE_MUTATIONS", "200")) // 12
"""Drawn worlds; ``make mutations`` draws more."""

S = "r.1/w-0/1"
TURNS, RUNS = 12, 8
_NUMBERS = [
    b"",
    b"0",
    b"-1",
    b"1",
    b"1.5",
    b"1e5",
    b"1e400",
    b"nan",
    b"inf",
    b"-inf",
    b"x",
    b"9" * 16,
    b"9" * 20,
    b"9" * 400,
]
_HEADS = [b"", b"x", b"a", b"s1", b"x1", b"a9", b"\xff\x00", b"a1", b"s0", b"a1", b"a1"]
_IDS = [
    b"",
    b"|",
    b"a|ok|1|",
    b"two words",
    b"\n",
    b"\xff\xfe",
    b"i" * 5000,
    b"sched@1",
    b"sched!initial",
    b"p/1#2",
    b"{x}",
]
_SCORES = ["-inf", "0", "-1", "1e300", "inf", "1.5"]
_WORDS = [
    b"",
    b"\xff",
    b"|",
    b"||",
    b" ",
    b"a b c",
    b"evil h1",
    b"{}",
    b"[]",
    b"\n\n",
    b"A" * 5000,
    b"cancel|",
    b"x|1|1",
]


class Hostile:
    """One drawn world: a queue ``evil`` with odd values in every place that a producer's user may write."""

    def __init__(self, world: StoreCalls, seed: int) -> None:
        self.world, self.draw = world, random.Random(seed)
        self.queue = world.keys.queue("evil")
        self.ids = [b"h%d" % n for n in range(RUNS - 3)] + self.draw.sample(_IDS, 3)

    def number(self) -> bytes:
        """Return what may stand where a number is expected."""
        return self.draw.choice(_NUMBERS)

    def word(self) -> bytes:
        """Return what may stand anywhere."""
        return self.draw.choice([*_WORDS, *_NUMBERS, *self.ids])

    def header(self) -> bytes:
        """Return limits as no version writes them."""
        key = self.draw.choice([b"k", b"k", b"", b"a b", b"\xff"])
        forms = [
            b"u" + key,
            b"c" + self.number() + b":" + key,
            b"c1:" + key + b";x",
            b"c" + self.number() + b":" + key + b";x",
            b"x",
            b"r" + self.number() + b"/" + self.number() + b":" + key,
            b"r1/" + self.number() + b":k",
            b"p" + self.number(),
            b"?",
        ]
        return b"[" + b";".join(self.draw.sample(forms, self.draw.randint(0, 3))) + b"]"

    def data(self, run_id: bytes) -> bytes:
        """Return an envelope whose head, limits or body nobody would write."""
        body = pack(envelope("h0", queue="evil", result_ttl_s=60)).data[2:].replace(b'"h0"', b'"' + run_id + b'"')
        if self.draw.random() < 0.3:
            at = self.draw.choice([b"1e999", b'"nan"', b"{}"])
            body = body.replace(b'"template"', b'"enqueued_ms":' + at + b',"template"')
        if self.draw.random() < 0.2:
            body = self.draw.choice([b"", b"{", b"[[[", b"null", b"\xff" * 300])
        return self.draw.choice(_HEADS) + (self.header() if self.draw.random() < 0.7 else b"") + body

    def put_runs(self) -> None:
        """Lay runs where runs wait: ready, due, suspected, waiting for a slot or a rate."""
        raw, queue = self.world.raw, self.queue
        places = ["ready", "later", "suspect", "blocked"]
        for run_id in self.ids:
            if self.draw.random() < 0.9:
                raw.hset(queue.data, run_id, self.data(run_id))
            if self.draw.random() < 0.4:
                raw.hset(queue.att, run_id, b",".join(self.number() for _ in range(3)))
            for place in self.draw.sample(places, self.draw.randint(1, 3)):
                if place == "ready":
                    raw.rpush(queue.ready(Kind.ASYNC, self.draw.randrange(3)), run_id)
                elif place == "later":
                    raw.zadd(queue.later, {run_id: self.draw.choice(_SCORES)})
                elif place == "suspect":
                    raw.rpush(queue.suspect(Kind.ASYNC), run_id)
                else:
                    raw.hset(queue.blocked, run_id, "k")
                    raw.rpush(f"{queue.data.removesuffix('data')}wait:k", run_id)

    def put_values(self) -> None:
        """Write odd values beside them; of the type that the key has, and about no run but these."""
        raw, prefix, queue = self.world.raw, self.world.keys.prefix, self.queue
        base = queue.data.removesuffix("data")
        for run_id in self.ids:
            for key in (queue.run, f"{base}cancel", queue.limits, queue.err, f"{prefix}awaited"):
                if self.draw.random() < 0.3:
                    raw.hset(key, run_id, self.header() if key == queue.limits else self.word())
            for part in ("ready:a:0", "ready:a:1", "suspect:a"):
                if self.draw.random() < 0.2:
                    raw.hset(f"{base}stale", part.encode() + b" " + run_id, self.number())
            if self.draw.random() < 0.3:
                raw.zadd(f"{base}rate:a:k", {run_id: self.draw.choice(_SCORES)})
        raw.sadd(f"{base}woken", b"k", self.word())
        raw.set(f"{prefix}limit:r:k", self.number() + b" " + self.number())
        raw.sadd(f"{prefix}limit:c:k", self.word(), self.word(), b"evil h1")
        raw.sadd(f"{prefix}limit:q:k", self.word(), b"evil")
        raw.hset(f"{prefix}limit:u", b"k", self.word())
        raw.hset(f"{prefix}limit:n", b"k", self.word())
        raw.rpush(queue.hist, self.word())
        raw.hset(queue.stat, mapping={"in": self.number(), "ok": self.number(), "cancelled": self.number()})
        raw.sadd(self.world.keys.queues, self.word())

    def ack(self, run: FetchedRun | BrokenRun, run_id: str, outcome: Outcome) -> Ack:
        """Return the acknowledgement of what was fetched."""
        fence = {"queue": run.queue, "attempt": run.attempt, "fetched_ms": run.fetched_ms}
        return Ack(**fence, run_id=run_id, outcome=outcome, job="j", result=b"1", result_ttl_ms=1000)

    def work(self, queues: list[str]) -> set[str]:
        """Do what a worker does for some turns; return the ids of runs that ended well."""
        acks: list[Ack] = []
        ended: set[str] = set()
        for _ in range(TURNS):
            reply = self.world.turn(S, queues=queues, want=5, want_suspect=not acks, acks=acks)
            acks = [self.ack(each, each.run_id, Outcome.DEAD) for each in reply.broken]
            for run in reply.runs:
                is_good = run.envelope.id.startswith("good")
                outcome = Outcome.OK if is_good else self.draw.choice(list(Outcome))
                ended |= {run.envelope.id} if is_good else set()
                acks.append(self.ack(run, run.envelope.id, outcome))
                if not is_good and self.draw.random() < 0.5:  # changed while it executes
                    self.world.raw.hset(self.queue.data, run.envelope.id, self.data(run.envelope.id.encode()))
            if self.draw.random() < 0.3:
                self.world.turn(S, queues=queues, want=5, seq=self.world.sequences[S])  # its reply was lost
        return ended


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_value_of_a_producer_stops_turns_or_other_runs(world: StoreCalls, seed: int) -> None:
    """A value that makes the script of a turn fail stops all workers of its queue, with all their queues."""
    world.open(S)
    hostile = Hostile(world, seed)
    hostile.put_runs()
    hostile.put_values()
    world.enqueue(envelope("good1", queue="evil"), envelope("good2", queue="other"))

    assert hostile.work(["evil", "other"]) == {"good1", "good2"}


@pytest.mark.parametrize(("slots", "waiting"), [(0, 1), (9_000, 9_500)])
def test_no_number_of_slots_or_of_runs_that_wait_for_one_stops_turns(
    world: StoreCalls, slots: int, waiting: int
) -> None:
    """Whether older ones are still wanted is asked of as many as may execute at once: none, or more than fit a command."""
    world.open(S)
    queue, base = world.keys.queue("evil"), world.keys.queue("evil").data.removesuffix("data")
    data = b"a1[c%d:k;x]" % slots + pack(envelope("h0", queue="evil")).data[2:]
    for first in range(0, waiting, 500):
        ids = [f"h{n}" for n in range(first, min(first + 500, waiting))]
        world.raw.hset(queue.data, mapping=dict.fromkeys(ids, data))
        world.raw.hset(queue.blocked, mapping=dict.fromkeys(ids, "k"))
        world.raw.rpush(f"{base}wait:k", *ids)
    world.raw.sadd(f"{base}woken", "k")
    world.enqueue(envelope("good", queue="evil"))

    assert "good" in world.fetch(S, queues=["evil"], want=5)
    assert world.raw.hexists(queue.data, "h0") == 0  # enough newer ones wait


def size_of(reply: Any) -> int:
    """Return how many bytes of text a reply holds."""
    return sum(map(size_of, reply)) if isinstance(reply, list) else len(reply) if isinstance(reply, bytes) else 0


def test_what_is_longer_than_any_envelope_makes_no_reply_long(world: StoreCalls) -> None:
    """One that comes too late is asked for again, for ever: a worker did nothing more, and a page showed nothing."""
    world.open(S)
    queue, ids = world.keys.queue("default"), [f"h{n}" for n in range(4)]
    world.enqueue(*(envelope(run_id, priority=int(run_id == "h0")) for run_id in ids), envelope("good"))
    data = world.raw.hget(queue.data, "good").replace(b'"good"', b'"' + b"x" * 2_000_000 + b'"')
    world.raw.hset(queue.data, mapping={"h0": data, **dict.fromkeys(ids[1:], b"a0" + data[2:])})
    world.raw.set(queue.paused, b"x" * 2_000_000)
    reads = [world.queues.counts("default"), *(world.queues.show(run_id, ["default"]) for run_id in ids)]
    assert max(size_of(world.run(replace(call, parse=list))) for call in reads) < 1_000_000
    world.raw.delete(queue.paused)
    world.raw.hset(queue.data, mapping={"h0": data, "h1": b"a0" + data[2:]})  # pages cut those at a head

    world.raw.hset(queue.run, mapping={b"x" * 2_000_000: "r.9/w-0/1|1|1", "y": b"x" * 2_000_000 + b"|1|1"})
    assert world.run(world.queues.orphans(queue="default")).items == []
    world.raw.delete(queue.run)

    broken: set[str] = set()
    for count, begun in ((1, []), (4, []), (4, ["good"])):
        turn = world.turn_call(S, want=5)
        replies = [world.run(replace(turn, parse=list)) for _ in range(2)]  # the second: it was not answered
        assert max(map(size_of, replies)) < 1_000_000
        assert {str(turn.parse(reply).broken) for reply in replies} == {str(turn.parse(replies[0]).broken)}
        broken |= {run.run_id for run in turn.parse(replies[1]).broken}
        assert len(broken) == count
        assert [run.envelope.id for run in turn.parse(replies[1]).runs] == begun
        assert world.raw.hstrlen(queue.data, "h3") < 200_000  # it is read whole once, before its turn has come
    world.turn(S, acks=[Ack(run_id="h0", queue="default", attempt=1, outcome=Outcome.DEAD)])
    world.raw.hset(queue.data, mapping=dict.fromkeys(ids, data))
    world.raw.hset(queue.blocked, "h1", "k")
    reads = QueueReads(world.keys)
    for call in (reads.dead_page("default"), reads.running("default"), reads.blocked("default")):
        assert 100_000 < size_of(world.run(replace(call, parse=list))) < 1_000_000


def test_what_is_told_of_a_run_makes_no_reply_long(world: StoreCalls) -> None:
    """A page that masked 20 MB of progress kept its process from /livez until it was killed as hung."""
    world.enqueue(envelope("r"))
    queue, long = world.keys.queue("default"), b'"' + b"x" * 2_000_000 + b'"'
    for key in (world.keys.progress("r"), world.keys.result("r"), world.keys.ended("r")):
        world.raw.set(key, b"1 " + long)
    for hash_ in (queue.att, queue.err):
        world.raw.hset(hash_, "r", long)
    world.raw.zadd(queue.dead, {"r": 1})
    world.raw.rpush(queue.hist, b"r|ok|1|s|1|1|j|" + long)
    reads = QueueReads(world.keys)

    for call in (reads.show("r"), reads.show("r", ["default"]), reads.dead_page("default"), reads.recent("default", 5)):
        assert size_of(world.run(replace(call, parse=list))) < 1_000_000
        world.run(call)


@pytest.mark.parametrize("fields", [{f"f{n}": 1 for n in range(5000)}, {"f": b"1" * 500_000, b"g" * 500_000: 1}])
def test_counters_that_somebody_invents_make_no_reply_long(world: StoreCalls, fields: dict[str | bytes, Any]) -> None:
    """Every replica reads them for its pages and metrics: a million held Redis up for seconds, at each scrape."""
    world.enqueue(envelope("good"))
    world.raw.hset(f"{world.keys.queue('default').run.removesuffix('run')}stat", mapping=fields)
    call = world.queues.counts("default")

    assert size_of(world.run(replace(call, parse=list))) < 10_000
    assert world.run(call).ready_total == 1


def test_a_foreign_count_of_beats_lets_all_sessions_of_the_replica_live(world: StoreCalls) -> None:
    """Others judge a session whose count stands still, so none may stop for the count of another."""
    other = "r.1/w-1/1"
    world.open(S, other)
    world.raw.hset(world.keys.sessions, S, b"rubbish")
    before = world.run(world.sessions.list())
    assert world.run(world.sessions.beat([S, other])) == []
    assert {name: count - before[name] for name, count in world.run(world.sessions.list()).items()} == {S: 1, other: 1}


@pytest.mark.parametrize("score", ["inf", "-inf", "1e300"])
def test_dead_runs_are_listed_whatever_time_one_died(world: StoreCalls, score: str) -> None:
    """The list is where a person drops it."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    for run_id in world.fetch(S):
        world.ack(S, run_id, Outcome.DEAD)
    world.raw.zadd(world.keys.queue("default").dead, {"a": score})
    assert {dead.run_id for dead in world.run(QueueReads(world.keys).dead("default"))} == {"a", "b"}
