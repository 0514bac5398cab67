"""The async pool: one event loop, many coroutine jobs at once (async_runs.py).

Guarantees
    One turn is on its way at a time. A turn goes out when something happened: a run ended, a bell
    rang, a delayed run came due. Nothing is polled, but for one look every two seconds at most.
    An outage of Redis stops nothing that runs, and ends no process.

Does not guarantee
    That jobs are protected from one another: a job that does not await stops them all, and one that
    overruns its hard timeout takes the process with it. The lag of the loop is measured, and a
    warning names the job that holds it up (process/loop_monitor.py).
"""

from __future__ import annotations

import asyncio
import operator
import signal
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from supervisor.core.effects import drive_async
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.supervision.states import Phase
from supervisor.roles.worker.polling.bells import Bells
from supervisor.roles.worker.pools.async_runs import AsyncRuns
from supervisor.roles.worker.process.forks import Original
from supervisor.roles.worker.process.heartbeat import STORE_ERRORS
from supervisor.roles.worker.process.loop_monitor import LoopWatch
from supervisor.roles.worker.process.loop_signals import LoopSignals
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.store.client.sync_client import AsyncStore
from supervisor.telemetry import metrics

BEAT_S = 0.2
RING_S = 2.0
COMPANY = 12  # so many acknowledgements are worth a turn, and in larger pools those of half of the slots
FLUSH_S = 0.002  # how long an acknowledgement waits for others, while other jobs run anyway
CANCEL_S = 1.0  # how long cancelled jobs may clean up; the parent kills two seconds after it asked
CANCEL_NOW_S = 0.1  # the same when everything must be gone within half a second
CANCEL_TRIES, CANCEL_AGAIN_S = 10, 0.05
LAST_WORDS_S = 0.2  # how long each last call to Redis may take then

log = structlog.get_logger("tenure.worker")


