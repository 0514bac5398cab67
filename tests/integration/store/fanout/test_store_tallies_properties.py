"""Trees of runs under everything that can happen to runs, in any order: every tally is exact at every moment."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from supervisor.core.model import Outcome, Release
from supervisor.store.queues.control import CancelCode, QueueControl
from supervisor.store.queues.run_records import Tallies
from supervisor.store.wire.poll import Ack
from tests.integration.store.fanout.test_store_tallies import child, end, follow
from tests.kit.builders import StoreCalls, envelope

SESSIONS = tuple(f"r.1/w-{n}/1" for n in range(3))
ENDS = [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.DEAD, Outcome.RETRY, Outcome.GIVEBACK]
LAST = [Outcome.CANCELLED, Outcome.EXPIRED, Outcome.REPLACED]
DEPTH_MAX = 4


@dataclass
class Forest:
    """Workers, the runs that they hold, and what must have been counted."""

    world: StoreCalls
    draw: random.Random
    held: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in SESSIONS})
    born: set[str] = field(default_factory=set)
    """Every run that some other counts, as far as it came to be."""

    over: dict[str, str] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    waits: dict[str, str] = field(default_factory=dict)
    """What follows a run, and which run that is."""

    number: int = 0

    def __post_init__(self) -> None:
        self.world.open(*SESSIONS)
        self.control = QueueControl(self.world.keys)
        self.keys = self.world.keys.queue("default")

    def plant(self) -> None:
        self.number += 1
        self.world.enqueue(envelope(f"t{self.number}", max_crashes=2))

    def _ack(self, run_id: str, attempt: int, *, is_last: bool) -> Ack:
        outcome = Outcome.OK if is_last else self.draw.choice([*ENDS, self.draw.choice(LAST)])
        kept = self.draw.randrange(3)
        left: dict[str, object] = {"counts": {"made": kept}} if kept and outcome is not Outcome.GIVEBACK else {}
        children = []
        if outcome is Outcome.OK and not is_last and run_id.count("/") < DEPTH_MAX and self.draw.random() < 0.6:
            children = [child(run_id, str(n), max_crashes=2) for n in range(self.draw.randrange(1, 4))]
        if children and self.draw.random() < 0.5:
            left["then"] = [follow(f"{run_id}/then")]
        return end(run_id, outcome, *children, attempt=attempt, **left)

    def turn(self, session: str = "", *, is_last: bool = False) -> int:
        session = session or self.draw.choice(SESSIONS)
        held = self.held[session]
        ended = [run_id for run_id in held if is_last or self.draw.random() < 0.6]
        acks = [self._ack(run_id, held[run_id], is_last=is_last) for run_id in ended]
        call = self.world.turn_call(session, acks=acks, want=4, want_suspect=len(ended) == len(held))
        reply = self.world.run(call)
        if self.draw.random() < 0.3:
            reply = self.world.run(call)
        assert reply.stale == []
        for ack in acks:
            del held[ack.run_id]
            self._note(ack)
        held |= {run.envelope.id: run.attempt for run in reply.runs}
        return len(acks) + len(reply.runs)

    def _note(self, ack: Ack) -> None:
        if ack.outcome in {Outcome.RETRY, Outcome.GIVEBACK}:
            view = self.world.run(self.world.queues.show(ack.run_id))
            if view is not None and view.state == "finished":  # its end was asked for, and it obeyed
                self.over[ack.run_id] = "cancelled"
            return
        self.over[ack.run_id] = ack.outcome.value
        self.born |= {each.packed.run_id for each in ack.children}
        if ack.outcome is not Outcome.OK or ack.left_behind is None:
            return
        text = ack.left_behind.decode()
        self.made[ack.run_id] = int(text.partition('"made": ')[2][:1] or 0)
        if "/then " in text:
            self.waits[ack.run_id] = f"{ack.run_id}/then"

    def lose(self) -> None:
        session = self.draw.choice(SESSIONS)
        items = [("default", run_id, self.draw.choice(list(Release))) for run_id in self.held[session]]
        if items:
            self.world.run(self.world.queues.release_runs(session=session, items=items))
        self.held[session] = {}
        for _, run_id, _ in items:
            if self.world.raw.zscore(self.keys.dead, run_id) is not None:
                self.over[run_id] = "dead"
            elif not self.world.raw.hexists(self.keys.data, run_id):
                self.over[run_id] = "cancelled"

    def cancel(self) -> None:
        ids = sorted(run_id.decode() for run_id in self.world.raw.hkeys(self.keys.data))
        chosen = self.draw.sample(ids, min(2, len(ids)))
        if chosen:
            told = self.world.run(self.control.cancel([("default", run_id) for run_id in chosen]))
            for run_id, each in zip(chosen, told, strict=True):
                if each.code is CancelCode.CANCELLED:
                    self.over[run_id] = "cancelled"

    def requeue(self) -> None:
        dead = [run_id.decode() for run_id in self.world.raw.zrange(self.keys.dead, 0, 2)]
        if dead:
            self.world.run(self.control.requeue("default", dead))
            for run_id in dead:
                del self.over[run_id]

    def drop(self) -> None:
        dead = [run_id.decode() for run_id in self.world.raw.zrange(self.keys.dead, 0, 0)]
        if dead:
            self.world.run(self.control.drop("default", dead))

    def hasten(self) -> None:
        for run_id in self.world.raw.zrange(self.keys.later, 0, -1):
            self.world.raw.zadd(self.keys.later, {run_id: 1})

    def wrong(self) -> list[str]:
        """Return which tallies are not what they must be."""
        found = []
        for parent in {run_id.rpartition("/")[0] for run_id in self.born}:
            self._follow_up(parent)
        for parent in {run_id.rpartition("/")[0] for run_id in self.born}:
            tally = self.world.run(Tallies(self.world.keys).read(parent))
            below = [run_id for run_id in self.born if run_id.startswith(f"{parent}/")]
            own = f"{parent}/then"
            below = [run_id for run_id in below if run_id != own and not run_id.startswith(f"{own}/")]
            ended = Counter(self.over[run_id] for run_id in below if run_id in self.over)
            made = sum(self.made[run_id] for run_id in [parent, *below])
            seen = (tally.total, tally.left, tally.outcomes, tally.counts.get("made", 0))
            wanted = (len(below), len(below) - ended.total(), dict(ended), made)
            if seen != wanted:
                found.append(f"{parent}: {seen}, must be {wanted}")
        return found

    def _follow_up(self, parent: str) -> None:
        """Note that what follows ``parent`` has come to be, if it has."""
        run_id = self.waits.get(parent)
        if run_id is not None and self.world.state(run_id) != "unknown":
            del self.waits[parent]
            self.born.add(run_id)


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_every_tally_is_exact_and_everything_follows_once(world: StoreCalls, seed: int) -> None:
    """A count that is off by one is a fan-out that never completes, or completes too early."""
    forest = Forest(world, random.Random(seed))
    forest.plant()
    steps = [forest.plant, *[forest.turn] * 7, forest.lose, forest.cancel, forest.requeue, forest.drop, forest.hasten]
    for _ in range(120):
        forest.draw.choice(steps)()
        assert forest.wrong() == [], f"seed {seed}"
    assert world.fsck() == []
    progress = 1
    while progress:
        forest.hasten()
        progress = sum(forest.turn(session, is_last=True) for _ in range(2) for session in SESSIONS)
    assert forest.wrong() == [], f"seed {seed}"
    assert forest.waits == {}, f"seed {seed}: what follows never started"
    assert all(world.run(Tallies(world.keys).read(run_id.rpartition("/")[0])).left == 0 for run_id in forest.born)
    entries = Counter(
        entry.run_id for entry in world.run(world.queues.recent("default", 5000)) if entry.outcome == "ok"
    )
    assert not {run_id for run_id, times in entries.items() if times > 1}
    left = {key.decode().removeprefix(world.keys.prefix) for key in world.raw.keys(f"{world.keys.prefix}*")}
    assert not any(name.endswith(":limits") for name in left)
    assert all(world.raw.pttl(f"{world.keys.prefix}{name}") > 0 for name in left if name.startswith("tally:"))


def test_the_model_itself_goes_through_all_of_it(world: StoreCalls) -> None:
    """A model that never loses, cancels or requeues would show nothing."""
    forest, seen = Forest(world, random.Random(2)), set()
    for _ in range(5):
        forest.plant()
    steps = [forest.plant, *[forest.turn] * 7, forest.lose, forest.cancel, forest.requeue, forest.hasten]
    for _ in range(250):
        forest.draw.choice(steps)()
        forest.wrong()
        seen |= set(forest.over.values())
    assert {"ok", "dead", "cancelled", "expired", "replaced"} <= seen
    assert any(run_id.endswith("/then") for run_id in forest.born)
    assert max(run_id.count("/") for run_id in forest.born) >= 3
