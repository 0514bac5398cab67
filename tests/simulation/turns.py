"""A world of workers: real async pools, real Lua, real agents' duties, and a network that does what the test says.

Every call of a worker has a position. At each, a ``Fault`` may happen: the request or its reply
is lost, it arrives late or twice, the process dies before or after it, or another replica takes
the session away. In the end each run must have completed once on record, nothing may be left of
any, and none may have been executed again while its session lived.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from supervisor.clock import Clock
from supervisor.core.effects import Call
from supervisor.core.errors import TenureError
from supervisor.core.jobs import registry as core_registry
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.retry import Retry
from supervisor.core.supervision.crash_blame import Death
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.roles.agent.maintenance import Duties
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.tasks import SessionTasks
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.polling.poll import SessionLostError
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.settings.sections.models import PoolSettings, Settings, WorkerKind
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.testing.scripting import QuickStore
from tests.simulation.turns_lane import Fault, Lane
from tests.simulation.turns_loop import Program, Timeline

CLUSTER, QUEUE = "turns", "default"
STEPS_MAX = 200_000
LIFE_S_MAX = 600.0
JOB_S = 0.004
MAX_CRASHES = 1000
Plan = Callable[[int], Fault]
S_NS = 1_000_000_000
AGENT_LOOK_S, AGENT_LOOKS = 11.0, 4


class TurnWorld:
    """Some workers of one replica on one server."""

    def __init__(self, plan: Plan, *, workers: int = 1, concurrency: int = 2) -> None:
        self.plan = plan
        self.time = Timeline()
        self.store = QuickStore()
        self.keys = Keys(CLUSTER)
        self.queues, self.sessions = Queues(self.keys), Sessions(self.keys)
        self.position = 0  # of the next call of a worker
        self.calls: list[Call[Any]] = []  # that were sent, for replaying them
        self.starts: list[tuple[str, int, int, str]] = []  # run, attempt, fence, session
        self.lost: set[str] = set()  # sessions whose process died or that were taken away
        self.expected: set[str] = set()
        self.is_closed = False  # nothing has an effect any more
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._registry = self._jobs()
        self._names = tuple(f"worker-sim-{number}" for number in range(workers))
        words = memoryview(bytearray(8 * board_words(slots=workers, inflight=256))).cast("Q")
        self.board = Board(words, slots=workers, inflight=256)
        self.board.header.phase = Phase.READY
        pool = PoolSettings(kind=WorkerKind.ASYNC, concurrency=concurrency)
        self._settings = Settings(cluster=CLUSTER, workers={"sim": pool})
        self._reaper = Reaper(
            run=self.store.run, sessions=self.sessions, queues=self.queues, dead_cap=1000, history=100_000,
            report=lambda *_, **__: None,
        )  # fmt: skip
        self.agent = Duties(SessionTasks(
            run=self.store.run, clock=self.time, workers=LocalWorkers(self.board, self._names, "r.000001"),
            sessions=self.sessions, reaper=self._reaper, registry=self._registry,
            beat_period_ns=3 * S_NS, session_lease_ns=15 * S_NS, report=lambda *_, **__: None,
        ))  # type: ignore[arg-type]  # fmt: skip
        self._workers: list[Worker] = [Worker(self, slot) for slot in range(workers)]

    def _jobs(self) -> Registry:
        registry = Registry()

        async def work(context: Context, failures: int, children: int) -> None:
            worker = next(each for each in self._workers if each.program.loop is asyncio.get_running_loop())
            self.starts.append((context.run_id, context.attempt, context.fence, worker.session))
            await asyncio.sleep(JOB_S)
            if context.attempt <= failures:
                raise ValueError("as it should")
            for number in range(children):
                context.spawn("child", key=number)

        async def child(context: Context) -> None:
            await work(context, 0, 0)

        with patch.object(core_registry, "registry", registry):
            job("work", retry=Retry(attempts=3, base_s=0), max_crashes=MAX_CRASHES)(work)
            job("child", max_crashes=MAX_CRASHES)(child)
        return registry

    def enqueue(self, count: int) -> None:
        """Enqueue runs: most are plain, one fails at first, one has a child, one is delayed."""
        envelopes, delays = [], []
        for number in range(count):
            args = {"failures": int(number % 7 == 1), "children": int(number % 7 == 2)}
            template = Template(
                job="work", kind=Kind.ASYNC, args=args, retry=Retry(attempts=3, base_s=0), max_crashes=MAX_CRASHES
            )
            envelopes.append(Envelope(id=f"w{number}", template=template))
            delays.append(30 * (number % 7 == 3))
            self.expected |= {f"w{number}"} | {f"w{number}/{child}" for child in range(args["children"])}
        self.store.run(self.queues.enqueue(nonce="all", envelopes=envelopes, delays_ms=delays))

    # What happens.

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen later, whoever lives then."""
        self._due.append((self.time.now_s + seconds, act))

    def run(self) -> None:
        """Let everybody work until every run has completed, then stop them."""
        for worker in self._workers:
            worker.start()
        stat = self.keys.queue(QUEUE).stat
        self._until(lambda: int(self.store.fields(stat).get(b"ok", 0)) >= len(self.expected))
        for worker in self._workers:
            worker.drain()
        self._until(lambda: all(worker.program.is_over and worker.is_drained for worker in self._workers))
        self._until(lambda: not self._due)

    def _until(self, is_so: Callable[[], bool]) -> None:
        end_s = self.time.now_s + LIFE_S_MAX
        for _ in range(STEPS_MAX):
            if is_so():
                return
            self._advance(end_s)
            for worker in self._workers:
                worker.tend()
        raise AssertionError("the workers turn and turn, and it does not end")

    def _advance(self, end_s: float) -> None:
        dues = [due_s for worker in self._workers if (due_s := worker.program.due_s()) is not None]
        dues += [due_s for due_s, _ in self._due]
        dues.append(self.agent.next_ns() / 1e9)
        self.time.now_s = max(self.time.now_s, min(dues))
        assert self.time.now_s < end_s, (
            f"not over after {LIFE_S_MAX:g} s: {sorted(self.expected - set(self.completions()))}"
        )
        now, self._due = (
            [each for each in self._due if each[0] <= self.time.now_s],
            [each for each in self._due if each[0] > self.time.now_s],
        )
        for _, act in now:
            act()
        if self.time.elapsed_ns() >= self.agent.next_ns():
            assert self.agent.perform()
        for worker in self._workers:
            if (due_s := worker.program.due_s()) is not None and due_s <= self.time.now_s:
                worker.program.loop.step()

    def execute(self, call: Call[Any]) -> Any:
        """Let a request arrive at the server."""
        self.calls.append(call)
        return self.store.run(call)

    def arrive_again(self, call: Call[Any]) -> None:
        """Let a request arrive whose reply nobody waits for."""
        with suppress(TenureError):
            self.store.run(call)

    def condemn(self, session: str) -> None:
        """Let another replica take a session away."""
        self.lost.add(session)
        self._reaper.reclaim(session, death=Death.NODE_LOST)

    def pass_time(self) -> None:
        """Let the agent do everything that it does now and then."""
        for _ in range(AGENT_LOOKS):
            self.time.now_s += AGENT_LOOK_S
            assert self.agent.perform()

    def child(self, slot: int) -> ChildContext:
        """Return the context of a worker's newest process."""
        clock: Clock = self.time
        return ChildContext(
            settings=self._settings, replica="r.000001", name=self._names[slot], slot=slot,
            generation=self.board.rows[slot].generation, board=self.board, slot_names=self._names,
            parent_pid=0, clock=clock, redis_url="", pool="sim",
        )  # fmt: skip

    def pool(self, child: ChildContext, store: Any) -> AsyncPool:
        """Return a worker's program."""
        return AsyncPool(WorkerRuntime(child, self._registry, uniform=lambda: 0.5), store)

    # What must be so.

    def completions(self) -> Counter[str]:
        """Return how often each run completed, by the record."""
        return Counter(each.run_id for each in self._record() if each.outcome == "ok")

    def _record(self) -> list[Any]:
        return self.store.run(self.queues.recent(QUEUE, 100_000))

    def prove(self) -> None:
        """Prove the promises, then send every request of the past once more, and prove them again."""
        self.pass_time()
        self._prove()
        for call in self.calls:
            self.arrive_again(call)
        self.pass_time()
        self._prove()

    def _prove(self) -> None:
        assert self.completions() == Counter(self.expected), "each completes once on record"
        outcomes = {each.outcome for each in self._record()}
        assert outcomes <= {"ok", "retry", "crashed", "interrupted"}, outcomes
        fences = Counter((run_id, fence) for run_id, _, fence, _ in self.starts)
        assert max(fences.values()) == 1, f"executed twice under one fence: {fences.most_common(1)}"
        lived = Counter((run_id, attempt) for run_id, attempt, _, session in self.starts if session not in self.lost)
        assert max(lived.values(), default=0) <= 1, (
            f"executed again, although its session lived: {lived.most_common(1)}"
        )
        keys = self.keys.queue(QUEUE)
        left = [
            key
            for key in (keys.data, keys.run, keys.att, keys.later, keys.dead, keys.err)
            if self.store.raw.exists(key)
        ]
        assert left == [], "nothing is left but history and counters"
        assert self.store.run(self.queues.fsck(QUEUE)) == []
        assert self.store.run(self.sessions.list()) == {}
        assert self.store.run(self.sessions.dying()) == []

    def close(self) -> None:
        """Throw every program away."""
        self.is_closed = True
        for worker in self._workers:
            for program in (*worker.graves, worker.program):
                program.bury()


