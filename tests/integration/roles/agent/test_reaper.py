"""Giving runs back, on fakeredis and a real server: once, to the end, whoever helps."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.core.supervision.crash_blame import Death
from supervisor.core.supervision.scoreboard import Inflight, execution_hash
from supervisor.core.supervision.states import RunState
from supervisor.roles.agent.sessions.reaper import SWEEP_CALLS, Reaper
from supervisor.store.queues.runs import EndedRun, Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack
from tests.integration.roles.agent.test_agent_duties import LEASE_MS, Agent, live_for, pass_time
from tests.kit.clock import FakeClock
from tests.kit.servers import Server

SESSION = "r1/worker-cpu-0/1"


class Bench:
    """A reaper, and a session that holds runs."""

    def __init__(self, server: Server) -> None:
        self.store = server.store()
        self.queues, self.sessions = Queues(server.keys), Sessions(server.keys)
        self.told: list[dict[str, Any]] = []
        self.taken: dict[str, int] = {}  # what stands on the board for each run that was fetched
        self.reaper = Reaper(
            run=self.store.run,
            sessions=self.sessions,
            queues=self.queues,
            dead_cap=100,
            history=100,
            report=lambda event, **fields: self.told.append({"event": event, **fields}),
        )

    def hold(self, *run_ids: str, queue: str = "default", session: str = SESSION, seq: int = 1) -> None:
        template = Template(job="j", kind=Kind.SYNC, queue=queue)
        for start in range(0, len(run_ids), 200):
            envelopes = [Envelope(id=run_id, template=template) for run_id in run_ids[start : start + 200]]
            self.store.run(self.queues.enqueue(nonce=f"{queue}{start}", envelopes=envelopes))
            self.store.run(self.sessions.open(session, {}))
            call = self.queues.turn(
                session=session, seq=seq + start // 200, kind=Kind.SYNC, queues=[queue], want=200, want_suspect=False
            )
            runs = self.store.run(call).runs
            assert len(runs) == len(envelopes)
            self.taken |= {
                run.envelope.id: execution_hash((run.queue, run.envelope.id), run.fetched_ms) for run in runs
            }

    def fetch(self, session: str, *queues: str) -> list[str]:
        self.store.run(self.sessions.open(session, {}))
        call = self.queues.turn(session=session, seq=1, kind=Kind.SYNC, queues=queues, want=200, want_suspect=False)
        runs = self.store.run(call).runs
        self.taken |= {run.envelope.id: execution_hash((run.queue, run.envelope.id), run.fetched_ms) for run in runs}
        return [run.envelope.id for run in runs]

    def alone(self, session: str) -> list[str]:
        """Take a suspect and finish it; return what was taken, unfinished, if that is the poisonous one."""
        for seq in range(1, 9):
            call = self.queues.turn(
                session=session, seq=2 * seq, kind=Kind.SYNC, queues=["default"], want=1, want_suspect=True
            )
            runs = self.store.run(call).runs
            self.taken |= {
                run.envelope.id: execution_hash((run.queue, run.envelope.id), run.fetched_ms) for run in runs
            }
            taken = [run.envelope.id for run in runs]
            if not taken or "poison" in taken:
                return taken
            acks = [
                Ack(run_id=run.envelope.id, queue="default", attempt=1, outcome=Outcome.OK, fetched_ms=run.fetched_ms)
                for run in runs
            ]
            call = self.queues.turn(
                session=session,
                seq=2 * seq + 1,
                kind=Kind.SYNC,
                queues=["default"],
                want=0,
                want_suspect=False,
                acks=acks,
            )
            self.store.run(call)
        return []


def test_every_run_of_every_queue_goes_back(server: Server) -> None:
    """Page by page to the end: the first page is not all."""
    bench = Bench(server)
    bench.hold(*(f"a{i}" for i in range(650)))
    bench.hold("b", queue="other", seq=5)

    assert bench.reaper.reclaim(SESSION, death=Death.NODE_LOST)
    assert bench.told[-1]["runs"] == 651
    assert bench.store.run(bench.queues.counts("default")).running == 0
    assert bench.store.run(bench.queues.counts("other")).running == 0
    assert bench.store.run(bench.sessions.dying()) == []


def test_a_reclaimed_session_can_do_nothing_any_more(server: Server) -> None:
    """The process may be a zombie, or its last request late: it is told that it lost."""
    bench = Bench(server)
    bench.hold("a")
    bench.reaper.reclaim(SESSION, death=Death.NODE_LOST)
    call = bench.queues.turn(session=SESSION, seq=2, kind=Kind.SYNC, queues=["default"], want=9, want_suspect=False)

    assert bench.store.run(call).lost
    assert bench.fetch("r2/worker-cpu-0/1", "default") == ["a"]


def test_a_session_that_beat_meanwhile_is_left_alone(server: Server) -> None:
    """The watcher's counter is old: its owner is back."""
    bench = Bench(server)
    bench.hold("a")
    bench.store.run(bench.sessions.beat([SESSION]))

    assert not bench.reaper.reclaim(SESSION, death=Death.NODE_LOST, counter=0)
    assert bench.store.run(bench.queues.counts("default")).running == 1


