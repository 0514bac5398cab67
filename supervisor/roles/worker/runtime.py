"""Everything that one worker process works with, whatever its kind."""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from supervisor.clock import Clock
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind, Release
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import Seat
from supervisor.roles.worker.attempt.executor import Executor
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import Calling
from supervisor.roles.worker.polling.poll import SessionLostError, Turns
from supervisor.roles.worker.polling.quarantine import SuspectLane
from supervisor.roles.worker.process.heartbeat import Presence
from supervisor.roles.worker.process.recycling import Recycling
from supervisor.roles.worker.process.redis_backoff import Outage
from supervisor.settings.sections.queues import QueueSettings
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Ack, FetchedRun, Queues, TurnReply, only
from supervisor.store.queues.sessions import Sessions
from supervisor.store.scripts import Call
from supervisor.telemetry import metrics
from supervisor.version import __version__

log = structlog.get_logger("tenure.worker")


@dataclass(slots=True)
class Workplace:
    """The parts of one worker process, built after its fork."""

    session: str
    kind: Kind
    concurrency: int
    queue_names: tuple[str, ...]
    bells: tuple[str, ...]
    clock: Clock
    uniform: Callable[[], float]
    presence: Presence
    executor: Executor
    calling: Calling
    turns: Turns
    queues: Queues
    sessions: Sessions
    outage: Outage
    recycling: Recycling
    suspects: SuspectLane
    info: dict[str, Any]
    limits: QueueSettings
    confirmed_ns: int = 0
    """When the last turn was asked that Redis answered: then this session was open."""

    unreported: list[tuple[list[Ack], list[str]]] = field(default_factory=list)
    """What turns settled, with the ids that were stale, and nobody was told of yet."""

    prefetch: int = 1
    """Sync pools: the most runs that may be here."""

    shares: dict[str, int] = field(default_factory=dict)
    """The most runs of a queue that may be here at once, for queues that have such a limit."""

    def open_session(self) -> Call[bool]:
        """Return the call that makes Redis accept turns of this session; its reply goes to ``opened``."""
        self.presence.asks()
        return self.sessions.open(self.session, self.info)

    def opened(self, reply: bool) -> None:  # noqa: FBT001 - the reply is one
        """Take note of the reply to ``open_session``.

        Raises:
            SessionLostError: the session was condemned before it opened.
        """
        if not reply:
            raise SessionLostError(self.session)
        self.presence.redis_answered()
        self.outage.answered()

    def close_session(self) -> Call[None]:
        """Return the call that ends this session when it holds nothing."""
        return self.sessions.close(self.session)

    def hand_back(self, runs: Sequence[FetchedRun]) -> Call[int]:
        """Return the call that gives back runs that a stop cut off: to the head of its queue, no attempt charged."""
        items = [(fetched.queue, fetched.envelope.id, only(Release.INTERRUPTED, fetched)) for fetched in runs]
        return self.queues.release_runs(
            session=self.session, items=items, history=self.limits.history, dead_cap=self.limits.dead
        )

    def handed_back(self, runs: Sequence[FetchedRun]) -> None:
        """Note that ``hand_back`` was answered."""
        for fetched in runs:
            self.presence.settled((fetched.queue, fetched.envelope.id), fetched.attempt, fetched.fetched_ms)

    def may_start(self) -> bool:
        """Return whether the fetched runs are still certainly ours.

        A process that was stopped for longer than the session lease may have been given up meanwhile. Runs it
        has not begun it then gives back, in a turn whose reply shows the state.
        """
        return self.clock.elapsed_ns() - self.confirmed_ns < self.limits.session_lease_s * SECOND_NS

    def ask(
        self, *, want: int, want_suspect: bool = False, here: Callable[[], Counter[str]] = Counter
    ) -> Call[TurnReply]:
        """Return the turn to send now.

        Args:
            want: how many runs to ask for.
            want_suspect: whether a suspect may come in place of all others.
            here: returns how many runs of each queue are here; asked only where queues have shares.
        """
        self.executor.ends.flush(self.clock.elapsed_ns())
        self._report()
        shares = None
        if self.shares and want > 0:
            taken = here()
            shares = {queue: max(0, most - taken[queue]) for queue, most in self.shares.items()}
        return self.turns.call(want=want, want_suspect=want_suspect, room=self.presence.room, shares=shares)

    def settle(self, reply: TurnReply, *, asked_ns: int) -> list[FetchedRun]:
        """Close the open turn with ``reply``; return the runs it brought, noted as fetched.

        One of which an earlier execution is still here goes back for a moment, and is not among them.

        Raises:
            SessionLostError: the session was condemned.
        """
        self.confirmed_ns = asked_ns
        metrics.TURN_SECONDS.observe((self.clock.elapsed_ns() - asked_ns) / SECOND_NS)
        self.presence.redis_answered()
        self.outage.answered()
        self.settled(reply)
        self._report()
        arrived = []
        for fetched in reply.runs:
            if self.presence.fetched((fetched.queue, fetched.envelope.id), fetched.attempt, fetched.fetched_ms):
                arrived.append(fetched)
            else:
                self.turns.acknowledge(self.executor.put_off(fetched))
        for broken in reply.broken:
            self.presence.fetched((broken.queue, broken.run_id), broken.attempt, broken.fetched_ms)
            self.turns.acknowledge(self.executor.bury(broken))
        return arrived

    def settled(self, reply: TurnReply) -> None:
        """Close the open turn; for one that fetched nothing, all of it. Its reports come later.

        Raises:
            SessionLostError: the session was condemned.
        """
        acks = self.turns.answered(reply)
        for ack in acks:
            self.presence.settled((ack.queue, ack.run_id), ack.attempt, ack.fetched_ms)
        self.unreported.append((acks, reply.stale))

    def _report(self) -> None:
        while self.unreported:
            acks, stale = self.unreported.pop()
            for ack in acks:
                for child in ack.children if ack.run_id not in stale else ():
                    metrics.ENQUEUED.labels(child.packed.queue, child.job).inc()
            if stale:
                # Somebody else has these runs by now: this process was taken for dead while it worked.
                metrics.ACKS_STALE.inc(len(stale))
                log.warning("acks_stale", runs=stale)


