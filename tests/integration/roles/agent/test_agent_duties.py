"""What agents do for sessions, on fakeredis and a real server, with clocks that the test drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.core.supervision.scoreboard import Board, board_words, execution_hash
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import ChildState, Phase, RunState, SlotState
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.maintenance import Duties
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.tasks import SessionTasks
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack
from tests.kit.clock import FakeClock
from tests.kit.servers import Server, on_both

LEASE_MS, BEAT_MS, TICK_MS = 15_000, 3_000, 100
NAMES = ("worker-cpu-0",)


class Killed(BaseException):
    """The agent died here."""


class Agent:
    """The duties of one replica's agent, whose worker's runs are at stake."""

    def __init__(self, server: Server, replica: str, clock: FakeClock) -> None:
        self.store = server.store()
        self.replica, self.clock = replica, clock
        self.queues, self.sessions = Queues(server.keys), Sessions(server.keys)
        self.board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=4))).cast("Q"), slots=1, inflight=4)
        self.board.header.phase = Phase.READY
        row = self.board.rows[0]
        row.state, row.generation, row.child_generation = SlotState.RUNNING, 1, 1
        self.session = f"{replica}/worker-cpu-0/1"
        self.calls_left: int | None = None  # it dies after so many calls
        self.loses_replies = False
        self.told: list[dict[str, Any]] = []
        self.restart()

    def restart(self, predecessor: str = "") -> None:
        """Start an agent that remembers nothing."""
        report = lambda event, **fields: self.told.append({"event": event, **fields})  # noqa: E731 - one expression
        reaper = Reaper(
            run=self.run, sessions=self.sessions, queues=self.queues, dead_cap=100, history=100, report=report
        )
        self.calls_left = None
        tasks = SessionTasks(
            run=self.run,
            clock=self.clock,
            workers=LocalWorkers(self.board, NAMES, self.replica),
            sessions=self.sessions,
            reaper=reaper,
            registry=Registry(),
            beat_period_ns=BEAT_MS * MILLISECOND_NS,
            session_lease_ns=LEASE_MS * MILLISECOND_NS,
            predecessor=predecessor,
            report=report,
        )
        self.duties = Duties(tasks)

    def run(self, call: Call[Any]) -> Any:
        """Send one call, unless the agent dies before it or Redis is away."""
        if self.calls_left == 0:
            raise Killed
        if self.calls_left is not None:
            self.calls_left -= 1
        if self.loses_replies:
            raise StoreUnavailableError("a test")
        return self.store.run(call)

    def hold(self, *run_ids: str) -> None:
        """Let the worker of this replica hold runs."""
        template = Template(job="j", kind=Kind.SYNC)
        envelopes = [Envelope(id=run_id, template=template) for run_id in run_ids]
        self.store.run(self.queues.enqueue(nonce=f"n-{run_ids}", envelopes=envelopes))
        self.store.run(self.sessions.open(self.session, {}))
        call = self.queues.turn(
            session=self.session, seq=1, kind=Kind.SYNC, queues=["default"], want=len(run_ids), want_suspect=False
        )
        assert len(self.store.run(call).runs) == len(run_ids)

    def worker_dies(self) -> None:
        """Let the parent have reaped it."""
        self.board.rows[0].state, self.board.rows[0].ended_generation = SlotState.BACKOFF, 1

    def beats(self) -> int:
        """Return the beat counter of the session."""
        return self.store.run(self.sessions.list())[self.session]

    def is_all_back(self, count: int) -> bool:
        """Whether every run may start again, and nothing is left of the session."""
        counts = self.store.run(self.queues.counts("default"))
        is_waiting = counts.ready_total + sum(counts.suspects.values()) == count
        is_forgotten = self.session not in self.store.run(self.sessions.list()) and not self.store.run(
            self.sessions.dying()
        )
        return is_waiting and counts.running == 0 and is_forgotten


def pass_time(clock: FakeClock, agents: list[Agent], until: Callable[[], bool], most_ms: int) -> int:
    """Let agents do their duties until something is so; return the milliseconds that took."""
    for passed_ms in range(0, most_ms + 1, TICK_MS):
        for agent in agents:
            if clock.now_ns >= agent.duties.next_ns():
                agent.duties.perform()
        if until():
            return passed_ms
        clock.now_ns += TICK_MS * MILLISECOND_NS
    pytest.fail(f"not so within {most_ms} ms")


def live_for(clock: FakeClock, agents: list[Agent], how_long_ms: int) -> None:
    """Let agents do their duties for a while."""
    until_ns = clock.now_ns + how_long_ms * MILLISECOND_NS
    pass_time(clock, agents, lambda: clock.now_ns >= until_ns, how_long_ms)


@pytest.mark.share(2)
@pytest.mark.parametrize("is_same_replica", [True, False])
def test_a_reaper_that_dies_at_any_step_is_followed_by_another(
    server: Server,
    *,
    is_same_replica: bool,
) -> None:
    """Kill -9 of the agent between any two of its calls costs time, never a run."""
    steps = 0
    while True:
        clock = FakeClock()
        dying, other = Agent(server, f"a{steps}", clock), Agent(server, f"b{steps}", clock)
        server.raw().flushall()
        dying.hold("x", "y", "z")
        dying.worker_dies()
        dying.calls_left = steps
        try:
            dying.duties._sessions.reclaiming.run(clock.now_ns)
        except Killed:
            dying.restart()
        else:
            break
        successors = [dying] if is_same_replica else [other]
        pass_time(clock, successors, lambda agent=dying: agent.is_all_back(3), 2 * LEASE_MS)
        steps += 1
    assert steps == 5, "condemn, executing, held, release, bury"
    assert dying.is_all_back(3)


def test_a_lost_replica_gives_its_runs_back_a_second_after_the_lease(server: Server) -> None:
    """Whatever the phases of the two replicas' periods; and never sooner than the lease after the last beat."""
    for phase_ms in range(0, BEAT_MS, 700):
        server.raw().flushall()
        clock = FakeClock()
        lost, other = Agent(server, f"l{phase_ms}", clock), Agent(server, f"o{phase_ms}", clock)
        lost.hold("x")
        live_for(clock, [other], phase_ms)
        live_for(clock, [lost, other], 2 * BEAT_MS)
        counter = lost.beats()
        pass_time(clock, [other, lost], lambda agent=lost, seen=counter: agent.beats() > seen, 2 * BEAT_MS)
        took_ms = pass_time(clock, [other], lambda agent=lost: agent.is_all_back(1), 3 * LEASE_MS)

        assert LEASE_MS <= took_ms <= LEASE_MS + 1000, f"{took_ms} ms at a phase of {phase_ms} ms"


