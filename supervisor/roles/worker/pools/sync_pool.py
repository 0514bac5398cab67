"""The sync pool: plain functions, one at a time, in the main thread of a process of their own.

Guarantees
    A soft timeout interrupts a wait of the job, by an exception (signals.py); past the hard
    timeout the parent kills the process, and with it nothing but this one run.
    The acknowledgement of a run and the fetch of the next are one turn.
    A job that raises anything at all, SystemExit included, ends its own run and nothing else.
    More than one run is here only while jobs are over at once (polling/poll.py). When one is not, or is not known
    to be, runs behind it go back to the head of its queue, and runs that ended before it are acknowledged:
    before it starts, or by its timer while it runs. None starts before Redis has answered a turn that asked for runs.

Does not guarantee
    A beat while a job runs: the deadline on the scoreboard replaces it.
    That runs go back while a fast job has turned into a long call into C: no handler runs during that.
"""

from __future__ import annotations

import operator
import os
import select
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import structlog

from supervisor.core.effects import drive
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Interrupted
from supervisor.roles.worker.attempt.executor import Execution
from supervisor.roles.worker.polling.poll import FAST_S, Pace
from supervisor.roles.worker.pools.signals import Demand, Interrupts, Relief
from supervisor.roles.worker.process.forks import Original
from supervisor.roles.worker.process.heartbeat import STORE_ERRORS
from supervisor.roles.worker.run_reporting import log_as
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.store.client.sync_client import Store
from supervisor.store.wire.poll import Ack, FetchedRun
from supervisor.telemetry.run_context import enter_run

T = TypeVar("T")
RING_S = 0.5  # also how long a beat may be apart while idle
LAST_WORDS_S = 0.2
RELIEF_S = 0.2  # how long a job may be held up by the relief of those who wait behind it
RELIEF_AGAIN_S, RELIEF_AGAIN_S_MAX = 1.0, 60.0
PATIENCE_NS = round(FAST_S * SECOND_NS)
_QUIT = frozenset({Demand.QUIT})
_STOP = frozenset({Demand.QUIT, Demand.STOP})

log = structlog.get_logger("tenure.worker")


