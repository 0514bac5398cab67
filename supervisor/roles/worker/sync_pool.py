"""The sync pool: plain functions, one at a time, in the main thread of a process of their own.

Guarantees
    A soft timeout interrupts what the job waits for, by an exception (interrupts.py); past the hard
    timeout the parent kills the process, and with it nothing but this one run.
    The acknowledgement of a run and the fetch of the next are one turn.
    A job that raises anything at all, SystemExit included, ends its own run and nothing else.

Does not guarantee
    A beat while a job runs: the deadline on the scoreboard stands for it.
"""

from __future__ import annotations

import inspect
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from supervisor.core.board import Phase
from supervisor.core.errors import EXIT_OK
from supervisor.roles.worker.context import Interrupted
from supervisor.roles.worker.executor import Execution
from supervisor.roles.worker.interrupts import Demand, Interrupts
from supervisor.roles.worker.outage import STORE_ERRORS
from supervisor.roles.worker.workplace import Workplace
from supervisor.store.client import Store
from supervisor.store.queues import Ack, FetchedRun
from supervisor.telemetry.logs import bind_run

T = TypeVar("T")
RING_S = 0.5  # also how long a beat may be apart while idle
LAST_WORDS_S = 0.2
_QUIT = frozenset({Demand.QUIT})
_STOP = frozenset({Demand.QUIT, Demand.STOP})

log = structlog.get_logger("tenure.worker")


