"""The runs of an async pool: accepted, started, asked to stop, ended.

Guarantees
    A job that raises anything at all, SystemExit included, ends its own run and nothing else.
    A suspect, a run that may have killed a process before, runs alone.
    A soft timeout cancels the job's task. The job's reaction decides: it ends by the cancellation
    (failed), by another exception (failed), or it returns (finished).
    A job that returns a task or future ends with that: its work is under way.
    Not more than half of the slots are filled in one turn of the loop, so that runs fetched for
    the one half travel while the other half is executed.

Speaks to nobody: ends become acknowledgements of the next turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from itertools import islice
from typing import Any

from supervisor.core.model import RunKey
from supervisor.core.supervision.states import UnwantedReason
from supervisor.core.units import NEVER_NS, SECOND_NS
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.attempt.executor import Execution
from supervisor.roles.worker.attempt.result_check import is_under_way
from supervisor.roles.worker.process.forks import Original
from supervisor.roles.worker.process.loop_tasks import own_task
from supervisor.roles.worker.run_reporting import log_as
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.store.wire.poll import Ack, FetchedRun

_EARLY_S = 0.001  # loop timers may fire early


class AsyncRuns:
    """Runs that one event loop executes."""

    def __init__(self, runtime: WorkerRuntime, *, on_begin: Callable[[], None], on_ended: Callable[[], None]) -> None:
        """Build it; ``on_begin`` is called before each job, ``on_ended`` after it, when the pool has data for Redis."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._executor = runtime.executor
        self._polls = runtime.polls
        self._presence = runtime.presence
        self._concurrency = runtime.concurrency
        self._on_begin, self._on_ended = on_begin, on_ended
        self._running: dict[RunKey, Execution] = {}
        self._held: deque[Execution] = deque()  # fetched, and waiting to be started
        self._starts_max = -(-runtime.concurrency // 2)  # in one turn of the loop
        self._original = Original()
        self._is_starting = False  # the rest is started in the loop's next turn
        self._has_suspect = False  # the one run that there is is a suspect
        self._is_closed = False  # nothing is started any more
        self._is_cut_off = False  # what still runs is being cancelled
        self._soft_due_ns = NEVER_NS
        self._soft_timer: asyncio.TimerHandle | None = None
        self._context = copy_context()  # of the pool: nothing that one job sets in its own may reach the next
        self.interrupted: list[FetchedRun] = []
        """Runs that were cut off by a stop."""
        self.fault: BaseException | None = None
        """A mistake of ours, not of a job."""

    @property
    def count(self) -> int:
        """Number of executed runs."""
        return len(self._running)

    @property
    def is_empty(self) -> bool:
        """True if nothing runs and nothing waits to."""
        return not (self._running or self._held)

    @property
    def free(self) -> int:
        """Number of runs that could be fetched now."""
        if self._is_closed or self._has_suspect or (self._held and self._held[0].fetched.suspect):
            return 0
        return self._concurrency - len(self._running) - len(self._held)

    def of_queues(self) -> Counter[str]:
        """Return how many runs of each queue are here."""
        here = Counter(running.fetched.queue for running in self._running.values())
        here.update(execution.fetched.queue for execution in self._held)
        return here

    def names(self) -> list[str]:
        """Return the jobs that run, each once."""
        return sorted({running.spec.name for running in self._running.values()})

    def queue_of(self, run_id: str) -> str | None:
        """Return the queue of a run that is executed, the first of them if there are two; None if it is not."""
        return next((queue for queue, known_id in self._running if known_id == run_id), None)

    def accept(self, arrived: Sequence[FetchedRun]) -> None:
        """Start fetched runs, or report how one ends without being started."""
        prepare, hold = self._executor.prepare, self._held.append
        for fetched in arrived:  # a suspect comes alone
            prepared = prepare(fetched)
            if isinstance(prepared, Ack):
                self._polls.acknowledge(prepared)
            else:
                hold(prepared)
        self._start_held()
        for execution in islice(reversed(self._held), len(arrived)):
            self._presence.waits(execution.key)

    def close(self) -> None:
        """Start nothing more, and give back waiting runs."""
        self._is_closed = True
        self._start_held()

    def end_unwanted(self, unwanted: int, reason: UnwantedReason) -> None:
        """Cancel the execution with this hash, if it is here: nobody wants it any more. Asked again, it notes why."""
        for running in self._running.values():
            if running.hash == unwanted:
                if running.unwanted is None:
                    self._cancel(running, reason)
                else:
                    running.cancel(reason)
                return

    async def cut_off(self, within_s: float) -> None:
        """Cancel everything, and wait a bounded time for it to end."""
        self._is_cut_off = True
        self.close()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in list(self._running.values()):
            running.cancel()
            self._cancel_task(running)
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    # Starting ------------------------------------------------------------------------------------

    def _start_held(self) -> None:
        left = self._starts_max
        is_over = self._is_closed or not self._runtime.may_start()
        while self._held:
            if is_over:
                self._polls.acknowledge(self._executor.refusals.give_back(self._held.popleft().fetched))
            elif self._running and (self._held[0].fetched.suspect or self._has_suspect):
                return
            elif left == 0:
                self._start_later()
                return
            else:
                left -= 1
                self._start(self._held.popleft())

    def _start_later(self) -> None:
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_rest, context=self._context)

    def _start_rest(self) -> None:
        self._is_starting = False
        self._start_held()

    def _start(self, execution: Execution) -> None:
        self._executor.begin(execution)
        key = execution.key
        self._presence.started(key, execution.hard_ns, execution.started_ns)
        self._running[key] = execution
        self._has_suspect = execution.fetched.suspect
        if execution.soft_ns < self._soft_due_ns:
            self._arm_soft(execution.soft_ns)
        execution.task = own_task(self._execute(execution), self._context.copy())

    async def _execute(self, execution: Execution) -> None:
        """Call the job, and report how it ended."""
        execution.has_begun = True
        self._original.must_be(execution.spec.name)
        log_as(execution, self._runtime.outputs)
        try:
            self._on_begin()
            value = await execution.function(**execution.arguments)
            if is_under_way(value):  # of a job that nothing stands around (invocation.py)
                value = await value
        except BaseException as error:  # noqa: BLE001 - whatever a job raises ends its run and nothing else
            value = None  # its task, if it was one, leads to the error, and that to this frame
            self._ended(execution, error=error)
        else:
            self._ended(execution, value=value)

    # Ending --------------------------------------------------------------------------------------

    def _ended(self, execution: Execution, *, value: Any = None, error: BaseException | None = None) -> None:
        self._original.must_be(execution.spec.name)
        try:
            self._note_end(execution, value, error)
        except BaseException as fault:  # noqa: BLE001 - ours: the pool stops by it, and the task has nobody to tell
            self.fault = self.fault or fault
        self._on_ended()

    def _note_end(self, execution: Execution, value: Any, error: BaseException | None) -> None:
        executor, key = self._executor, execution.key
        del self._running[key]
        execution.task = None  # its context leads back here: without this, only the garbage collector could free both
        self._has_suspect = False  # if one ran, it ran alone
        ack = None
        if error is None:
            ack = executor.succeed(execution, value)
        elif not self._is_cut_off:
            if execution.was_asked and isinstance(error, asyncio.CancelledError):
                after_s = execution.fetched.envelope.template.soft_after_s
                error = SoftTimeout(f"still running after {after_s:g} s").with_traceback(error.__traceback__)
            ack = executor.end(execution, error)
        self._presence.done(key, execution.ended_ns or None)
        if ack is None:
            self.interrupted.append(execution.fetched)
        else:
            self._polls.acknowledge(ack)
        if self._held and not self._is_starting:
            self._start_held()

    def _cancel(self, running: Execution, reason: UnwantedReason | None = None) -> None:
        running.was_asked = True
        running.cancel(reason)
        self._cancel_task(running)

    def _cancel_task(self, running: Execution) -> None:
        task = running.task
        if task is None:
            return
        if not running.has_begun:  # then nothing of ours in it will ever run
            running.has_begun = True
            task.add_done_callback(lambda _: self._ended(running, error=asyncio.CancelledError()))
        task.cancel()

    # Soft timeouts -------------------------------------------------------------------------------

    def _arm_soft(self, due_ns: int) -> None:
        """Look at the soft timeouts at ``due_ns``: one timer for all, which the end of a run leaves alone."""
        if self._soft_timer is not None:
            self._soft_timer.cancel()
            self._soft_timer = None
        self._soft_due_ns = due_ns
        if due_ns < NEVER_NS:
            left_s = max(0.0, (due_ns - self._clock.elapsed_ns()) / SECOND_NS) + _EARLY_S
            self._soft_timer = asyncio.get_running_loop().call_later(left_s, self._soft_timeouts, context=self._context)

    def _soft_timeouts(self) -> None:
        now_ns = self._clock.elapsed_ns()
        waiting = [running for running in self._running.values() if not running.was_asked]
        for running in waiting:
            if running.soft_ns <= now_ns:
                self._cancel(running)
        self._arm_soft(min((running.soft_ns for running in waiting if running.soft_ns > now_ns), default=NEVER_NS))
