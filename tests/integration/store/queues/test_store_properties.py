"""Any interleaving of workers, reapers, producers and lost replies: no run is lost, and none is held twice.

A model of what must be true walks beside the real scripts. A failure prints the steps that led to it.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child, TurnReply
from supervisor.testing.scripting import QuickStore
from supervisor.testing.server import driven_time
from tests.kit.builders import envelope

QUEUE = "default"
NAMES = st.sampled_from(["w0", "w1", "w2"])


class Life(RuleBasedStateMachine):
    """Workers w0 to w2, each with generations, against one queue."""

    held_runs: Bundle[tuple[str, str, int]] = Bundle("held_runs")

    def __init__(self) -> None:
        super().__init__()
        self.time = ExitStack()

    def teardown(self) -> None:
        with self.time:
            if hasattr(self, "raw"):
                self.drain()

    @initialize()
    def start(self) -> None:
        milliseconds = count(1_767_225_600_000)  # a step must do the same however slow the machine is
        self.time.enter_context(driven_time(lambda: next(milliseconds) / 1000))
        self.store, keys = QuickStore(), Keys("p")
        self.raw = self.store.raw
        self.queues, self.sessions, self.keys = Queues(keys), Sessions(keys), keys.queue(QUEUE)
        self.generation = dict.fromkeys(["w0", "w1", "w2"], 0)
        self.seq: dict[str, int] = {}
        self.open: set[str] = set()
        self.alive: set[str] = set()  # runs that must still be somewhere
        self.ended: list[str] = []  # runs whose end was recorded
        self.holder: dict[str, tuple[str, int]] = {}
        self.number = 0

    def call(self, call: Any, *, is_repeated: bool) -> Any:
        """Send a call, or send it twice because the first reply was lost."""
        if is_repeated:
            self.store.run(call)
        return self.store.run(call)

    def session(self, worker: str) -> str:
        name = f"{worker}/{self.generation[worker]}"
        if name not in self.open:
            assert self.store.run(self.sessions.open(name, {}))
            self.open.add(name)
        return name

    @rule(
        count=st.integers(1, 4),
        priority=st.integers(0, 2),
        delayed=st.booleans(),
        once=st.booleans(),
        again=st.booleans(),
    )
    def enqueue(self, count: int, priority: int, *, delayed: bool, once: bool, again: bool) -> None:
        ids = [f"r{self.number + i}" for i in range(count)]
        self.number += count
        runs = [envelope(run, priority=priority, at_most_once=once, max_crashes=2) for run in ids]
        call = self.queues.enqueue(nonce=ids[0], envelopes=runs, delays_ms=[3_600_000 if delayed else 0] * count)
        assert all(self.call(call, is_repeated=again))
        self.alive |= set(ids)

    @rule(
        target=held_runs,
        worker=NAMES,
        want=st.integers(0, 5),
        suspect=st.booleans(),
        again=st.booleans(),
    )
    def fetch(self, worker: str, want: int, *, suspect: bool, again: bool) -> Any:
        session = self.session(worker)
        reply = self.turn(session, [], want=want, suspect=suspect, again=again)
        for run in reply.runs:
            assert run.envelope.id not in self.holder, "held twice"
            assert run.envelope.id in self.alive, "it had ended"
            self.holder[run.envelope.id] = (session, run.attempt, run.fetched_ms)
        assert len(reply.runs) <= want
        return multiple(*((run.envelope.id, session, run.attempt, run.fetched_ms) for run in reply.runs))

    def turn(self, session: str, acks: list[Ack], *, want: int, suspect: bool, again: bool) -> TurnReply:
        self.seq[session] = self.seq.get(session, 0) + 1
        call = self.queues.turn(
            session=session,
            seq=self.seq[session],
            kind=Kind.ASYNC,
            queues=[QUEUE],
            want=want,
            want_suspect=suspect,
            acks=acks,
        )
        reply: TurnReply = self.call(call, is_repeated=again)
        return reply

    @rule(
        held=consumes(held_runs),
        outcome=st.sampled_from(list(Outcome)),
        spawned=st.integers(0, 2),
        again=st.booleans(),
    )
    def acknowledge(self, held: tuple[str, str, int, int], outcome: Outcome, spawned: int, *, again: bool) -> None:
        """Also late: the session may be gone, or another may hold the run by now. Children come if it counts."""
        run, session, attempt, fetched_ms = held
        born = [f"{run}/{number}" for number in range(spawned)] if outcome is Outcome.OK else []
        children = tuple(Child(pack(envelope(child)), 0, "tests.noop") for child in born)
        ack = Ack(run_id=run, queue=QUEUE, attempt=attempt, fetched_ms=fetched_ms, outcome=outcome, children=children)
        reply = self.turn(session, [ack], want=0, suspect=False, again=again)
        owns = self.holder.get(run) == (session, attempt, fetched_ms)
        assert reply.lost == (session not in self.open)
        if not reply.lost:
            assert reply.stale == ([] if owns else [run])
        if owns and not reply.lost:
            del self.holder[run]
            if outcome not in {Outcome.RETRY, Outcome.GIVEBACK, Outcome.AGAIN}:
                self.alive.discard(run)
                self.ended.append(run)
                self.alive.update(born)

    @rule(worker=NAMES, how=st.sampled_from(list(Release)), reapers=st.integers(1, 2), again=st.booleans())
    def kill(self, worker: str, how: Release, reapers: int, *, again: bool) -> None:
        """The process dies; one or two agents condemn it and give back what it held."""
        session = self.session(worker)
        self.generation[worker] += 1
        for _ in range(reapers):
            assert self.call(self.sessions.condemn(session, None), is_repeated=again)
        self.open.discard(session)
        for _ in range(reapers):
            page = self.store.run(self.queues.held(session=session, queue=QUEUE))
            items = [(QUEUE, run, how) for run, *_ in page.items]
            if items:
                self.call(self.queues.release_runs(session=session, items=items), is_repeated=again)
        self.store.run(self.sessions.bury(session))
        for run in [run for run, (holder, *_) in self.holder.items() if holder == session]:
            del self.holder[run]
            if self.raw.zscore(self.keys.dead, run) is not None:  # at_most_once, or its last crash
                self.alive.discard(run)
                self.ended.append(run)

    @rule()
    def time_passes(self) -> None:
        """Every delay has passed."""
        for run in self.raw.zrange(self.keys.later, 0, -1):
            self.raw.zadd(self.keys.later, {run: 1})

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Somebody cancels a run that is not running."""
        waiting = sorted(self.alive - set(self.holder))
        if waiting:
            run = data.draw(st.sampled_from(waiting))
            self.raw.hdel(self.keys.data, run)
            self.alive.discard(run)

    @invariant()
    def every_run_is_in_exactly_one_place(self) -> None:
        """The queue's own check agrees, and knows every run that must be there."""
        found = self.store.run(self.queues.fsck(QUEUE))
        assert found == [], found
        known = {run.decode() for run in self.raw.hkeys(self.keys.data)}
        assert known - {run.decode() for run in self.raw.zrange(self.keys.dead, 0, -1)} == self.alive
        assert {run.decode() for run in self.raw.hkeys(self.keys.run)} == set(self.holder)

    def drain(self) -> None:
        """Everything that must still run can run: a last worker drains the queue, and each end is recorded once."""
        for worker in list(self.generation):
            self.kill(worker, Release.UNSTARTED, 1, again=False)
        self.store.run(self.sessions.open("last", {}))
        for _ in range(400):
            self.time_passes()
            reply = self.turn("last", [], want=5, suspect=True, again=False)
            acks = [
                Ack(
                    run_id=run.envelope.id,
                    queue=QUEUE,
                    attempt=run.attempt,
                    fetched_ms=run.fetched_ms,
                    outcome=Outcome.OK,
                )
                for run in reply.runs
            ]
            assert self.turn("last", acks, want=0, suspect=False, again=False).stale == []
            self.ended += [ack.run_id for ack in acks]
            self.alive -= {ack.run_id for ack in acks}
            if not self.alive:
                break
        assert self.alive == set(), "never ran"
        assert len(self.ended) == len(set(self.ended)), "ended twice"
        history = self.store.run(self.queues.recent(QUEUE, 10_000))
        ok = [entry.run_id for entry in history if entry.outcome == "ok"]
        assert len(ok) == len(set(ok))


Life.TestCase.settings = settings(
    stateful_step_count=30,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


class TestLife(Life.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine under pytest."""