def test_two_reapers_give_back_once(server: Server) -> None:
    """A foreign agent may finish what the owner's has begun."""
    bench = Bench(server)
    bench.hold("a")
    table = [Inflight(bench.taken["a"], 1, RunState.FETCHED, 0)]
    bench.reaper.reclaim(SESSION, death=Death.STOPPED, table=table)
    bench.reaper.reclaim(SESSION, death=Death.NODE_LOST)

    assert bench.fetch("r2/worker-cpu-0/1", "default") == ["a"]
    assert bench.fetch("r3/worker-cpu-0/1", "default") == []


def test_orphans_are_swept_and_others_are_not(server: Server) -> None:
    """Runs of open and of dying sessions have somebody who cares."""
    bench = Bench(server)
    bench.hold("held", session="open/worker-cpu-0/1", queue="q1")
    bench.hold("dying", session="dying/worker-cpu-0/1", queue="q2")
    bench.store.run(bench.sessions.condemn("dying/worker-cpu-0/1", None))
    bench.hold("orphan", session="ghost/worker-cpu-0/1", queue="q3")
    bench.store.run(bench.sessions.close("ghost/worker-cpu-0/1"))
    bench.reaper.sweep_orphans()

    assert bench.fetch("r2/worker-cpu-0/1", "q1", "q2", "q3") == ["orphan"]


def test_an_orphan_that_must_not_run_twice_is_reported(server: Server) -> None:
    """Nobody else would ever say that it was lost."""
    bench = Bench(server)
    template = Template(job="j", kind=Kind.SYNC, at_most_once=True)
    bench.store.run(bench.queues.enqueue(nonce="n", envelopes=[Envelope(id="once", template=template)]))
    assert bench.fetch("ghost/worker-cpu-0/1", "default") == ["once"]
    bench.store.run(bench.sessions.close("ghost/worker-cpu-0/1"))
    bench.reaper.sweep_orphans()

    assert bench.told[0]["runs"] == [EndedRun("default", "once", "lost", 1, "j", "")]


def sweep_in_three_slices(bench: Bench) -> None:
    """Sweep a whole round: it takes three slices, each of at most ``SWEEP_CALLS`` calls."""
    slices: list[bool] = []
    calls: list[int] = []
    bench.reaper.between = lambda: calls.append(len(slices))
    while not any(slices) and len(slices) < 9:
        slices.append(bench.reaper.sweep_orphans())

    assert slices == [False, False, True]
    assert max(calls.count(number) for number in range(3)) <= SWEEP_CALLS


def test_a_sweep_of_many_orphans_is_done_in_slices(server: Server) -> None:
    """Whoever may enqueue by Redis writes any number of entries there, and beats, commands and deaths here wait no longer."""
    bench = Bench(server)
    queue = server.keys.queue("default")
    bench.store.raw.sadd(server.keys.queues, "default")
    bench.store.raw.hset(queue.run, mapping={f"h{n}": f"ghost{n}|1|1" for n in range(250)})
    sweep_in_three_slices(bench)
    assert not bench.store.raw.exists(queue.run)


def test_a_sweep_of_many_refused_queues_is_done_in_slices(server: Server) -> None:
    """Each costs a call, although nothing of it can be read."""
    bench = Bench(server)
    names = [f"e{n}" for n in range(250)]
    bench.store.raw.sadd(server.keys.queues, *names)
    bench.store.raw.mset({server.keys.queue(name).run: "another program's" for name in names})
    sweep_in_three_slices(bench)
    assert sorted(each["queue"] for each in bench.told) == sorted(names)


def test_what_no_call_can_give_back_is_no_orphan(server: Server) -> None:
    """Each sweep would find it again, and say each time that it went back."""
    bench = Bench(server)
    bench.hold("a", session="ghost/worker-cpu-0/1")
    bench.store.run(bench.sessions.close("ghost/worker-cpu-0/1"))
    run = server.keys.queue("default").run
    bench.store.raw.hset(run, mapping={b"h": b"\xff|1|1", b"\xff": b"ghost/worker-cpu-0/1|1|1"})
    for _ in range(2):
        assert bench.reaper.sweep_orphans()

    assert [(each["session"], each["runs"]) for each in bench.told] == [("ghost/worker-cpu-0/1", 1)]
    assert bench.store.run(bench.queues.show("a")).state == "queued"


