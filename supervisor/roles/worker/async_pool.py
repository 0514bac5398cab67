"""The async pool: one event loop, many coroutine jobs at once (async_runs.py).

Guarantees
    One turn is on its way at a time. A turn goes out when something happened: a run ended, a bell
    rang, a delayed run came due. Nothing is polled, but for one look every two seconds at most.
    An outage of Redis stops nothing that runs, and ends no process.

Does not guarantee
    That jobs are protected from one another: a job that does not await stops them all, and one that
    overruns its hard timeout takes the process with it. The lag of the loop is measured, and a
    warning names the jobs that run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import structlog

from supervisor.core.board import Phase
from supervisor.core.errors import EXIT_OK
from supervisor.roles.worker import suspects
from supervisor.roles.worker.async_runs import AsyncRuns
from supervisor.roles.worker.outage import STORE_ERRORS
from supervisor.roles.worker.suspects import SuspectWatch
from supervisor.roles.worker.workplace import Workplace
from supervisor.store.client import AsyncStore
from supervisor.telemetry import metrics

BEAT_S = 0.2
LAG_WARNING_S = 0.1
LAG_WARNING_EVERY_S = 5.0
LAG_JOBS_NAMED_MAX = 10
RING_S = 2.0
FLUSH_S = 0.002  # how long an acknowledgement waits for others, while other jobs run anyway
CANCEL_S = 1.0  # how long cancelled jobs may clean up; the parent kills two seconds after it asked
CANCEL_NOW_S = 0.1  # the same when everything must be gone within half a second
CANCEL_TRIES, CANCEL_AGAIN_S = 10, 0.05
LAST_WORDS_S = 0.2  # how long each last call to Redis may take then

log = structlog.get_logger("tenure.worker")


class AsyncPool:
    """One worker process of an async pool."""

    def __init__(self, workplace: Workplace, store: AsyncStore) -> None:
        self._at = workplace
        self._store = store
        self._presence = workplace.presence
        self._wake = asyncio.Event()
        self._may_listen = asyncio.Event()
        self._quit = asyncio.Event()
        self._runs = AsyncRuns(workplace, on_ended=self._wake.set)
        self._suspects = SuspectWatch(workplace.clock, workplace.uniform)
        self._is_draining = False
        self._is_leaving = False
        self._is_hungry = True  # a turn may bring runs
        self._due_timer: asyncio.TimerHandle | None = None
        self._beat_timer: asyncio.TimerHandle | None = None
        self._beat_due_s = 0.0
        self._lag_warned_s = float("-inf")

    def drain(self) -> None:
        """Fetch nothing more, finish what runs, then leave."""
        if not self._is_draining:
            self._is_draining = True
            self._presence.draining()
            log.info("worker_draining", running=self._runs.count)
            self._runs.close()
        self._wake.set()

    def quit(self) -> None:
        """Cancel what runs, hand it back uncharged, and leave."""
        self.drain()
        self._quit.set()

    def look(self) -> None:
        """Follow what the parent wrote on the scoreboard."""
        if self._presence.phase >= Phase.DRAINING:
            self.drain()
        unwanted = self._presence.unwanted()
        if unwanted is not None:
            self._runs.end_unwanted(unwanted)

    async def run(self) -> int:
        """Work until told to stop; return the exit code.

        Raises:
            SessionLostError: this process was condemned while it lived.
        """
        self._loop = asyncio.get_running_loop()
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
            for timer in (self._beat_timer, self._due_timer):
                if timer is not None:
                    timer.cancel()
            await self._store.close()
        return EXIT_OK

    # Turns ---------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while not await self._opened():
            if self._is_draining:
                return
        while not (self._quit.is_set() or self._is_finished()):
            if self._runs.fault is not None:
                raise self._runs.fault
            if self._at.turns.has_work or (self._is_hungry and self._want() > 0):
                await self._turn()
            else:
                self._wake.clear()
                await self._wake.wait()
        if self._quit.is_set() or self._at.turns.is_open:
            return  # it may have fetched runs: the agent ends the session, and they go back with it
        with suppress(*STORE_ERRORS):
            await self._store.run(self._at.close_session())

    def _is_finished(self) -> bool:
        if not self._is_draining or not self._runs.is_empty:
            return False
        # An unanswered turn without acknowledgements is not worth waiting for Redis to come back:
        # what it may have fetched was not started, and goes back with the session.
        turns = self._at.turns
        return not turns.has_work or (self._at.outage.is_on and not turns.unsettled)

    async def _opened(self) -> bool:
        try:
            self._at.opened(await self._store.run(self._at.open_session()))
        except STORE_ERRORS as error:
            await self._pause(self._at.outage.failed("session", error))
            return False
        return True

    def _want(self) -> int:
        """Return how many runs to ask for now."""
        if self._suspects.is_quiet and self._runs.count:
            return 0
        return self._runs.free

    async def _turn(self) -> None:
        if self._runs.count and not self._at.turns.is_open:
            await asyncio.sleep(FLUSH_S)
        want = self._want()
        is_idle = want > 0 and not self._runs.count
        call = self._at.turns.call(want=want, want_suspect=is_idle)
        self._is_hungry = False
        asked_ns = self._at.clock.elapsed_ns()
        try:
            reply = await self._store.run(call)
        except STORE_ERRORS as error:
            self._is_hungry = True
            await self._pause(self._at.outage.failed("turn", error))
            return
        arrived = self._at.settle(reply, asked_ns=asked_ns)
        # As many as asked for: there may be more. None could be taken: look again when one can.
        self._is_hungry = len(arrived) >= want
        if is_idle:
            # One suspect comes in place of all others, so it says nothing about them.
            self._suspects.asked()
            self._is_hungry = self._is_hungry or any(fetched.suspect for fetched in arrived)
        self._runs.accept(arrived)
        if not self._is_hungry:
            self._expect(reply.next_due_ms, reply.now_ms)
            self._may_listen.set()
        if self._suspects.must_look:
            await self._look_for_suspects()

    async def _look_for_suspects(self) -> None:
        try:
            counts = [await self._store.run(self._at.queues.counts(queue)) for queue in self._at.queue_names]
        except STORE_ERRORS:
            return  # the next turn meets the outage and tells of it
        self._suspects.looked(sum(count.suspects.get(self._at.kind, 0) for count in counts))
        if self._suspects.is_quiet:
            self._loop.call_later(suspects.QUIET_S, self._get_hungry)  # nothing else may happen until then

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
            try:
                await self._store.ring(self._at.bells, RING_S)
            except STORE_ERRORS as error:
                await self._pause(self._at.outage.failed("ring", error))
            else:
                self._presence.redis_answered()
            self._may_listen.clear()
            self._get_hungry()

    # Stopping ------------------------------------------------------------------------------------

    async def _abandon(self) -> None:
        """Cancel everything and hand it back, within bounds; what is left the agent hands back."""
        await self._runs.cut_off(CANCEL_NOW_S if self._presence.phase is Phase.KILLING else CANCEL_S)
        log.info("worker_quits", interrupted=len(self._runs.interrupted), still_running=self._runs.count)
        try:
            await self._last_words()
        except STORE_ERRORS as error:
            log.warning("worker_left_runs_to_agent", error=str(error))

    async def _last_words(self) -> None:
        turns = self._at.turns
        while turns.has_work:
            asked_ns = self._at.clock.elapsed_ns()
            reply = await self._store.run(turns.call(want=0), timeout_s=LAST_WORDS_S)
            self._runs.accept(self._at.settle(reply, asked_ns=asked_ns))  # closed: it gives them back
        interrupted = self._runs.interrupted
        if interrupted:
            await self._store.run(self._at.hand_back(interrupted), timeout_s=LAST_WORDS_S)
            self._at.handed_back(interrupted)
        if self._runs.is_empty:
            await self._store.run(self._at.close_session(), timeout_s=LAST_WORDS_S)

    # Beats ---------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now_s = self._loop.time()
        lag_s = max(0.0, now_s - self._beat_due_s)
        self._presence.beat(round(lag_s * 1e6))
        metrics.LOOP_LAG_SECONDS.labels("worker").observe(lag_s)
        if lag_s > LAG_WARNING_S and now_s - self._lag_warned_s > LAG_WARNING_EVERY_S:
            self._lag_warned_s = now_s
            jobs = self._runs.names()[:LAG_JOBS_NAMED_MAX]
            log.warning("loop_lag", lag_s=round(lag_s, 3), running=self._runs.count, jobs=jobs)
        self.look()
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
    """Log what went wrong outside every run: in a task that a job left behind, or in a finaliser."""
    error = context.get("exception")
    log.warning("stray_exception", message=context.get("message"), error=repr(error) if error else None)