class SyncPool:
    """One worker process of a sync pool."""

    def __init__(self, runtime: WorkerRuntime, store: Store) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._executor = runtime.executor
        self._polls = runtime.polls
        self._store = store
        self._presence = runtime.presence
        self._interrupts = Interrupts(runtime.clock, runtime.presence.end_request)
        self._interrupted: list[FetchedRun] = []
        self._original = Original()
        self._pace = Pace(runtime.prefetch)
        self._ready: deque[FetchedRun] = deque()  # fetched, and not begun
        self._owed_since_ns = 0  # when the oldest acknowledgement that waits was made
        self._relief_again_s = RELIEF_AGAIN_S
        self._fault: BaseException | None = None  # of what was done inside a handler
        self._is_draining = False
        self._look_at_ns = 0  # when to take a turn although no bell rang

    def run(self) -> int:
        """Work until asked to stop; return the exit code.

        Raises:
            SessionLostError: this process was condemned while it lived.
        """
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake_fd = wake_read
        before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._interrupts.install()
        self._presence.ready()
        try:
            with self._interrupts.kept_in_finalizers():
                self._work()
        except Interrupted:
            self._abandon()
        finally:
            self._runtime.close()
            signal.set_wakeup_fd(before)
            self._store.close()
            os.close(wake_read)
            os.close(wake_write)
        return self._presence.exit_code(has_cut_off=bool(self._interrupted))

    # Turns ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._opened():
            if self._must_stop():
                return
        while True:
            if not self._ready:  # else each end is a beat
                self._presence.beat()
                self._runtime.tick()
            must_stop = self._must_stop()
            if must_stop and self._is_settled():
                break
            if self._ready and (must_stop or not self._runtime.may_start()):
                self._give_back_ready()
            elif self._ready and not self._polls.is_open:
                self._next()
            elif self._polls.has_work or self._clock.elapsed_ns() >= self._look_at_ns:
                self._turn()
            else:
                self._ring()
        if self._polls.is_open or self._polls.refused_acks:
            return  # it may have fetched runs: the agent ends the session, and they go back with it
        with suppress(*STORE_ERRORS):
            self._call(lambda: self._store.run(self._runtime.close_session()))

    def _must_stop(self) -> bool:
        if self._presence.must_go:
            self._interrupts.stop()
        if self._interrupts.must_stop and not self._is_draining:
            self._is_draining = True
            self._presence.draining()
            log.info("worker_draining", running=0)
        return self._is_draining

    def _is_settled(self) -> bool:
        if self._ready:
            return False
        # What an unanswered turn may have fetched was not started, and goes back with the session.
        return not self._polls.has_work or (self._runtime.outage.is_on and not self._polls.unsettled)

    def _call(self, function: Callable[[], T]) -> T:
        """Speak to Redis so that SIGQUIT can interrupt it."""
        return self._interrupts.wait(function, on=_QUIT)

    def _opened(self) -> bool:
        self._presence.beat()
        try:
            self._runtime.opened(self._call(lambda: self._store.run(self._runtime.open_session())))
        except STORE_ERRORS as error:
            self._pause(self._runtime.outage.failed("session", error))
            return False
        return True

    def _turn(self, *, want: int | None = None) -> None:
        if want is None:
            want = 0 if self._is_draining else max(0, self._pace.want - len(self._ready))
        # With one slot a run is always alone; but a suspect must have nobody behind it either.
        is_idle = want > 0 and not self._ready
        for_suspect = is_idle and self._runtime.suspects.may_ask
        call = self._runtime.next_poll(want=want, want_suspect=for_suspect)
        try:
            reply = self._call(lambda: self._store.run(call, timeout_s=self._runtime.turn_timeout.seconds))
        except STORE_ERRORS as error:
            self._pause(self._runtime.unanswered(error))
            return
        arrived = self._runtime.settle(reply)
        for behind in arrived[not self._ready :]:
            self._presence.waits((behind.queue, behind.envelope.id))
        self._ready += arrived
        if is_idle:
            has_one = any(fetched.suspect for fetched in arrived)
            self._runtime.suspects.asked(for_suspect=for_suspect, has_one=has_one)
            if not (arrived or for_suspect) and self._runtime.suspects.may_ask:
                return  # nothing was ready, so it is a suspect's turn, at once
        now_ns = self._clock.elapsed_ns()
        self._owed_since_ns = now_ns
        if not arrived:
            wait_s = RING_S
            if reply.next_due_ms is not None:
                wait_s = min(wait_s, max(0, reply.next_due_ms - reply.now_ms) / 1000 + 0.001)
            self._look_at_ns = now_ns + round(wait_s * SECOND_NS)

    def _ring(self) -> None:
        """Wait at the bells until one rings, a delayed run comes due, or it is time to beat."""
        self._runtime.flush()
        if self._runtime.calling.resources.opened:
            self._call(self._runtime.calling.resources.ping_if_due)
        left_s = (self._look_at_ns - self._clock.elapsed_ns()) / SECOND_NS
        bells, wait_s = self._runtime.bells, max(0.001, left_s)
        effects = self._runtime.listener.ring(self._store, bells, wait_s, pause=self._pause)
        try:
            self._interrupts.wait(lambda: drive(effects, operator.call), on=_STOP)
        except Interrupted:
            if self._interrupts.must_quit:
                raise
        except STORE_ERRORS as error:
            self._pause(self._runtime.outage.failed("ring", error))
        else:
            self._presence.redis_answered(is_turn=False)
        self._look_at_ns = 0

    def _pause(self, seconds: float) -> None:
        """Wait, but not through a signal, and not without a beat."""
        until_ns = self._clock.elapsed_ns() + round(seconds * SECOND_NS)
        while (left_s := (until_ns - self._clock.elapsed_ns()) / SECOND_NS) > 0:
            self._presence.beat()
            woken, _, _ = select.select([self._wake_fd], [], [], min(left_s, RING_S))
            if woken:
                os.read(self._wake_fd, 4096)
            if self._interrupts.must_quit:
                raise Interrupted
            if woken:
                return

    # Runs ----------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Run the first of the runs here, unless it cannot be."""
        is_fast = self._pace.is_fast(self._ready[0].envelope.template.job)
        if is_fast and self._polls.waiting and self._clock.elapsed_ns() - self._owed_since_ns >= PATIENCE_NS:
            self._turn()
            if self._polls.is_open:
                return
        prepared = self._executor.prepare(self._ready.popleft())
        if isinstance(prepared, Ack):
            self._owe(prepared)
            return
        if not is_fast:
            try:
                self._clear_the_way()
            except Interrupted:
                self._ready.appendleft(prepared.fetched)  # it has not begun, and nobody else knows of it
                raise
            if self._must_stop() or not self._runtime.may_start():
                self._owe(self._executor.refusals.give_back(prepared.fetched))
                return
        ack = self._execute(prepared, is_fast=is_fast)
        if ack is not None:
            self._owe(ack)
            self._pace.ended(prepared.spec.name, (prepared.ended_ns - prepared.started_ns) / SECOND_NS)

    def _owe(self, ack: Ack) -> None:
        if not self._polls.waiting:
            self._owed_since_ns = self._clock.elapsed_ns()
        self._polls.acknowledge(ack)

    def _give_back_ready(self) -> None:
        while self._ready:
            self._owe(self._executor.refusals.give_back(self._ready.popleft()))

    def _clear_the_way(self) -> None:
        """Leave nothing undone behind a run that may take long."""
        self._give_back_ready()
        if self._polls.has_work:
            self._turn(want=0)
        self._runtime.flush(is_last=True)

    def _execute(self, execution: Execution, *, is_fast: bool) -> Ack | None:
        """Call the job; None when it was cut off by a stop."""
        executor, fetched = self._executor, execution.fetched
        key = execution.key
        executor.begin(execution)
        self._presence.started(key, execution.hard_ns, execution.started_ns)
        log_as(execution, self._runtime.outputs)
        has_others = is_fast or self._polls.has_work  # behind it, or before it where Redis did not answer
        relief = Relief(execution.started_ns + PATIENCE_NS, self._relieve) if has_others else None
        try:
            value = self._interrupts.job(
                execution.function, execution.arguments, run=execution, soft_ns=execution.soft_ns, relief=relief
            )
        except BaseException as error:  # noqa: BLE001 - whatever a job raises ends its run and nothing else
            self._original.must_be(execution.spec.name)
            self._presence.done(key)
            if self._interrupts.must_quit:
                self._interrupted.append(fetched)
                return None
            ack = executor.end(execution, error)
        else:
            self._original.must_be(execution.spec.name)
            self._presence.done(key)
            ack = executor.succeed(execution, value)
        finally:
            enter_run(None)
        if self._fault is not None:
            raise self._fault
        return ack

    def _relieve(self) -> float | None:
        """In the middle of a job that takes too long: give back runs behind it, acknowledge those that ended before.

        Inside a signal handler: no metrics, since the job may hold their lock, and nothing is raised. Return when
        to try again, if Redis did not answer: rarely, for each try holds the job up.
        """
        try:
            self._give_back_ready()
            if self._polls.has_work:
                call = self._polls.call(want=0)
                self._runtime.settled(self._store.run(call, timeout_s=RELIEF_S))
                self._relief_again_s = RELIEF_AGAIN_S
        except STORE_ERRORS:
            again_s = self._relief_again_s
            self._relief_again_s = min(2 * again_s, RELIEF_AGAIN_S_MAX)
            return again_s
        except BaseException as fault:  # noqa: BLE001 - the job has no part in it; it is raised where it belongs
            self._fault = fault
        return None

    # Stopping ------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Hand back the runs here, within bounds; the agent hands back the rest."""
        asked = self._runtime.presence.was_asked
        log.info("worker_quits", interrupted=len(self._interrupted), still_running=0, asked=asked)
        self._give_back_ready()
        try:
            drive(self._runtime.leave(self._interrupted), partial(self._store.run, timeout_s=LAST_WORDS_S))
        except STORE_ERRORS as error:
            log.warning("worker_left_runs_to_agent", error=str(error))
