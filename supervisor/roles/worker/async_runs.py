"""The runs of an async pool: accepted, started, asked to stop, ended.

Guarantees
    A job that raises anything at all, SystemExit included, ends its own run and nothing else.
    A suspect, a run that may have killed a process before, runs alone.
    A soft timeout cancels the job's task. What the job then does decides: it ends by the cancellation
    (failed), by another exception (failed), or it returns (finished).

Speaks to nobody: ends become acknowledgements of the next turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisor.core.board import run_hash
from supervisor.roles.worker.context import SoftTimeout
from supervisor.roles.worker.executor import Execution
from supervisor.roles.worker.workplace import Workplace
from supervisor.store.queues import Ack, FetchedRun
from supervisor.telemetry.logs import bind_run


@dataclass(slots=True, eq=False)
class _Running:
    execution: Execution
    task: asyncio.Task[Ack | None] | None = None
    soft_timer: asyncio.TimerHandle | None = None
    was_asked: bool = False  # its soft timeout passed and it was cancelled


class AsyncRuns:
    """What one event loop executes."""

    def __init__(self, workplace: Workplace, *, on_ended: Callable[[], None]) -> None:
        """Build it.

        Args:
            workplace: what the runs need.
            on_ended: called after each end, when the pool has something to say to Redis.
        """
        self._at = workplace
        self._on_ended = on_ended
        self._running: dict[str, _Running] = {}
        self._held: deque[Execution] = deque()  # fetched, waiting for a suspect to have the process for itself
        self._has_suspect = False  # the one run that there is is a suspect
        self._is_closed = False  # nothing is started any more
        self._is_cut_off = False  # what still runs is being cancelled
        self.interrupted: list[FetchedRun] = []
        """Runs that were cut off by a stop."""
        self.fault: BaseException | None = None
        """A mistake of ours, not of a job."""

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and nothing waits to."""
        return not (self._running or self._held)

    @property
    def free(self) -> int:
        """How many more could be started now."""
        if self._is_closed or self._held or self._has_suspect:
            return 0
        return self._at.concurrency - len(self._running)

    def names(self) -> list[str]:
        """Return the jobs that run, each once."""
        return sorted({running.execution.spec.name for running in self._running.values()})

    def accept(self, arrived: Sequence[FetchedRun]) -> None:
        """Start what was fetched, or say how it ends without being started."""
        for fetched in sorted(arrived, key=lambda item: not item.suspect):
            prepared = self._at.executor.prepare(fetched)
            if isinstance(prepared, Ack):
                self._at.turns.acknowledge(prepared)
            else:
                self._held.append(prepared)
        self._start_held()

    def close(self) -> None:
        """Start nothing more, and give back what waits."""
        self._is_closed = True
        self._start_held()

    def end_unwanted(self, unwanted: int) -> None:
        """Cancel the run with this hash, if it is here: a newer run of its schedule takes its place."""
        for run_id, running in self._running.items():
            if run_hash(run_id) == unwanted and not running.execution.context.is_replaced:
                context = running.execution.context
                running.was_asked = context.is_cancelled = context.is_replaced = True
                if running.task is not None:
                    running.task.cancel()

    async def cut_off(self, within_s: float) -> None:
        """Cancel everything, and wait a bounded time for it to end."""
        self._is_cut_off = True
        self.close()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in self._running.values():
            running.execution.context.is_cancelled = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    def _start_held(self) -> None:
        while self._held:
            if self._is_closed:
                self._at.turns.acknowledge(self._at.executor.give_back(self._held.popleft().fetched))
            elif self._running and (self._held[0].fetched.suspect or self._has_suspect):
                return
            else:
                self._start(self._held.popleft())

    def _start(self, execution: Execution) -> None:
        running = _Running(execution)
        self._at.executor.begin(execution)
        self._at.presence.started(execution.run_id, execution.hard_ns)
        self._running[execution.run_id] = running
        self._has_suspect = execution.fetched.suspect
        self._arm_soft(running)
        running.task = asyncio.get_running_loop().create_task(self._execute(running), name=f"run {execution.run_id}")
        running.task.add_done_callback(lambda task: self._ended(running, task))

    def _arm_soft(self, running: _Running) -> None:
        left_s = (running.execution.soft_ns - self._at.clock.elapsed_ns()) / 1e9
        running.soft_timer = asyncio.get_running_loop().call_later(max(0.0, left_s), self._soft_timeout, running)

    def _soft_timeout(self, running: _Running) -> None:
        if self._at.clock.elapsed_ns() < running.execution.soft_ns:
            self._arm_soft(running)  # loop timers may fire early
            return
        running.was_asked = running.execution.context.is_cancelled = True
        if running.task is not None:
            running.task.cancel()

    async def _execute(self, running: _Running) -> Ack | None:
        """Call the job; None when it was cut off by a stop."""
        execution, executor = running.execution, self._at.executor
        envelope, attempt = execution.fetched.envelope, execution.fetched.attempt
        with bind_run(run=envelope.id, job=execution.spec.name, schedule=envelope.schedule, attempt=attempt):
            try:
                value = await execution.spec.function(**execution.arguments)
            except BaseException as error:  # noqa: BLE001 - whatever a job raises ends its run and nothing else
                if self._is_cut_off:
                    return None
                if running.was_asked and isinstance(error, asyncio.CancelledError):
                    late = SoftTimeout(f"still running after {envelope.template.soft_after_s:g} s")
                    return executor.fail(execution, late.with_traceback(error.__traceback__))
                return executor.end(execution, error)
            return executor.succeed(execution, value)

    def _ended(self, running: _Running, task: asyncio.Task[Ack | None]) -> None:
        if running.soft_timer is not None:
            running.soft_timer.cancel()
        del self._running[running.execution.run_id]
        self._has_suspect = False  # if one ran, it ran alone
        self._at.presence.done(running.execution.run_id)
        ack = None
        if not task.cancelled():  # cancelled before its first step: a stop
            self.fault = self.fault or task.exception()
            ack = None if task.exception() else task.result()
        if ack is not None:
            self._at.turns.acknowledge(ack)
        else:
            self.interrupted.append(running.execution.fetched)
        self._start_held()
        self._on_ended()