class Worker:
    """One worker slot: a process, and its successors."""

    def __init__(self, world: TurnWorld, slot: int) -> None:
        self._world = world
        self._slot = slot
        self._row = world.board.rows[slot]
        self.session = ""
        self.is_drained = False
        self.program = Program(world.time)
        self._pool: AsyncPool | None = None
        self.graves: list[Program] = []

    def start(self) -> None:
        """Fork a process, as the parent does: the row first."""
        self.graves.append(self.program)
        self._row.generation += 1
        self._row.state = SlotState.RUNNING
        self._world.board.inflight[self._slot].clear_all()
        self.program = Program(self._world.time)
        child = self._world.child(self._slot)
        self.session = child.session
        events_loop = self.program.loop
        pool = self._pool = self._world.pool(child, Lane(self._world, self.session, self.program))
        if self.is_drained:
            events_loop.call_soon(pool.drain)
        self.program.start(pool.run())

    def drain(self) -> None:
        """Let it finish and leave."""
        self.is_drained = True
        assert self._pool is not None
        if not self.program.is_over:
            self.program.loop.call_soon(self._pool.drain)

    def tend(self) -> None:
        """Do what the parent and the agent do when the process is gone."""
        if not self.program.is_over or self._row.state == SlotState.STOPPED:
            return
        failure = self.program.failure
        assert failure is None or isinstance(failure, SessionLostError), failure
        self._row.state, self._row.ended_generation = SlotState.STOPPED, self._row.generation
        if failure is not None or self.program.is_killed:
            self._world.lost.add(self.session)
        self._world.agent._sessions.reclaiming.run(self._world.time.elapsed_ns())
        if not self.is_drained:
            self.start()
