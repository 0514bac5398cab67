"""Keys of another type, one after the other: the duties that need no such key go on, within a second."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import redis

from supervisor.core.effects import Call
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.supervision.scoreboard import Board, board_words, execution_hash
from supervisor.core.supervision.states import RunState, SlotState
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.maintenance import REFUSED_NS, Duties
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.tasks import SessionTasks, Unwanted
from supervisor.store.client.preflight import note_cluster
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import CLUSTERS, Keys
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import HISTORY
from tests.integration.roles.agent.test_agent_duties import BEAT_MS, LEASE_MS, TICK_MS
from tests.kit.clock import FakeClock
from tests.kit.every_key import every_key
from tests.kit.servers import Server

LOST = "lost.1/worker-cpu-0/1"
NEEDS = {
    "sessions": {"beaten", "reaped", "unwanted"},
    "dying": {"reaped"},
    "queues": {"reaped", "unwanted"},
    "turns": {"reaped"},
    "jobs": {"published"},
}
"""What cannot go on without a key; whatever is not named here goes on without any other."""

EVERYTHING = {"beaten", "reaped", "unwanted", "published"}


class Replica:
    """The duties of an agent beside a machine that is lost, and a run of its own that somebody cancelled."""

    def __init__(self, store: Store, keys: Keys, raw: redis.Redis | None = None) -> None:
        self.store, self.keys, self.clock = store, keys, FakeClock()
        self.raw = raw or store.raw  # for looks at what was done
        self.queues, self.sessions = Queues(keys), Sessions(keys)
        self.board = Board(memoryview(bytearray(8 * board_words(slots=2, inflight=4))).cast("Q"), slots=2, inflight=4)
        row = self.board.rows[1]
        row.state, row.generation, row.child_generation, row.busy = SlotState.RUNNING, 1, 1, 1
        self.session = "one/worker-cpu-0/1"
        self.asked: list[str] = []
        self.send: Callable[[Call[Any]], Any] = self.store.run
        self.told: list[dict[str, Any]] = []
        report = lambda event, **fields: self.told.append({"event": event, **fields})  # noqa: E731 - one expression
        workers = LocalWorkers(self.board, ["agent", "worker-cpu-0"], "one")
        tasks = SessionTasks(
            run=self.run,
            clock=self.clock,
            workers=workers,
            sessions=self.sessions,
            reaper=Reaper(
                run=self.run, sessions=self.sessions, queues=self.queues, dead_cap=100, history=100, report=report
            ),
            registry=Registry(),
            note_cluster=lambda: note_cluster(store, keys.cluster, 1),
            beat_period_ns=BEAT_MS * MILLISECOND_NS,
            session_lease_ns=LEASE_MS * MILLISECOND_NS,
            report=report,
        )
        unwanted = Unwanted(
            call=self.run,
            queues=self.queues,
            workers=workers,
            row=self.board.rows[0],
            wake_parent=lambda: None,
            exclusive=(),
            report=report,
            history=HISTORY,
        )
        self.duties = Duties(tasks, [unwanted])
        self.duties.publish({"tests.card": "{}"})

    def run(self, call: Call[Any]) -> Any:
        """Send one call."""
        self.asked.append(call.script)
        return self.send(call)

    def hold(self, session: str, run_id: str, queue: str = "default") -> None:
        """Let ``session`` execute a run."""
        envelope = Envelope(id=run_id, template=Template(job="j", kind=Kind.SYNC, queue=queue))
        self.store.run(self.queues.enqueue(nonce=f"n-{run_id}", envelopes=[envelope]))
        self.store.run(self.sessions.open(session, {}))
        turn = self.queues.turn(session=session, seq=1, kind=Kind.SYNC, queues=[queue], want=1, want_suspect=False)
        (run,) = self.store.run(turn).runs
        if session == self.session:
            mine = execution_hash((queue, run_id), run.fetched_ms)
            self.board.inflight[1].put(0, execution=mine, attempt=1, state=RunState.STARTED)

    def live_for(self, how_long_ms: int) -> None:
        """Let it do its duties for a while."""
        until_ns = self.clock.now_ns + how_long_ms * MILLISECOND_NS
        while self.clock.now_ns < until_ns:
            if self.clock.now_ns >= self.duties.next_ns():
                self.duties.perform()
            self.clock.now_ns += TICK_MS * MILLISECOND_NS

    def done(self) -> set[str]:
        """Return what its duties brought about."""
        raw = self.raw
        found = {"beaten"} if self.asked.count("session_beat") >= LEASE_MS // BEAT_MS else set()
        if raw.type(self.keys.sessions) == b"hash":
            found = found if int(raw.hget(self.keys.sessions, self.session) or 0) >= LEASE_MS // BEAT_MS else set()
            found |= set() if raw.hexists(self.keys.sessions, LOST) else {"reaped"}
        if raw.hget(self.keys.queue("default").run, "theirs"):
            found.discard("reaped")
        if any(each["event"] == "run_unwanted" for each in self.told):
            found.add("unwanted")
        if raw.type(self.keys.jobs) == b"hash" and raw.hexists(self.keys.jobs, "tests.card"):
            found.add("published")
        return found


def spoil(replica: Replica, key: str) -> None:
    """Put another program's key in place of ``key``."""
    replica.store.raw.delete(key)
    replica.store.raw.set(key, "another program's")