def furnish(
    seat: Seat, registry: Registry, producer: Producer | None = None, uniform: Callable[[], float] = random.random
) -> Workplace:
    """Return the workplace of ``seat``."""
    assert seat.pool is not None
    pool = seat.settings.workers[seat.pool]
    keys = Keys(seat.settings.cluster)
    kind = Kind(pool.kind.value)
    queues = Queues(keys)
    limits = seat.settings.queues
    presence = Presence(seat)
    pipeline = Pipeline(seat.settings, seat.clock, kind)
    calling = Calling(kind=kind, clock=seat.clock, producer=producer, on_ill=presence.resources, pipeline=pipeline)
    return Workplace(
        session=seat.session,
        kind=kind,
        concurrency=pool.concurrency if kind is Kind.ASYNC else 1,
        queue_names=pool.queues,
        bells=tuple(keys.queue(name).bell(kind) for name in pool.queues),
        clock=seat.clock,
        uniform=uniform,
        presence=presence,
        executor=Executor(
            kind=kind,
            registry=registry,
            worker=seat.session,
            clock=seat.clock,
            uniform=uniform,
            producer=producer,
            calling=calling,
        ),
        calling=calling,
        turns=Turns(
            queues,
            session=seat.session,
            kind=kind,
            queue_names=pool.queues,
            history=limits.history,
            dead_cap=limits.dead,
        ),
        queues=queues,
        sessions=Sessions(keys),
        outage=Outage(seat.clock, uniform),
        recycling=Recycling(pool, presence=presence, clock=seat.clock, uniform=uniform),
        suspects=SuspectLane(seat, seat.clock, uniform, slots=pool.concurrency if kind is Kind.ASYNC else 1),
        info={
            "replica": seat.replica,
            "slot": seat.name,
            "pool": seat.pool,
            "kind": kind.value,
            "queues": ",".join(pool.queues),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "started_ms": seat.clock.wall_ms(),
        },
        limits=limits,
        prefetch=pool.prefetch,
        shares={queue: max(1, int(share * pool.concurrency)) for queue, share in pool.max_share.items() if share < 1},
    )
