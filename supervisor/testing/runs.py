"""Runs jobs inline, with the queue's real script and the workers' own rules about how a run ends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from random import Random
from typing import Any

from supervisor.clock import Clock
from supervisor.core.jobs.registry import registry
from supervisor.core.model import PRIORITIES, Kind, Outcome
from supervisor.roles.worker.attempt.context import Enqueuer
from supervisor.roles.worker.attempt.executor import Execution, Executor
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.roles.worker.attempt.result_check import is_under_way, is_undone, work_undone
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.codec import text
from supervisor.store.wire.envelope import unpack
from supervisor.store.wire.poll import Ack, FetchedRun
from supervisor.testing.server import Server

BATCH = 50
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Finished:
    """Finished attempt."""

    run_id: str
    job: str
    args: dict[str, Any]
    attempt: int
    outcome: Outcome
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class EnqueuedRun:
    """Run that waits to be executed."""

    id: str
    job: str
    args: dict[str, Any]
    queue: str
    priority: str
    """``high``, ``normal`` or ``low``."""


def waiting_runs(server: Server) -> list[EnqueuedRun]:
    """Return the runs of a server that have not begun, in the order of their ids, which is that of their times."""
    found, queues = [], Queues(server.keys)
    for queue in server.store.run(queues.names()):
        keys = server.keys.queue(queue)
        begun = {text(run_id) for run_id in server.store.raw.hkeys(keys.run)}
        begun |= {text(run_id) for run_id in server.store.raw.zrange(keys.dead, 0, -1)}
        stored: Any = server.store.raw.hgetall(keys.data)
        for run_id, data in stored.items():
            if text(run_id) not in begun:
                template = unpack(data).template
                priority = next(name for name, number in PRIORITIES.items() if number == template.priority)
                found.append(EnqueuedRun(text(run_id), template.job, dict(template.args), queue, priority))
    return sorted(found, key=lambda run: run.id)


class InlineWorker:
    """One worker of each kind, executed by the thread that asks for it, one thread after the other."""

    def __init__(self, server: Server, clock: Clock, producer: Enqueuer | None = None) -> None:
        self._server = server
        self._queues = Queues(server.keys)
        self._sessions = Sessions(server.keys)
        uniform = Random(0).random  # noqa: S311 - retries of a test must repeat themselves
        self._executors = {
            kind: Executor(
                kind=kind,
                registry=registry,
                worker=self._session(kind),
                clock=clock,
                uniform=uniform,
                producer=producer,
            )
            for kind in Kind
        }
        self.executing = 0
        """Thread that executes runs; 0: none does."""

        self.finished: list[Finished] = []
        self._free = threading.Condition()
        self._looks_again = False
        self._seq = dict.fromkeys(Kind, 0)  # of each session: one that leaves out a number has lost a turn

    def run_pending(self, limit: int = 1000, *, wait_s: float) -> list[Finished]:
        """Run up to ``limit`` runs that are ready, those that they enqueue included.

        None where another thread still does so after ``wait_s``: that one looks again before it ends.
        """
        around, thread = self.executing, threading.get_ident()
        with self._free:
            if around != thread and not self._free.wait_for(lambda: not self.executing, wait_s):
                self._looks_again = True
                return []
            self.executing = thread
        found: list[Finished] = []
        try:
            found = self._run_pending(limit)
        finally:
            with self._free:
                self.finished += found
                looks_again, self._looks_again = self._looks_again, False
                self.executing = around if around == thread else 0
                self._free.notify_all()
        return found + self.run_pending(limit - len(found), wait_s=0) if looks_again else found

    def _run_pending(self, limit: int) -> list[Finished]:
        finished: list[Finished] = []
        for kind in Kind:
            self._server.store.run(self._sessions.open(self._session(kind), {}))
        while len(finished) < limit:
            before = len(finished)
            for kind in Kind:
                finished += self._turn(kind, min(BATCH, limit - len(finished)))
            if len(finished) == before:
                break
        return finished

    def _turn(self, kind: Kind, want: int) -> list[Finished]:
        """Fetch, run and acknowledge once."""
        queues = self._server.store.run(self._queues.names())
        if not queues or want < 1:
            return []
        runs = self._exchange(kind, queues, want, [])
        ended = [self._run(kind, run) for run in runs]
        for _, ack in ended:  # each in a turn of its own: its children may fill one
            self._exchange(kind, queues, 0, [ack])
        return [finished for finished, _ in ended if finished is not None]

    def _exchange(self, kind: Kind, queues: list[str], want: int, acks: list[Ack]) -> list[FetchedRun]:
        self._seq[kind] += 1
        call = self._queues.turn(
            session=self._session(kind),
            seq=self._seq[kind],
            kind=kind,
            queues=queues,
            want=want,
            want_suspect=False,
            acks=acks,
        )
        return self._server.store.run(call).runs

    def _run(self, kind: Kind, run: FetchedRun) -> tuple[Finished | None, Ack]:
        executor = self._executors[kind]
        prepared = executor.prepare(run)
        if isinstance(prepared, Ack):
            return None, prepared
        executor.begin(prepared)
        value, error = _call(prepared)
        ack = executor.succeed(prepared, value) if error is None else executor.end(prepared, error)
        template = run.envelope.template
        finished = Finished(
            run_id=run.envelope.id,
            job=template.job,
            args=dict(template.args),
            attempt=run.attempt,
            outcome=ack.outcome,
            value=value,
            error=error,
        )
        return finished, ack

    @staticmethod
    def _session(kind: Kind) -> str:
        return f"test/worker-{kind.value}-0/1"


def _call(execution: Execution) -> tuple[Any, BaseException | None]:
    try:
        is_async = execution.spec.kind is Kind.ASYNC
        value = asyncio.run(_coroutine(execution)) if is_async else _plain(execution)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - how a job ends is what the caller asks for
        return None, error
    return (None, work_undone(value)) if is_undone(value, execution.spec.kind) else (value, None)


def _plain(execution: Execution) -> Any:
    if execution.context is None:
        return execution.spec.function(**execution.arguments)
    calling = JobInvoker(kind=Kind.SYNC)
    try:
        return calling.prepare(execution.spec, execution.context)(**execution.arguments)
    finally:
        calling.close(CLOSE_S)


async def _coroutine(execution: Execution) -> Any:
    """Call a coroutine job with resources of its own: each run has its own event loop here."""
    if execution.context is None:
        value = await execution.spec.function(**execution.arguments)
        return await value if is_under_way(value) else value
    calling = JobInvoker(kind=Kind.ASYNC)
    try:
        return await calling.prepare(execution.spec, execution.context)(**execution.arguments)
    finally:
        await calling.close_async(CLOSE_S)