class AsyncPool:
    """One worker process of an async pool."""

    def __init__(self, runtime: WorkerRuntime, store: AsyncStore, *, takes_signals: bool = False) -> None:
        """Build it; ``takes_signals``: those of the process are ours (process/loop_signals.py, loop_monitor.py)."""
        self._runtime = runtime
        self._outage = runtime.outage
        self._polls = runtime.polls
        self._store = store
        self._presence = runtime.presence
        self._wake = asyncio.Event()
        self._may_listen = asyncio.Event()
        self._quit = asyncio.Event()
        actions = {signal.SIGTERM: self.drain, signal.SIGQUIT: self.quit}
        actions |= dict.fromkeys((signal.SIGURG, signal.SIGUSR2), self.poll_board)
        self._signals = LoopSignals(actions if takes_signals else {})
        self._runs = AsyncRuns(runtime, on_begin=self._signals.take, on_ended=self._on_ended)
        self._loop_watch = LoopWatch(running=self._runs.names, queue_of=self._runs.queue_of, is_sampling=takes_signals)
        # A turn that carries so many waits for no others.
        self._company = max(min(COMPANY, runtime.concurrency), runtime.concurrency // 2)
        self._flush_timer: asyncio.TimerHandle | None = None
        self._must_flush = False  # an acknowledgement has waited long enough
        self._suspects = runtime.suspects
        self._original = Original()
        bells = dict(zip(runtime.queue_names, runtime.bells, strict=True))
        self._bells = Bells(bells, shares=runtime.shares, here=self._runs.of_queues)
        self._is_draining = False
        self._is_leaving = False
        self._is_hungry = True  # a turn may bring runs: a bell rang, or a delayed run came due
        self._has_appetite = False  # the last turn brought all that it asked for, so there may be more
        self._due_timer: asyncio.TimerHandle | None = None
        self._beat_timer: asyncio.TimerHandle | None = None
        self._beat_due_s = 0.0

    def drain(self) -> None:
        """Fetch nothing more, finish running jobs, then leave."""
        if not self._is_draining:
            self._is_draining = True
            self._presence.draining()
            log.info("worker_draining", running=self._runs.count)
            self._runs.close()
        self._wake.set()

    def quit(self) -> None:
        """Cancel running jobs, hand them back uncharged, and leave."""
        self.drain()
        self._quit.set()

    def poll_board(self) -> None:
        """Follow the parent's entries on the scoreboard."""
        if self._presence.must_go:
            self.drain()
        unwanted = self._presence.unwanted()
        if unwanted is not None:
            self._runs.end_unwanted(*unwanted)

    async def run(self) -> int:
        """Work until asked to stop; return the exit code.

        Raises:
            SessionLostError: this process was condemned while it lived.
        """
        self._loop = asyncio.get_running_loop()
        self._signals.take()
        self._loop.set_exception_handler(_report_stray)
        self._beat_due_s = self._loop.time()
        self._presence.ready()
        self._beat()
        serving = self._loop.create_task(self._serve())
        listening = self._loop.create_task(self._listen())
        quitting = self._loop.create_task(self._quit.wait())
        try:
            await asyncio.wait({serving, quitting, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()  # it never ends but by a fault
            if serving.done():
                serving.result()
            if self._quit.is_set():
                self._is_leaving = True
                await _cancel(serving, listening)
                await self._abandon()
        finally:
            self._is_leaving = True
            await _cancel(listening, quitting, serving)
            for timer in (self._beat_timer, self._due_timer, self._flush_timer):
                if timer is not None:
                    timer.cancel()
            self._loop_watch.stop()
            await self._runtime.close_async()
            await self._store.close()
        return self._presence.exit_code(has_cut_off=bool(self._runs.interrupted or self._runs.count))

    # Turns ---------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while not await self._opened():
            if self._is_draining:
                return
        while not (self._quit.is_set() or self._is_finished()):
            if self._runs.fault is not None:
                raise self._runs.fault
            if self._has_reason():
                await self._turn()
            elif self._suspects.is_quiet and self._suspects.must_look:
                await self._look_for_suspects()
            else:
                if self._polls.has_work or (self._has_appetite and self._want() > 0):
                    self._flush_soon()
                self._wake.clear()
                await self._wake.wait()
        if self._quit.is_set() or self._polls.is_open or self._polls.refused_acks:
            return  # it may have fetched runs: the agent ends the session, and they go back with it
        with suppress(*STORE_ERRORS):
            await self._store.run(self._runtime.close_session())

    def _has_reason(self) -> bool:
        """Return whether to send a turn now. A small one waits a moment for more to carry, unless none will come."""
        want = self._want() if self._is_hungry or self._has_appetite else 0
        if self._polls.is_open or (self._is_hungry and want > 0):
            return True
        if not (self._polls.has_work or want > 0):
            return False
        is_worth_it = self._polls.waiting >= self._company or want >= self._company
        return is_worth_it or self._must_flush or not self._runs.count or self._is_draining

    def _on_ended(self) -> None:
        self._signals.take()
        if self._suspects.is_quiet and self._runs.is_empty:
            self._is_hungry = True  # this is what it was quiet for
        if self._polls.is_open:
            return  # whoever sent that turn looks at everything when it is over
        if self._has_reason() or self._is_draining or self._runs.fault is not None:
            self._wake.set()
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._must_flush = True
        self._wake.set()

    def _is_finished(self) -> bool:
        if not self._is_draining or not self._runs.is_empty:
            return False
        # An unanswered turn without acknowledgements is not worth waiting for Redis to come back:
        # what it may have fetched was not started, and goes back with the session.
        return not self._polls.has_work or (self._outage.is_on and not self._polls.unsettled)

    async def _opened(self) -> bool:
        try:
            self._runtime.opened(await self._store.run(self._runtime.open_session()))
        except STORE_ERRORS as error:
            await self._pause(self._outage.failed("session", error))
            return False
        return True

    def _want(self) -> int:
        """Return how many runs to ask for now."""
        if self._suspects.is_quiet and self._runs.count:
            return 0
        return self._bells.room(self._runs.free)

    async def _turn(self) -> None:
        self._original.must_be()
        want = self._want()
        is_idle = want > 0 and self._runs.is_empty
        for_suspect = is_idle and self._suspects.may_ask
        call = self._runtime.next_poll(want=want, want_suspect=for_suspect, here=self._runs.of_queues)
        self._is_hungry = self._has_appetite = self._must_flush = False
        try:
            reply = await self._store.run(call, timeout_s=self._runtime.turn_timeout.seconds)
        except STORE_ERRORS as error:
            self._is_hungry = True
            await self._pause(self._runtime.unanswered(error))
            return
        arrived = self._runtime.settle(reply)
        # As many as asked for: there may be more. None could be taken: look again when one can.
        self._has_appetite = len(arrived) >= want
        if is_idle:
            # One suspect comes in place of all others, so it says nothing about them, nor they about suspects.
            has_one = any(fetched.suspect for fetched in arrived)
            self._suspects.asked(for_suspect=for_suspect, has_one=has_one)
            self._has_appetite = self._has_appetite or has_one
            self._is_hungry = self._is_hungry or (not (arrived or for_suspect) and self._suspects.may_ask)
        else:
            self._suspects.begun(len(arrived))
        self._runs.accept(arrived)
        if self._runs.count:
            self._loop_watch.watch()
        if not (self._is_hungry or self._has_appetite):
            self._expect(reply.next_due_ms, reply.now_ms)
            self._may_listen.set()
        if self._suspects.must_look:
            await self._look_for_suspects()

    async def _look_for_suspects(self) -> None:
        waiting, was_quiet = 0, self._suspects.is_quiet
        try:
            for queue in self._runtime.queue_names:
                with suppress(StoreRefusedError):  # a foreign key of one queue hides no suspect of another
                    count = await self._store.run(self._runtime.queues.counts(queue))
                    if count.paused is None:  # else nobody may take one, however much room there is
                        waiting += count.suspects.get(self._runtime.kind, 0)
        except StoreUnavailableError:
            self._suspects.look_later()  # the next turn meets the outage and tells of it
        else:
            if not waiting or self._suspects.is_quiet is was_quiet:  # else others begin before the next try
                self._suspects.looked(waiting, idle_by_ns=self._presence.idle_by_ns)
        if self._suspects.is_quiet:
            # Until then nothing else may happen.
            self._loop.call_later(self._suspects.look_s + 0.001, self._wake.set)
            if not was_quiet:
                self._loop.call_later(self._suspects.quiet_s + 0.001, self._get_hungry)
        elif was_quiet:
            self._get_hungry()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quit.wait(), seconds)

    def _expect(self, next_due_ms: int | None, now_ms: int) -> None:
        """Look again when the next delayed run comes due, by the distance of two of Redis' own times."""
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if next_due_ms is not None:
            # A millisecond late rather than early: loop timers are coarse, and an early look finds nothing.
            self._due_timer = self._loop.call_later(max(0, next_due_ms - now_ms) / 1000 + 0.001, self._get_hungry)

    def _get_hungry(self) -> None:
        self._is_hungry = True
        self._wake.set()

    async def _listen(self) -> None:
        """Wait at the bells of the queues while there are free slots and nothing to fetch."""
        while not self._is_leaving:
            await self._may_listen.wait()
            bells = self._bells.audible()
            try:
                # Without a free slot there is nothing to listen for until one is.
                wait_s = RING_S if self._bells.are_all(bells) else BEAT_S  # else until the share of a queue is free
                effects = self._runtime.listener.ring(self._store, bells, wait_s, pause=self._pause)
                rung = await drive_async(effects, operator.call) if bells else None
                if rung is not None and not (self._want() > 0 and self._bells.is_ours(rung)):
                    # The slot was filled while it listened. Nobody else was told: let somebody who is free be.
                    await self._store.command("RPUSH", rung, "1")
            except STORE_ERRORS as error:
                await self._pause(self._outage.failed("ring", error))
            else:
                if bells:
                    self._presence.redis_answered(is_turn=False)
            self._may_listen.clear()
            self._get_hungry()

    # Stopping ------------------------------------------------------------------------------------

    async def _abandon(self) -> None:
        """Cancel everything and hand it back, within bounds; the agent hands back the rest."""
        await self._runs.cut_off(CANCEL_NOW_S if self._presence.phase is Phase.KILLING else CANCEL_S)
        interrupted, running = len(self._runs.interrupted), self._runs.count
        log.info("worker_quits", interrupted=interrupted, still_running=running, asked=self._presence.was_asked)
        calls = self._runtime.leave(self._runs.interrupted, is_empty=lambda: self._runs.is_empty)
        try:
            await drive_async(calls, partial(self._store.run, timeout_s=LAST_WORDS_S))
        except STORE_ERRORS as error:
            log.warning("worker_left_runs_to_agent", error=str(error))

    # Beats ---------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._original.must_be()
        now_s = self._loop.time()
        lag_s = max(0.0, now_s - self._beat_due_s)
        self._presence.beat(round(lag_s * 1e6))
        metrics.LOOP_LAG_SECONDS.labels("worker").observe(lag_s)
        self._signals.take(is_idle=self._runs.is_empty)
        self.poll_board()
        self._runtime.flush()
        self._runtime.tick()
        self._beat_due_s = now_s + BEAT_S
        self._beat_timer = self._loop.call_at(self._beat_due_s, self._beat)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel until it is heard: a library may lose a cancellation that arrives together with its reply."""
    for _ in range(CANCEL_TRIES):
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
        if not pending:
            return


def _report_stray(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors outside every run: in a task that a job left behind, or in a finaliser."""
    error = context.get("exception")
    log.warning("stray_exception", message=context.get("message"), error=repr(error) if error else None)