class SyncPool:
    """One worker process of a sync pool."""

    def __init__(self, workplace: Workplace, store: Store, *, call_s: float | None = None) -> None:
        """Build it.

        Args:
            workplace: what it works with.
            store: its connection.
            call_s: bound of each call, so that the loop beats within its hang limit; None: the store's own.
        """
        self._at = workplace
        self._store = store
        self._presence = workplace.presence
        self._call_s = call_s
        self._interrupts = Interrupts(workplace.clock, workplace.presence.unwanted)
        self._interrupted: list[FetchedRun] = []
        self._is_draining = False
        self._look_at_ns = 0  # when to take a turn although no bell rang

    def run(self) -> int:
        """Work until told to stop; return the exit code.

        Raises:
            SessionLostError: this process was condemned while it lived.
        """
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake_fd = wake_read
        before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._interrupts.install()
        self._presence.ready()
        try:
            self._work()
        except Interrupted:
            self._abandon()
        finally:
            signal.set_wakeup_fd(before)
            self._store.close()
            os.close(wake_read)
            os.close(wake_write)
        return EXIT_OK

    # Turns ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._opened():
            if self._must_stop():
                return
        while True:
            self._presence.beat()
            if self._must_stop() and self._is_settled():
                break
            if self._at.turns.has_work or self._at.clock.elapsed_ns() >= self._look_at_ns:
                self._turn()
            else:
                self._ring()
        if self._at.turns.is_open:
            return  # it may have fetched runs: the agent ends the session, and they go back with it
        with suppress(*STORE_ERRORS):
            self._call(lambda: self._store.run(self._at.close_session(), timeout_s=self._call_s))

    def _must_stop(self) -> bool:
        if self._presence.phase >= Phase.DRAINING:
            self._interrupts.stop()
        if self._interrupts.must_stop and not self._is_draining:
            self._is_draining = True
            self._presence.draining()
            log.info("worker_draining", running=0)
        return self._is_draining

    def _is_settled(self) -> bool:
        turns = self._at.turns
        # What an unanswered turn may have fetched was not started, and goes back with the session.
        return not turns.has_work or (self._at.outage.is_on and not turns.unsettled)

    def _call(self, function: Callable[[], T]) -> T:
        """Speak to Redis so that SIGQUIT can interrupt it."""
        return self._interrupts.wait(function, on=_QUIT)

    def _opened(self) -> bool:
        self._presence.beat()
        try:
            self._at.opened(self._call(lambda: self._store.run(self._at.open_session(), timeout_s=self._call_s)))
        except STORE_ERRORS as error:
            self._pause(self._at.outage.failed("session", error))
            return False
        return True

    def _turn(self) -> None:
        want = 0 if self._is_draining else 1
        call = self._at.turns.call(want=want, want_suspect=want > 0)  # with one slot a run is always alone
        asked_ns = self._at.clock.elapsed_ns()
        try:
            reply = self._call(lambda: self._store.run(call, timeout_s=self._call_s))
        except STORE_ERRORS as error:
            self._pause(self._at.outage.failed("turn", error))
            return
        arrived = self._at.settle(reply, asked_ns=asked_ns)
        for fetched in arrived:
            ack = self._take(fetched)
            if ack is not None:
                self._at.turns.acknowledge(ack)
        now_ns = self._at.clock.elapsed_ns()
        if not arrived:
            wait_s = RING_S
            if reply.next_due_ms is not None:
                wait_s = min(wait_s, max(0, reply.next_due_ms - reply.now_ms) / 1000 + 0.001)
            self._look_at_ns = now_ns + round(wait_s * 1e9)

    def _ring(self) -> None:
        """Wait at the bells until one rings, a delayed run comes due, or it is time to beat."""
        left_s = (self._look_at_ns - self._at.clock.elapsed_ns()) / 1e9
        try:
            self._interrupts.wait(lambda: self._store.ring(self._at.bells, max(0.001, left_s)), on=_STOP)
        except Interrupted:
            if self._interrupts.must_quit:
                raise
        except STORE_ERRORS as error:
            self._pause(self._at.outage.failed("ring", error))
        else:
            self._presence.redis_answered()
        self._look_at_ns = 0

    def _pause(self, seconds: float) -> None:
        """Wait, but not through a signal, and not without a beat."""
        until_ns = self._at.clock.elapsed_ns() + round(seconds * 1e9)
        while (left_s := (until_ns - self._at.clock.elapsed_ns()) / 1e9) > 0:
            self._presence.beat()
            woken, _, _ = select.select([self._wake_fd], [], [], min(left_s, RING_S))
            if woken:
                os.read(self._wake_fd, 4096)
            if self._interrupts.must_quit:
                raise Interrupted
            if woken:
                return

    # Runs ----------------------------------------------------------------------------------------

    def _take(self, fetched: FetchedRun) -> Ack | None:
        """Run ``fetched`` unless it cannot or must not be; return how it ended, None when it was cut off."""
        if self._must_stop():
            return self._at.executor.give_back(fetched)
        prepared = self._at.executor.prepare(fetched)
        return prepared if isinstance(prepared, Ack) else self._execute(prepared)

    def _execute(self, execution: Execution) -> Ack | None:
        executor, envelope = self._at.executor, execution.fetched.envelope
        with bind_run(
            run=envelope.id, job=execution.spec.name, schedule=envelope.schedule, attempt=execution.fetched.attempt
        ):
            executor.begin(execution)
            self._presence.started(execution.run_id, execution.hard_ns)
            try:
                value = self._interrupts.job(
                    execution.spec.function, execution.arguments, context=execution.context, soft_ns=execution.soft_ns
                )
            except BaseException as error:  # noqa: BLE001 - whatever a job raises ends its run and nothing else
                self._presence.done(execution.run_id)
                if self._interrupts.must_quit:
                    self._interrupted.append(execution.fetched)
                    return None
                return executor.end(execution, error)
            self._presence.done(execution.run_id)
            if inspect.isawaitable(value):
                return executor.fail(execution, _never_awaited(value))
            return executor.succeed(execution, value)

    # Stopping ------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Hand back what is here, within bounds; what is left the agent hands back."""
        log.info("worker_quits", interrupted=len(self._interrupted), still_running=0)
        try:
            self._last_words()
        except STORE_ERRORS as error:
            log.warning("worker_left_runs_to_agent", error=str(error))

    def _last_words(self) -> None:
        turns = self._at.turns
        while turns.has_work:
            asked_ns = self._at.clock.elapsed_ns()
            reply = self._store.run(turns.call(want=0), timeout_s=LAST_WORDS_S)
            for fetched in self._at.settle(reply, asked_ns=asked_ns):
                turns.acknowledge(self._at.executor.give_back(fetched))
        if self._interrupted:
            self._store.run(self._at.hand_back(self._interrupted), timeout_s=LAST_WORDS_S)
            self._at.handed_back(self._interrupted)
        self._store.run(self._at.close_session(), timeout_s=LAST_WORDS_S)


def _never_awaited(value: Any) -> TypeError:
    if inspect.iscoroutine(value):
        value.close()
    return TypeError("a job in a sync pool returned an awaitable; define it with async def, so that it is awaited")