def test_an_outage_of_any_length_reaps_nobody(server: Server) -> None:
    """Nobody could beat: the wait begins anew when Redis answers, and the replicas that live beat before it ends."""
    clock = FakeClock()
    one, two = Agent(server, "one", clock), Agent(server, "two", clock)
    one.hold("x")
    live_for(clock, [one, two], 12_000)
    for agent in (one, two):
        agent.loses_replies = True
    live_for(clock, [one, two], 60_000)
    two.loses_replies = False  # it is back first; the other one only just before the lease ends
    live_for(clock, [two], 14_000)
    one.loses_replies = False
    live_for(clock, [one, two], 60_000)

    assert one.session in one.store.run(one.sessions.list())
    assert not [each for each in (*one.told, *two.told) if each["event"] == "session_reclaimed"]


def test_a_replica_that_starts_again_gives_back_the_runs_of_its_former_life_within_three_beats(server: Server) -> None:
    """Each watcher counts anew: where the others die too, nobody would be seen silent for a lease."""
    clock = FakeClock()
    former, now = Agent(server, "one.a", clock), Agent(server, "one.b", clock)
    former.hold("x")
    now.restart(predecessor="one.a")

    assert pass_time(clock, [now], lambda: former.is_all_back(1), LEASE_MS) <= 3 * BEAT_MS


def test_a_run_that_blocks_its_loop_is_charged_and_not_those_whose_time_it_takes(server: Server) -> None:
    """Their deadline passes first, so the process is killed for them; the next time each of them is alone."""
    agent = Agent(server, "one", clock := FakeClock())
    template = Template(job="j", kind=Kind.SYNC, max_crashes=1)
    envelopes = [Envelope(id=run_id, template=template) for run_id in ("blocks", "brief")]
    agent.store.run(agent.queues.enqueue(nonce="n", envelopes=envelopes))
    row, table = agent.board.rows[0], agent.board.inflight[0]

    def turn(seq: int, *acks: Ack, want: int = 1) -> list[Any]:
        session, is_alone = f"one/worker-cpu-0/{row.generation}", row.generation > 1
        agent.store.run(agent.sessions.open(session, {}))
        call = agent.queues.turn(
            session=session, seq=seq, kind=Kind.SYNC, queues=["default"], want=want, want_suspect=is_alone, acks=acks
        )
        return list(agent.store.run(call).runs)

    def killed_at_a_deadline(*runs: Any) -> None:
        """Let the parent have killed the process for the first of these, when its loop had stood still for a second."""
        for index, run in enumerate(runs):
            execution = execution_hash((run.queue, run.envelope.id), run.fetched_ms)
            deadline_ns = clock.now_ns + index * 100 * SECOND_NS
            table.put(index, execution=execution, attempt=1, state=RunState.STARTED, deadline_ns=deadline_ns)
            row.turn_ms = run.fetched_ms
        row.cause, row.beat_ns = Cause.OVERRUN, clock.now_ns - SECOND_NS
        row.state, row.ended_generation = SlotState.BACKOFF, row.generation
        agent.duties._sessions.reclaiming.run(clock.now_ns)
        table.clear_all()
        row.state, row.generation, row.child_generation = SlotState.RUNNING, row.generation + 1, row.generation + 1

    killed_at_a_deadline(*reversed(turn(1, want=2)))
    (brief,) = turn(1)
    ack = Ack(run_id="brief", queue="default", attempt=1, outcome=Outcome.OK, fetched_ms=brief.fetched_ms)
    killed_at_a_deadline(*turn(2, ack))

    (dead,) = agent.store.run(agent.queues.dead("default"))
    assert (dead.run_id, dead.error["reason"], dead.error["detail"]) == (
        "blocks",
        "crashed",
        "killed at a hard timeout",
    )
    ends = {each.outcome for each in agent.store.run(agent.queues.recent("default")) if each.run_id == "brief"}
    assert "ok" in ends
    assert "crashed" not in ends


