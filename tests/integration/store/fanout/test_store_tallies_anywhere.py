"""Trees of limited runs in two queues, under everything that a person or a fault can do: told by what each queue holds.

Unlike its neighbour, this model keeps no account of what should have happened: a run has ended if no queue has it any
more, and how, its queue's history tells. So it holds for whatever is done to runs.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Envelope, Kind, Outcome, Release, Template
from supervisor.operations.queues import verify
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.reads import PARTS
from supervisor.store.queues.run_records import Tallies, Tally
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child
from tests.kit.builders import StoreCalls
from tests.kit.servers import leaks
from tests.kit.waiting import wait_until

QUEUES = ("default", "other")
SESSIONS = ("r.1/w-0/1", "r.1/w-1/1")
OUTCOMES = (Outcome.OK, Outcome.OK, Outcome.OK, Outcome.DEAD, Outcome.RETRY, Outcome.GIVEBACK, Outcome.REJECTED)
LAST = {"ok", "cancelled", "purged", "replaced", "duplicate", "rejected"}
HISTORY = 100_000
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"unique": "u"},
    {"concurrency": "c", "concurrency_max": 1},
    {"concurrency": "x", "concurrency_max": 1, "concurrency_replaces": True},
    {"at_most_once": True},
)


@dataclass
class Forest:
    """Two queues, two workers, and who counts whom."""

    world: StoreCalls
    draw: random.Random
    held: dict[str, dict[tuple[str, str], int]] = field(default_factory=lambda: {name: {} for name in SESSIONS})
    above: dict[str, str] = field(default_factory=dict)
    """Each run that came to be below another, and which one counts it; empty for what follows a root."""

    follow: dict[str, str] = field(default_factory=dict)
    """What is to follow a run, and which."""

    planted: int = 0

    def __post_init__(self) -> None:
        self.world.open(*SESSIONS)
        self.control = QueueControl(self.world.keys, history=HISTORY)

    def _envelope(self, run_id: str, **fields: Any) -> Envelope:
        limits = self.draw.choice(LIMITS)
        template = Template(job="tests.noop", kind=Kind.ASYNC, queue=self.draw.choice(QUEUES), max_crashes=2, **limits)
        return Envelope(id=run_id, template=template, **fields)

    # What happens --------------------------------------------------------------------------------

    def plant(self) -> None:
        self.planted += 1
        self.world.enqueue(self._envelope(f"t{self.planted}"))

    def turn(self, session: str = "", *, is_last: bool = False) -> int:
        session = session or self.draw.choice(SESSIONS)
        held = self.held[session]
        acks = [self._ack(*run, held[run], is_last=is_last) for run in held if is_last or self.draw.random() < 0.6]
        for ack in acks:
            del held[ack.queue, ack.run_id]
        call = self.world.turn_call(session, acks=acks, want=4, queues=list(QUEUES), want_suspect=not held)
        reply = self.world.run(call)
        if self.draw.random() < 0.2:
            reply = self.world.run(call)
        for ack in acks:
            if ack.outcome is Outcome.OK and ack.run_id not in reply.stale:
                self._note(ack)
        held |= {(run.queue, run.envelope.id): run.attempt for run in reply.runs}
        return len(acks) + len(reply.runs)

    def _ack(self, queue: str, run_id: str, attempt: int, *, is_last: bool) -> Ack:
        outcome = Outcome.OK if is_last else self.draw.choice(OUTCOMES)
        is_planner = outcome is Outcome.OK and not is_last and run_id.count("/") < 4
        children, left = [], {}
        if is_planner and self.draw.random() < 0.6:
            runs = [self._envelope(f"{run_id}/{n}", parent=run_id) for n in range(self.draw.randrange(1, 4))]
            children = [Child(pack(run, above=len(run_id)), 0, "tests.noop") for run in runs]
        if is_planner and self.draw.random() < 0.4:
            packed = pack(self._envelope(f"{run_id}/then"))
            left = {"keep": 60_000, "then": [f"complete 0 {packed.queue} {packed.run_id} {packed.data.decode()}"]}
        return Ack(
            run_id=run_id,
            queue=queue,
            attempt=attempt,
            outcome=outcome,
            children=tuple(children),
            left_behind=json.dumps(left).encode() if left else None,
            retry_delay_ms=60_000 if outcome is Outcome.RETRY else 0,
        )

    def _note(self, ack: Ack) -> None:
        self.above |= {each.packed.run_id: ack.run_id for each in ack.children}
        if ack.left_behind is not None:
            self.follow[ack.run_id] = f"{ack.run_id}/then"

    def lose(self) -> None:
        session = self.draw.choice(SESSIONS)
        items = [(*run, self.draw.choice(list(Release))) for run in self.held[session]]
        if items:
            self.world.run(self.world.queues.release_runs(session=session, items=items))
        self.held[session] = {}

    def cancel(self) -> None:
        queue = self.draw.choice(QUEUES)
        ids = sorted(run_id.decode() for run_id in self.world.raw.hkeys(self.world.keys.queue(queue).data))
        if ids:
            chosen = self.draw.sample(ids, min(2, len(ids)))
            self.world.run(self.control.cancel([(queue, each) for each in chosen], kill_ms=self.draw.choice([0, 1])))

    def let_go(self) -> None:
        self.world.run(self.world.queues.unwanted(SESSIONS))

    def requeue(self) -> None:
        for queue in QUEUES:
            dead = [run_id.decode() for run_id in self.world.raw.zrange(self.world.keys.queue(queue).dead, 0, 1)]
            if dead:
                self.world.run(self.control.requeue(queue, dead))

    def drop(self) -> None:
        queue = self.draw.choice(QUEUES)
        self.world.run(self.world.queues.trim(queue, history=HISTORY, dead_cap=2))

    def _part(self, queue: str) -> str:
        waiting = f"{self.world.keys.prefix}q:{queue}:wait:"
        keys = [f"wait:{key.decode().removeprefix(waiting)}" for key in self.world.raw.keys(f"{waiting}*")]
        return self.draw.choice([*PARTS, "ready:a:1", *sorted(keys)])

    def purge(self) -> None:
        queue = self.draw.choice(QUEUES)
        self.world.run(self.control.purge(queue, self._part(queue), count=3))

    def move(self) -> None:
        queue, target = self.draw.sample(QUEUES, 2)
        self.world.run(self.control.move(queue, target, self._part(queue), count=3))

    def hasten(self) -> None:
        for queue in QUEUES:
            later = self.world.keys.queue(queue).later
            for due, run_id in enumerate(self.world.raw.zrange(later, 0, -1)):
                self.world.raw.zadd(later, {run_id: due + 1})

    def is_drained(self) -> bool:
        """End whatever can be had; return whether nothing came three times in a row, and nothing waits for a slot."""
        for _ in range(3):
            self.hasten()
            self.let_go()
            if sum(self.turn(session, is_last=True) for _ in range(2) for session in SESSIONS):
                return False
        return not any(self.world.raw.exists(self.world.keys.queue(queue).blocked) for queue in QUEUES)

    # What must be so -----------------------------------------------------------------------------

    def faults(self) -> list[str]:
        found = drive(verify(self.world.keys, QUEUES, is_mending=True), self.world.run)
        return [str(fault) for fault in found]

    def _states(self) -> tuple[dict[str, str], Counter[str]]:
        """Return where each run is, or how it ended; and how often each ended for good."""
        found: dict[str, str] = {}
        ended: Counter[str] = Counter()
        for queue in QUEUES:
            for entry in self.world.run(self.world.queues.recent(queue, 5000)):
                if entry.outcome in LAST:
                    found[entry.run_id] = entry.outcome
                    ended[entry.run_id] += 1
                elif entry.run_id not in found:
                    found[entry.run_id] = "dead"  # unless a queue still has it: it was dropped, and history tells less
        for queue in QUEUES:
            keys = self.world.keys.queue(queue)
            found |= {run_id.decode(): "there" for run_id in self.world.raw.hkeys(keys.data)}
            found |= {run_id.decode(): "dead" for run_id in self.world.raw.zrange(keys.dead, 0, -1)}
        return found, ended

    def _is_below(self, run_id: str, root: str) -> bool:
        while run_id in self.above:
            run_id = self.above[run_id]
            if run_id == root:
                return True
        return False

    def wrong(self) -> list[str]:
        states, ended = self._states()
        for parent, run_id in self.follow.items():
            if run_id in states:
                self.above.setdefault(run_id, self.above.get(parent, ""))
        found = [f"{run_id} ended {times} times" for run_id, times in ended.items() if times > 1]
        for root in {*self.above.values(), *self.follow} - {""}:
            tally = self.world.run(Tallies(self.world.keys).read(root))
            found += self._differences(root, tally, states)
        return found

    def _differences(self, root: str, tally: Tally | None, states: dict[str, str]) -> list[str]:
        ends = Counter(states[run_id] for run_id in self.above if self._is_below(run_id, root))
        total, left = ends.total(), ends.pop("there", 0)
        follower = self.follow.get(root)
        if tally is None:
            return [f"{root}: no tally"]
        found = [] if (tally.total, tally.left, tally.outcomes) == (total, left, dict(ends)) else [f"{root}: {tally}"]
        if follower is not None and (follower in tally.waiting) == (follower in states):
            found.append(f"{follower} waits and began, or neither")
        return found if left or follower is None or follower in states else [*found, f"{follower} did not begin"]


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_tally_is_exact_wherever_its_runs_go(world: StoreCalls, seed: int) -> None:
    """Limits, moves and purges end runs too, and each end is counted once."""
    forest = Forest(world, random.Random(seed))
    often = [forest.plant, forest.plant, *[forest.turn] * 14, forest.move, forest.requeue, forest.hasten]
    seldom = [forest.lose, forest.cancel, forest.let_go, forest.drop, forest.purge]
    for _ in range(90):
        forest.draw.choice([*often, *often, *seldom])()
        assert forest.wrong() == [], f"seed {seed}"
    assert forest.faults() == []
    wait_until(forest.is_drained, "runs behind a slot that is kept for a queue whose last one left: a second at most")
    assert forest.wrong() == [], f"seed {seed}"
    assert forest.faults() == []
    assert forest.above
    assert not [name for name in leaks(world.server) if not name.endswith((":dead", ":data", ":att", ":err"))]
