"""Progress of runs, from jobs to Redis: never more often than people look, and never on the job's way.

Guarantees
    A run's progress is written at most once a second, the last one when it ends.
    An outage of Redis neither fails a job nor slows a coroutine one; a plain one waits for at most one call
    in ten seconds.

Does not guarantee
    That every value is written: a newer one takes the place of one that waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import structlog

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Kind
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.process.loop_tasks import own_task
from supervisor.store.queues.run_records import Progresses, ProgressItem
from supervisor.telemetry import events

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

EVERY_NS = SECOND_NS
AFTER_FAILURE_NS = 10_000_000_000
ITEMS_MAX = 200
CALL_S = 1.0  # how long a plain job waits for one call
LAST_S = 0.5  # how long the last values may take when the process leaves

log = structlog.get_logger("tenure.worker")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Progress:
    """Progress that the runs of this process reported and Redis does not have yet."""

    def __init__(self, clock: Clock, runner: Producer | None) -> None:
        self._clock = clock
        self._runner = runner
        self._calls = None if runner is None else Progresses(runner.keys)
        self._waiting: dict[str, ProgressItem] = {}  # by run: the newest value, not sent
        self._next_ns: dict[str, int] = {}  # by run of a plain job: when it may be sent again
        self._mute_until_ns = 0
        self._is_event = events.run_events() == "all"
        self._loop = _running_loop()
        self._sending: asyncio.Task[None] | None = None

    def report(self, context: Context, item: ProgressItem) -> None:
        """Take a value; it is sent when the last one was long enough ago."""
        # As it is now: the job may change what it gave before that is sent.
        value = None if item.value is None else msgspec.Raw(msgspec.json.encode(item.value))
        self._waiting[context.run_id] = msgspec.structs.replace(item, value=value)
        if self._is_event:
            events.record("run_progress", subject=context.job, is_logged=True, run=context.run_id)
        if self._calls is None:
            return
        if context.kind is Kind.ASYNC:
            self._wake()
        elif self._clock.elapsed_ns() >= self._next_ns.get(context.run_id, 0):
            self._next_ns[context.run_id] = self._clock.elapsed_ns() + EVERY_NS
            self._send_one(context)

    def ended(self, context: Context) -> None:
        """Send the rest of a plain job; a coroutine job's goes with the next batch."""
        if context.kind is Kind.SYNC:
            self._next_ns.pop(context.run_id, None)
            self._send_one(context)

    def _send_one(self, context: Context) -> None:
        item = self._waiting.pop(context.run_id, None)
        if item is None or self._runner is None or self._calls is None:
            return
        now_ns = self._clock.elapsed_ns()
        if now_ns < self._mute_until_ns:
            return
        try:
            # Twice this, if a connection is found dead, and still far from the moment at which the job is killed.
            self._runner.run(self._calls.write([item]), timeout_s=min(CALL_S, context.remaining_s() / 4 + 0.001))
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._mute_until_ns = self._clock.elapsed_ns() + AFTER_FAILURE_NS
        log.warning("progress_lost", error=str(error))

    # Coroutine jobs ------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._sending is not None or self._loop is None:
            return
        with suppress(RuntimeError):  # the loop is closed: nobody will read this any more
            # Jobs may report from threads of theirs.
            self._loop.call_soon_threadsafe(self._begin_sending)

    def _begin_sending(self) -> None:
        if self._sending is None and self._loop is not None:
            self._sending = own_task(self._send_all(), contextvars.Context())

    async def _send_all(self) -> None:
        """Send waiting progress, all runs in one call, at most once a second, until nothing waits."""
        try:
            while self._waiting:
                if self._clock.elapsed_ns() >= self._mute_until_ns:
                    await self._send_batch()
                await asyncio.sleep(EVERY_NS / SECOND_NS)
        finally:
            self._sending = None

    async def _send_batch(self) -> None:
        assert self._runner is not None
        assert self._calls is not None
        batch = dict(islice(self._waiting.items(), ITEMS_MAX))
        try:
            await self._runner.run_async(self._calls.write([*batch.values()]))
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._failed(error)
        for run_id, item in batch.items():  # not before: a process that leaves cancels this, and sends the rest itself
            if self._waiting.get(run_id) is item:
                del self._waiting[run_id]

    async def close_async(self, within_s: float) -> None:
        """Send waiting progress, if that takes no longer than ``within_s``."""
        if self._sending is not None:
            self._sending.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within_s, LAST_S)):
                while self._waiting and self._calls is not None:
                    await self._send_batch()