@on_both(
    "enqueue",
    "hash_read",
    "held",
    "queue_counts",
    "queues_bound",
    "queues_executing",
    "release_runs",
    "session_bury",
    "session_condemn",
    "session_open",
    "set_read",
    "turn",
)
def test_a_death_whose_reaping_redis_interrupted_is_charged_all_the_same(server: Server) -> None:
    """The board says how it died until its runs are back, whichever task comes first when Redis answers again."""
    clock = FakeClock()
    agent = Agent(server, "one", clock)
    agent.hold("x")
    agent.worker_dies()
    agent.calls_left = 2
    with pytest.raises(Killed):
        agent.duties._sessions.reclaiming.run(clock.now_ns)
    assert agent.store.run(agent.sessions.dying()) == [agent.session]
    agent.calls_left = None
    agent.duties._sessions.finishing.run(clock.now_ns)

    pass_time(clock, [agent], lambda: agent.is_all_back(1), LEASE_MS)

    assert [each["reasons"] for each in agent.told if each["event"] == "session_reclaimed"] == [{"crashed": 1}]


def test_what_comes_back_of_a_process_that_was_judged_is_not_charged(server: Server) -> None:
    """Redis went back to before its end was noted. How it died was known then, and is not any more."""
    clock = FakeClock()
    agent = Agent(server, "one", clock)
    agent.hold("x")
    agent.worker_dies()
    pass_time(clock, [agent], lambda: agent.is_all_back(1), LEASE_MS)
    server.raw().flushall()
    agent.hold("x")

    pass_time(clock, [agent], lambda: agent.is_all_back(1), LEASE_MS)

    reasons = [each["reasons"] for each in agent.told if each["event"] == "session_reclaimed"]
    assert reasons == [{"crashed": 1}, {"interrupted": 1}]


def test_a_frozen_agent_reaps_nobody_when_it_wakes(server: Server) -> None:
    """A machine that slept saw nothing meanwhile: its old readings prove nothing about the sessions of others."""
    clock = FakeClock()
    one, two = Agent(server, "one", clock), Agent(server, "two", clock)
    one.hold("x")
    live_for(clock, [one, two], 6_000)
    clock.now_ns += 3_600_000 * MILLISECOND_NS
    two.duties.perform()

    assert one.session in one.store.run(one.sessions.list())


def test_orphans_are_swept_within_half_a_minute(server: Server) -> None:
    """Whatever made them: a run of a session that is neither open nor dying is nobody's care but the sweep's."""
    clock = FakeClock()
    agent = Agent(server, "one", clock)
    agent.hold("x")
    live_for(clock, [agent], 1000)
    agent.worker_dies()
    agent.board.rows[0].reclaimed_generation = 1
    agent.store.run(agent.sessions.close(agent.session))

    assert pass_time(clock, [agent], lambda: agent.is_all_back(1), 40_000) <= 30_000
    assert agent.told[-1]["how"] == "no session held it"


def test_jobs_are_published_before_the_agent_is_ready_if_redis_answers(server: Server) -> None:
    """A program that waits for the tree enqueues at once, and is not told that nobody knows the job."""
    agent = Agent(server, "a", FakeClock())
    server.raw().flushall()
    agent.duties.publish({"mail.send": "{}"})
    agent.loses_replies = True
    agent.duties.publish_first()
    assert agent.store.run(agent.sessions.read_jobs()) == {}

    agent.loses_replies = False
    agent.duties.publish_first()

    assert set(agent.store.run(agent.sessions.read_jobs())) == {"mail.send"}


@pytest.mark.parametrize("state", [ChildState.READY, ChildState.DRAINING])
def test_the_session_of_a_worker_that_leaves_is_not_told_as_lost(server: Server, state: ChildState) -> None:
    """It ends its session by itself, a moment before its process is gone."""
    clock = FakeClock()
    agent = Agent(server, "leaves", clock)
    agent.hold("x")
    live_for(clock, [agent], 2 * BEAT_MS)
    agent.board.rows[0].child_state = state
    agent.store.run(agent.sessions.condemn(agent.session, None))
    live_for(clock, [agent], 2 * BEAT_MS)
    told = [each["session"] for each in agent.told if each["event"] == "session_lost"]
    assert told == ([] if state is ChildState.DRAINING else [agent.session])
