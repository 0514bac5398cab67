"""Runtime of one worker process, whatever its kind: its parts, its session in Redis, its polls."""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import structlog

from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind, Release
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.attempt.executor import Executor
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.roles.worker.polling.bells import BellListener
from supervisor.roles.worker.polling.poll import PollSession, SessionLostError, SuspectLane
from supervisor.roles.worker.polling.turn_timeout import TurnTimeout
from supervisor.roles.worker.process.heartbeat import Outage, RecyclingLimits, StoreError, WorkerHeartbeat
from supervisor.roles.worker.run_logs import OutputKeeping
from supervisor.roles.worker.run_reporting import ForeignKeyReporter
from supervisor.settings.sections.models import PoolSettings
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Queues, only
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack, FetchedRun, TurnReply
from supervisor.telemetry import metrics
from supervisor.version import __version__

log = structlog.get_logger("tenure.worker")


class WorkerRuntime:
    """Parts of one worker process, built after its fork, and its conversation with Redis.

    Sans I/O: the pools make the calls. They hold the parts that they use by themselves.
    """

    def __init__(
        self,
        child: ChildContext,
        registry: Registry,
        producer: Producer | None = None,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        """Build it.

        Args:
            child: of the process.
            registry: the jobs of the program.
            producer: enqueues what jobs ask for; None: they cannot.
            uniform: draws jitter, from [0, 1).
        """
        assert child.pool is not None
        pool = child.settings.workers[child.pool]
        keys = Keys(child.settings.cluster)
        clock = child.clock
        self._session = child.session
        self._sessions = Sessions(keys)
        self._info = _info(child, pool)
        self.kind = kind = Kind(pool.kind.value)
        self.concurrency = pool.concurrency if kind is Kind.ASYNC else 1
        self.queue_names = pool.queues
        self.bells = tuple(keys.queue(name).bell(kind) for name in pool.queues)
        self.prefetch = pool.prefetch
        """Sync pools: the most runs that may be here."""
        self.shares = {
            queue: max(1, int(share * pool.concurrency)) for queue, share in pool.max_share.items() if share < 1
        }
        """The most runs of a queue that may be here at once, for queues that have such a limit."""
        self.limits = limits = child.settings.queues
        self.clock = clock
        self.queues = Queues(keys)
        self.presence = WorkerHeartbeat(child)
        self._pipeline = pipeline = Pipeline(child.settings, clock, kind)
        self.calling = JobInvoker(
            kind=kind, clock=clock, producer=producer, on_ill=self.presence.resources, pipeline=pipeline
        )
        self.outputs = OutputKeeping(child.settings.log.runs, worker=child.session, clock=clock, runner=producer)
        self.executor = Executor(
            kind=kind, registry=registry, worker=child.session, clock=clock, uniform=uniform, producer=producer,
            calling=self.calling, outputs=self.outputs,
        )  # fmt: skip
        self.polls = PollSession(
            self.queues, session=child.session, kind=kind, queue_names=pool.queues, history=limits.history,
            dead_cap=limits.dead,
        )  # fmt: skip
        self.outage = Outage(clock, uniform)
        self.turn_timeout = TurnTimeout(child.settings)
        self.suspects = SuspectLane(child, clock, uniform, slots=self.concurrency)
        self._recycling = RecyclingLimits(pool, presence=self.presence, clock=clock, uniform=uniform)
        self._foreign_keys = ForeignKeyReporter(keys, pool.queues)
        self.listener = BellListener(clock, self._foreign_keys.failed)
        self._asked_ns = 0  # when the poll was sent whose reply comes next
        self._confirmed_ns = 0  # when the last poll was sent that Redis answered: then this session was open
        self._unreported: list[tuple[list[Ack], TurnReply]] = []  # settled acknowledgements, and what settled them

    def open_session(self) -> Call[bool]:
        """Return the call that makes Redis accept turns of this session; its reply goes to ``opened``."""
        self.presence.asks()
        return self._sessions.open(self._session, self._info)

    def opened(self, reply: bool) -> None:  # noqa: FBT001 - the reply is one
        """Take note of the reply to ``open_session``.

        Raises:
            SessionLostError: the session was condemned before it opened.
        """
        if not reply:
            raise SessionLostError(self._session)
        self.presence.redis_answered()
        self.outage.answered()

    def close_session(self) -> Call[None]:
        """Return the call that ends this session when it holds nothing."""
        return self._sessions.close(self._session)

    def leave(
        self, interrupted: Sequence[FetchedRun], *, is_empty: Callable[[], bool] = lambda: True
    ) -> Generator[Call[Any], Any, None]:
        """Yield the last calls of a process that must go; each is sent its reply.

        Args:
            interrupted: runs that the stop cut off, also those that end meanwhile. They go to the head of their queues,
                no attempt charged. Where nobody asked for it, one of them may have: they stay in the session; the agent
                decides whom to blame.
            is_empty: returns whether nothing is executed any more, so that the session can end.
        """
        self.polls.send_refused()
        handed = 0
        while self.polls.has_work or handed < len(interrupted):
            if self.polls.has_work:
                for fetched in self.settle((yield self.next_poll(want=0))):
                    self.polls.acknowledge(self.executor.refusals.give_back(fetched))
                continue
            if not self.presence.was_asked:
                return
            batch, handed = interrupted[handed:], len(interrupted)
            items = [(run.queue, run.envelope.id, only(Release.INTERRUPTED, run)) for run in batch]
            released = yield self.queues.release_runs(
                session=self._session, items=items, history=self.limits.history, dead_cap=self.limits.dead
            )
            of = {(run.queue, run.envelope.id): run for run in batch}
            for each in released.ended:
                fetched = of[each.queue, each.run_id]
                label = metrics.job_label(fetched.envelope.template.job, self.executor.registry)
                now_ns = self.clock.elapsed_ns()
                self.executor.ends.ended_by_stop(fetched, each.outcome, now_ns, each.reason, label=label)
            for run in batch:
                self.presence.settled((run.queue, run.envelope.id), run.attempt, run.fetched_ms)
        if is_empty() and not self.polls.refused_acks:
            yield self.close_session()

    def may_start(self) -> bool:
        """Return whether the fetched runs are still certainly ours.

        A process that was stopped for longer than the session lease may have been given up meanwhile. Runs it
        has not begun it then gives back, in a turn whose reply shows the state.
        """
        return self.clock.elapsed_ns() - self._confirmed_ns < self.limits.session_lease_s * SECOND_NS

    def next_poll(
        self, *, want: int, want_suspect: bool = False, here: Callable[[], Counter[str]] = Counter
    ) -> Call[TurnReply]:
        """Return the poll to send now; its reply goes to ``settle``.

        Args:
            want: how many runs to ask for.
            want_suspect: whether a suspect may come in place of all others.
            here: returns how many runs of each queue are here; asked only where queues have shares.
        """
        self.flush()
        self._report()
        if self.polls.refused_acks.is_due(self.clock.elapsed_ns()):
            self.polls.send_refused()
        shares = None
        if self.shares and want > 0:
            taken = here()
            shares = {queue: max(0, most - taken[queue]) for queue, most in self.shares.items()}
        call = self.polls.call(want=want, want_suspect=want_suspect, room=self.presence.room, shares=shares)
        self._asked_ns = self.clock.elapsed_ns()
        self.presence.asks()
        return call

    def settle(self, reply: TurnReply) -> list[FetchedRun]:
        """Close the open poll with ``reply``; return the runs it brought, noted as fetched.

        One of which an earlier execution is still here goes back for a moment, and is not among them. One whose id lies
        in a list more than once comes as often, and counts once.

        Raises:
            SessionLostError: the session was condemned.
        """
        self._confirmed_ns = self._asked_ns
        took_s = (self.clock.elapsed_ns() - self._asked_ns) / SECOND_NS
        metrics.TURN_SECONDS.observe(took_s)
        self.turn_timeout.answered(took_s)
        self.outage.answered()
        self.settled(reply)
        self._report()
        arrived = []
        for fetched in reply.runs:
            execution = (fetched.queue, fetched.envelope.id), fetched.attempt, fetched.fetched_ms
            if self.presence.has(*execution):
                continue
            if self.presence.fetched(*execution):
                arrived.append(fetched)
            else:
                self.polls.acknowledge(self.executor.refusals.put_off(fetched))
        for broken in reply.broken:
            execution = (broken.queue, broken.run_id), broken.attempt, broken.fetched_ms
            if not self.presence.has(*execution):
                self.presence.fetched(*execution)
                self.polls.acknowledge(self.executor.refusals.bury(broken))
        return arrived

    def unanswered(self, error: StoreError) -> float:
        """Count a poll without an answer; return the seconds to wait before it is sent again.

        Raises:
            SessionLostError: it would be refused for ever.
        """
        self.polls.refused(error)
        if isinstance(error, StoreUnavailableError):
            self.turn_timeout.unanswered((self.clock.elapsed_ns() - self._asked_ns) / SECOND_NS)
        return self.outage.failed("turn", error)

    def settled(self, reply: TurnReply) -> None:
        """Close the open poll; for one that fetched nothing, all of it. Its reports come later.

        Raises:
            SessionLostError: the session was condemned.
        """
        acks = self.polls.answered(reply)
        for ack in acks:
            self.presence.settled((ack.queue, ack.run_id), ack.attempt, ack.fetched_ms)
        self.polls.refused_acks.answered(reply, self.clock.elapsed_ns())
        self.presence.turned(reply.now_ms)
        self._unreported.append((acks, reply))

    def _report(self) -> None:
        while self._unreported:
            acks, reply = self._unreported.pop()
            for ack in acks:
                for child in ack.children if ack.run_id not in reply.stale else ():
                    metrics.ENQUEUED.labels(child.packed.queue, child.job).inc()
            if reply.stale:
                # Somebody else has these runs by now: this process was taken for dead while it worked.
                metrics.ACKS_STALE.inc(len(reply.stale))
                log.warning("acks_stale", runs=reply.stale)
            self._foreign_keys.report(reply, self.clock.elapsed_ns())

    def tick(self) -> None:
        """Follow the limits of this process: it asks for its successor once it has reached one, or hooks hang."""
        self._recycling.tick(self.clock.elapsed_ns(), is_stuck=bool(self._pipeline.late) and self._pipeline.is_stuck)

    def flush(self, *, is_last: bool = False) -> None:
        """Write numbers and log lines of runs that have ended; with ``is_last`` those of the present second too."""
        self.executor.ends.flush(self.clock.elapsed_ns(), is_last=is_last)

    def close(self) -> None:
        """Close what jobs of a sync pool opened, and write the last numbers."""
        self.calling.close(self.presence.closing_s)
        self.outputs.close()
        self.flush(is_last=True)

    async def close_async(self) -> None:
        """Close what jobs of an async pool opened, and write the last numbers."""
        await self.calling.close_async(self.presence.closing_s)
        self.outputs.close()
        self.flush(is_last=True)


def _info(child: ChildContext, pool: PoolSettings) -> dict[str, Any]:
    """Return the description of a worker, as other replicas see it."""
    return {
        "replica": child.replica,
        "slot": child.name,
        "pool": child.pool,
        "kind": pool.kind.value,
        "queues": ",".join(pool.queues),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "started_ms": child.clock.wall_ms(),
    }