@pytest.mark.share(3)
@pytest.mark.parametrize("part", range(3))
def test_a_foreign_key_stops_no_duty_that_does_not_need_it(server: Server, part: int) -> None:
    """Every key that the project spells, in turn: beats, reaping, cancels and publishing go on all the same."""
    missing = {}
    for name, key in [*every_key(server.keys).items(), ("clusters", CLUSTERS)][part::3]:
        server.raw().flushall()
        replica = Replica(server.store(), server.keys)
        replica.hold(replica.session, "mine")
        replica.hold(LOST, "theirs")
        replica.store.raw.sadd(server.keys.queues, "broken")
        replica.store.run(QueueControl(server.keys).cancel([("default", "mine")]))
        spoil(replica, key)
        replica.live_for(LEASE_MS + 2 * BEAT_MS)
        lacking = EVERYTHING - NEEDS.get(name, set()) - replica.done()
        if lacking:
            missing[name] = lacking

    assert missing == {}


def test_a_broken_queue_keeps_a_dead_workers_other_runs_from_nobody(server: Server) -> None:
    """What it held elsewhere goes back at once; the broken queue follows when its key is mended, and is told once."""
    replica = Replica(server.store(), server.keys)
    replica.hold(replica.session, "mine")
    raw = replica.store.raw
    raw.sadd(server.keys.queues, "broken")
    raw.set(server.keys.queue("broken").run, "another program's")
    replica.board.rows[1].state, replica.board.rows[1].ended_generation = SlotState.BACKOFF, 1
    replica.live_for(1000)
    assert replica.store.run(replica.queues.counts("default")).suspects[Kind.SYNC] == 1
    assert replica.board.rows[1].reclaimed_generation == 1
    assert sum(each["is_new"] for each in replica.told if each["event"] == "queue_refused") == 1
    assert replica.store.run(replica.sessions.dying()) == [replica.session]
    raw.delete(server.keys.queue("broken").run)
    replica.live_for(11_000)

    assert replica.store.run(replica.sessions.dying()) == []


def test_beats_go_on_while_hundreds_of_lost_sessions_are_reclaimed(server: Server) -> None:
    """A lost rack on a slow link: an agent that is busy for minutes still beats for its own workers."""
    replica = Replica(server.store(), server.keys)
    replica.hold(replica.session, "mine")
    lost = [f"lost.{n}/worker-cpu-0/1" for n in range(300)]
    for session in lost:
        replica.store.run(replica.sessions.open(session, {}))
    beats_ns: list[int] = []

    def slow(call: Call[Any]) -> Any:
        replica.clock.now_ns += 20 * MILLISECOND_NS
        if call.script == "session_beat":
            beats_ns.append(replica.clock.now_ns)
        return replica.store.run(call)

    replica.send = slow
    replica.live_for(60_000)

    assert not set(lost) & set(replica.store.run(replica.sessions.list()))
    assert max(after - at for at, after in pairwise(beats_ns)) < LEASE_MS * MILLISECOND_NS // 3