def test_an_orphan_that_another_agent_gave_back_is_not_reported(server: Server) -> None:
    """Every agent sweeps; what is counted are runs that went back."""
    bench, other = Bench(server), Bench(server)
    bench.hold("a", session="ghost/worker-cpu-0/1")
    bench.store.run(bench.sessions.close("ghost/worker-cpu-0/1"))
    calls: list[int] = []

    def between() -> None:
        calls.append(1)
        if len(calls) == 3:  # the queues and the orphans were read
            other.reaper.sweep_orphans()

    bench.reaper.between = between
    bench.reaper.sweep_orphans()

    assert [each["event"] for each in other.told] == ["session_reclaimed"]
    assert bench.told == []


def test_a_lost_replica_gives_its_runs_back_while_a_task_of_the_agent_takes_long(server: Server) -> None:
    """Beats of others are read also between the calls of a task: else a long one would make the agent forget their silence."""
    clock, raw = FakeClock(), server.raw()
    lost, other = Agent(server, "lost", clock), Agent(server, "other", clock)
    lost.hold("x")
    names = [f"e{n}" for n in range(150)]
    raw.sadd(server.keys.queues, *names)
    for name in names:
        raw.hset(server.keys.queue(name).run, "x", "y")  # goes by no call
    is_alive = [True]

    def run(call: Any, plain: Any = other.run) -> Any:
        if call.script == "held":
            clock.now_ns += 100_000_000
            if is_alive[0]:
                raw.hincrby(server.keys.sessions, lost.session, 1)
        return plain(call)

    other.run = run  # type: ignore[method-assign]
    other.restart()
    live_for(clock, [lost, other], 3 * LEASE_MS)
    assert "session_reclaimed" not in {each["event"] for each in other.told}
    is_alive[0] = False

    assert pass_time(clock, [other], lambda: lost.is_all_back(1), 4 * LEASE_MS) <= 3 * LEASE_MS


def test_a_run_that_took_its_process_down_too_often_is_dead_and_says_of_what(server: Server) -> None:
    """Whoever looks at it must not have to search the logs of the machine on which it died."""
    bench = Bench(server)
    template = Template(job="j", kind=Kind.SYNC, max_crashes=1)
    bench.store.run(bench.queues.enqueue(nonce="n", envelopes=[Envelope(id="poison", template=template)]))
    assert bench.fetch(SESSION, "default") == ["poison"]
    table = [Inflight(bench.taken["poison"], 1, RunState.STARTED, 0)]
    bench.reaper.reclaim(SESSION, death=Death.CRASHED, how="SIGSEGV", table=table)

    (dead,) = bench.store.run(bench.queues.dead("default"))
    assert (dead.error["reason"], dead.error["detail"], dead.crashes) == ("crashed", "SIGSEGV", 1)
    assert bench.store.run(bench.queues.recent("default"))[0].note == "reclaimed: SIGSEGV"
    assert [each["event"] for each in bench.told] == ["runs_ended", "session_reclaimed"]
    assert bench.told[0]["runs"] == [EndedRun("default", "poison", "crashed", 1, "j", "")]
    assert [each["how"] for each in bench.told] == ["SIGSEGV"] * 2


@pytest.mark.parametrize("stage", [None, *list(RunState)[1:]])
def test_a_run_that_ends_its_process_is_dead_after_a_bounded_number_of_deaths_whatever_its_stage(
    server: Server, stage: RunState | None
) -> None:
    """Read, prepared, executed or acknowledged: after one death in company it is alone, and each further one is charged."""
    bench = Bench(server)
    later = server.keys.queue("default").later
    bench.hold("poison", "one", "two", session="r1/worker-cpu-0/1")
    in_hands, deaths = ["poison", "one", "two"], 0
    while bench.store.run(bench.queues.show("poison")).state != "dead":
        deaths += 1
        table = [Inflight(bench.taken[run_id], 1, stage, 0) for run_id in in_hands if stage is not None]
        bench.reaper.reclaim(f"r1/worker-cpu-0/{deaths}", death=Death.CRASHED, table=table)
        if bench.store.raw.zscore(later, "poison"):
            bench.store.raw.zadd(later, {"poison": 1})  # its pause is over
        bench.store.run(bench.sessions.open(f"r1/worker-cpu-0/{deaths + 1}", {}))
        in_hands = bench.alone(f"r1/worker-cpu-0/{deaths + 1}")

    (dead,) = bench.store.run(bench.queues.dead("default"))
    assert (deaths, dead.error["reason"], dead.crashes) == (4, "crashed", 3)
    ended = [entry.run_id for entry in bench.store.run(bench.queues.recent("default")) if entry.outcome == "ok"]
    assert sorted(ended) == ["one", "two"]
