"""Everything that one worker process works with, whatever its kind."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from supervisor.clock import Clock
from supervisor.core.model import Kind, Release
from supervisor.core.registry import Registry
from supervisor.roles.seat import Seat
from supervisor.roles.worker.context import Enqueuer
from supervisor.roles.worker.executor import Executor
from supervisor.roles.worker.outage import Outage
from supervisor.roles.worker.presence import Presence
from supervisor.roles.worker.turns import SessionLostError, Turns
from supervisor.settings.models import QueueSettings
from supervisor.store.keys import Keys
from supervisor.store.queues import FetchedRun, Queues, TurnReply
from supervisor.store.scripts import Call
from supervisor.store.sessions import Sessions
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
    turns: Turns
    queues: Queues
    sessions: Sessions
    outage: Outage
    info: dict[str, Any]
    limits: QueueSettings

    def open_session(self) -> Call[bool]:
        """Return the call that makes Redis accept turns of this session; its reply goes to ``opened``."""
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
        """Return the call that gives back what a stop cut off: to the head of its queue, no attempt charged."""
        items = [(fetched.queue, fetched.envelope.id, Release.INTERRUPTED) for fetched in runs]
        return self.queues.release_runs(
            session=self.session, items=items, history=self.limits.history, dead_cap=self.limits.dead
        )

    def handed_back(self, runs: Sequence[FetchedRun]) -> None:
        """Note that ``hand_back`` was answered."""
        for fetched in runs:
            self.presence.settled(fetched.envelope.id)

    def settle(self, reply: TurnReply, *, asked_ns: int) -> list[FetchedRun]:
        """Close the open turn with ``reply``; return the runs it brought, noted as fetched.

        Raises:
            SessionLostError: the session was condemned.
        """
        metrics.TURN_SECONDS.observe((self.clock.elapsed_ns() - asked_ns) / 1e9)
        self.presence.redis_answered()
        self.outage.answered()
        for ack in self.turns.answered(reply):
            self.presence.settled(ack.run_id)
            if ack.run_id not in reply.stale:
                for child in ack.children:
                    metrics.ENQUEUED.labels(child.packed.queue, child.job).inc()
        if reply.stale:
            # Somebody else has these runs by now: this process was taken for dead while it worked.
            metrics.ACKS_STALE.inc(len(reply.stale))
            log.warning("acks_stale", runs=reply.stale)
        for fetched in reply.runs:
            self.presence.fetched(fetched.envelope.id, fetched.attempt)
        for broken in reply.broken:
            self.presence.fetched(broken.run_id, broken.attempt)
            self.turns.acknowledge(self.executor.bury(broken))
        return reply.runs


def furnish(
    seat: Seat, registry: Registry, producer: Enqueuer | None = None, uniform: Callable[[], float] = random.random
) -> Workplace:
    """Return the workplace of ``seat``."""
    assert seat.pool is not None
    pool = seat.settings.workers[seat.pool]
    keys = Keys(seat.settings.cluster)
    kind = Kind(pool.kind.value)
    queues = Queues(keys)
    limits = seat.settings.queues
    return Workplace(
        session=seat.session,
        kind=kind,
        concurrency=pool.concurrency if kind is Kind.ASYNC else 1,
        queue_names=pool.queues,
        bells=tuple(keys.queue(name).bell(kind) for name in pool.queues),
        clock=seat.clock,
        uniform=uniform,
        presence=Presence(seat),
        executor=Executor(
            kind=kind, registry=registry, worker=seat.session, clock=seat.clock, uniform=uniform, producer=producer
        ),
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
    )
