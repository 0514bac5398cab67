"""Concurrency limits under everything that can happen to runs, in any order: nothing leaks, nothing is stuck."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.wire.poll import Ack
from tests.integration.store.limits.limit_checks import broken_limits, limit_keys, limited
from tests.kit.builders import StoreCalls, envelope

QUEUES = ("default", "other")
OUTCOMES = [Outcome.OK, Outcome.OK, Outcome.RETRY, Outcome.DEAD, Outcome.GIVEBACK, Outcome.CANCELLED]
RELEASES = list(Release)
SESSIONS = {f"r.1/w-{n}/1": kind for n, kind in enumerate([Kind.ASYNC, Kind.SYNC, Kind.ASYNC, Kind.SYNC])}


@dataclass
class Shop:
    """Workers of both kinds, and what they hold."""

    world: StoreCalls
    draw: random.Random
    held: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    number: int = 0

    def open(self) -> None:
        for name in SESSIONS:
            self.world.open(name)
            self.held[name] = {}

    def add(self) -> None:
        runs = []
        for _ in range(self.draw.randrange(1, 5)):
            self.number += 1
            place: dict[str, Any] = {
                "queue": self.draw.choice(QUEUES),
                "kind": self.draw.choice([Kind.ASYNC, Kind.SYNC]),
                "priority": self.draw.randrange(3),
            }
            if self.draw.random() < 0.3:
                place |= {"unique": f"u{self.draw.randrange(8)}"}
            if self.draw.random() < 0.2:
                place |= {"rate": "r", "rate_count": 3, "rate_per_ms": 200}
            run_id, key = f"r{self.number}", f"k{self.draw.randrange(1, 3)}"
            is_limited = self.draw.random() < 0.8
            runs.append(limited(run_id, 2, key, **place) if is_limited else envelope(run_id, **place))
        self.world.enqueue(*runs)

    def turn(self, session: str = "", outcomes: list[Outcome] = OUTCOMES, most: int = 4) -> int:
        session = session or self.draw.choice(list(SESSIONS))
        kind = SESSIONS[session]
        held = self.held[session]
        ended = [run_id for run_id in held if self.draw.random() < 0.5 or outcomes == [Outcome.OK]]
        acks = [
            Ack(run_id=run_id, queue=held[run_id][0], attempt=held[run_id][1], outcome=self.draw.choice(outcomes))
            for run_id in ended
        ]
        call = self.world.turn_call(
            session, kind=kind, want=most, queues=list(QUEUES), acks=acks, want_suspect=len(held) == len(ended)
        )
        reply = self.world.run(call)
        if self.draw.random() < 0.3:  # the reply was lost; a turn that did nothing may find something now
            first, reply = reply, self.world.run(call)
            assert not (acks or first.runs) or [r.envelope.id for r in reply.runs] == [
                r.envelope.id for r in first.runs
            ]
        assert reply.stale == []
        for run_id in ended:
            del held[run_id]
        for run in reply.runs:
            assert all(run.envelope.id not in other for other in self.held.values()), "two workers have one run"
            held[run.envelope.id] = (run.queue, run.attempt)
        return len(reply.runs) + len(acks)

    def release(self) -> None:
        session = self.draw.choice(list(SESSIONS))
        items = [(queue, run_id, self.draw.choice(RELEASES)) for run_id, (queue, _) in self.held[session].items()]
        if items:
            assert self.world.run(self.world.queues.release_runs(session=session, items=items)).count == len(items)
            self.held[session] = {}

    def cancel(self) -> None:
        running = {run_id for held in self.held.values() for run_id in held}
        queue = self.draw.choice(QUEUES)
        keys = self.world.keys.queue(queue)
        there = set(self.world.raw.hkeys(keys.data)) - set(self.world.raw.zrange(keys.dead, 0, -1))
        waiting = sorted({run_id.decode() for run_id in there} - running)
        if waiting:
            self.world.cancel(self.draw.choice(waiting), queue)

    def hasten(self) -> None:
        self.world.raw.delete(f"{self.world.keys.prefix}limit:r:tests.noop:r")
        for queue in QUEUES:
            later = self.world.keys.queue(queue).later
            for run_id in self.world.raw.zrange(later, 0, -1):
                self.world.raw.zadd(later, {run_id: 1})


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_slots_are_held_by_what_runs_and_everything_ends(world: StoreCalls, seed: int) -> None:
    """A limit that leaks is a queue that stops for ever; one that does not hold is no limit."""
    shop = Shop(world, random.Random(seed))
    shop.open()
    steps = [shop.add, shop.add, shop.turn, shop.turn, shop.turn, shop.turn, shop.release, shop.cancel, shop.hasten]
    for _ in range(100):
        shop.draw.choice(steps)()
        assert broken_limits(world, QUEUES) == [], f"seed {seed}"
    progress = 1
    while progress:
        shop.hasten()
        progress = sum(shop.turn(session, [Outcome.OK]) for _ in range(2) for session in SESSIONS)
    for queue in QUEUES:
        counts = world.run(world.queues.counts(queue))
        assert (counts.running, counts.later, counts.ready_total, sum(counts.suspects.values())) == (0, 0, 0, 0)
        keys = world.keys.queue(queue)
        assert set(world.raw.hkeys(keys.data)) == set(world.raw.zrange(keys.dead, 0, -1))
    expiring = ("limit:r:", "limit:w:")  # a queue may stand in the line of a key for a day
    left = {name for name in limit_keys(world) if not name.startswith(expiring)}
    assert left == set(), f"seed {seed}"