def test_a_full_memory_stops_no_duty_but_the_one_that_needs_some(server: Server) -> None:
    """Publishing jobs is refused, once told; meanwhile lost machines are found, and their runs free memory."""
    if not server.is_real:
        return  # fakeredis has no memory limit
    replica = Replica(server.store(), server.keys)
    replica.hold(replica.session, "mine")
    replica.hold(LOST, "theirs")
    replica.store.run(QueueControl(server.keys).cancel([("default", "mine")]))
    replica.store.raw.config_set("maxmemory", 1)
    try:
        replica.live_for(LEASE_MS + 2 * BEAT_MS)
        assert replica.done() == EVERYTHING - {"published"}
    finally:
        replica.store.raw.config_set("maxmemory", 0)
    refused = [each for each in replica.told if each["event"] == "duty_refused"]
    assert {each["duty"] for each in refused} == {"publish"}
    assert [each["is_new"] for each in refused].count(True) == 1
    replica.live_for(2 * REFUSED_NS // MILLISECOND_NS)
    assert "published" in replica.done()


@pytest.mark.parametrize("name", ["", "a b", "x:y", "{z}"])
def test_a_queue_name_that_nobody_can_have_written_is_passed_over(server: Server, name: str) -> None:
    """Another program's member in the set of queues must not end the agent."""
    replica = Replica(server.store(), server.keys)
    replica.store.raw.sadd(server.keys.queues, name)
    replica.store.raw.hset(f"{server.keys.prefix}q:{name}:run", "a", "b|1|2")
    replica.live_for(31_000)

    assert not [each for each in replica.told if each["event"] in {"duty_refused", "queue_refused"}]


@pytest.mark.parametrize("beats", [b"", b"rubbish", b"-1", b"007", b"1e300", b"9" * 16, b"9" * 400])
def test_a_beat_counter_that_nobody_wrote_keeps_no_runs_of_a_lost_machine(server: Server, beats: bytes) -> None:
    """It reads as 0 for whoever watches it; the script that compares it once more must read it as the same."""
    replica = Replica(server.store(), server.keys)
    replica.hold(LOST, "theirs")
    replica.store.raw.hset(server.keys.sessions, LOST, beats)
    replica.live_for(2 * LEASE_MS)
    assert replica.store.raw.hget(server.keys.queue("default").run, "theirs") is None
    assert replica.asked.count("session_condemn") == 1


@pytest.mark.parametrize(
    "fence", [b"|1|1", b"gone/w-0/1|1|" + b"9" * 5000, b"gone/w-0/1|" + b"9" * 400 + b"|1", b"rubbish"]
)
def test_a_fence_that_nobody_wrote_keeps_no_other_run_of_its_queue(server: Server, fence: bytes) -> None:
    """The page that it was read with was refused as a whole, or its session could not be asked about."""
    replica = Replica(server.store(), server.keys)
    replica.hold("gone/w-0/1", "theirs")
    replica.store.raw.hdel(server.keys.sessions, "gone/w-0/1")  # an orphan: nobody else gives it back
    replica.store.raw.hset(server.keys.queue("default").run, "spoilt", fence)
    replica.live_for(60_000)

    assert not replica.store.raw.hexists(server.keys.queue("default").run, "theirs")
    assert not any(each["event"] == "queue_refused" for each in replica.told)


def test_a_session_whose_name_is_no_text_is_passed_over(server: Server) -> None:
    """No call could name it: it was asked about every 50 ms, and every dying one was another session."""
    replica = Replica(server.store(), server.keys)
    replica.store.raw.hset(server.keys.sessions, b"\xff", "0")
    replica.store.raw.sadd(server.keys.dying, b"\xff")
    replica.live_for(2 * LEASE_MS)
    assert "session_condemn" not in replica.asked
    assert replica.asked.count("hash_read") <= 2 * LEASE_MS // BEAT_MS + 1
