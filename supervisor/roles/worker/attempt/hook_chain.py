"""One attempt on its way through the hooks of its profile: asked before the job is called, informed how it ended.

Guarantees
    Hooks are asked in the order of their profile, point by point: every gate, every filter, every reserve. The first
    refusal ends that; the job is not called.
    Reservations are undone when the attempt ends other than ok, the last first, each once. One whose ``reserve``
    failed or did not answer in time is undone too, since nobody knows whether it took something.
    A process that dies undoes nothing. So an attempt that follows a crash or an interruption begins with undoing, the
    last first, reservations that the one before may have left, before it asks for anything.
    Effects and failures of ``unreserve`` and ``after`` change nothing about the attempt.

Does not guarantee
    That a reservation is undone whose run ends without another attempt, by too many crashes: a reservation needs
    an expiry of its own, and its ``unreserve`` must not mind to be called twice.
    That ``after`` is called for a process that dies, or for a run that is put off: that has not ended.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from supervisor.clock import Clock
from supervisor.core.jobs.hooks import ASKED, HookAnswerError, Point, Veto, VetoedError, plain_reason, read_answer
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.failure import is_clean_exit
from supervisor.roles.worker.attempt.hooks import BoundHook, HookFailedError, Hooks, Pipeline, describe
from supervisor.telemetry import events
from supervisor.telemetry.metrics import HOOK_ANSWERS, HOOK_SECONDS

UNRESERVE = "unreserve"

log = structlog.get_logger("tenure.hooks")


class Passage:
    """One attempt on its way through the hooks of its profile."""

    def __init__(
        self, pipeline: Pipeline, hooks: Hooks, context: Context, clock: Clock, *, may_have_left: bool = False
    ) -> None:
        """Build it.

        Args:
            pipeline: of this process.
            hooks: of the run's profile.
            context: of the attempt.
            clock: of this machine.
            may_have_left: an execution of this run was cut off before, so its reservations may not be undone.
        """
        self._pipeline = pipeline
        self._hooks = hooks
        self._context = context
        self._key = context.queue, context.run_id
        self._clock = clock
        self._reserved: list[BoundHook] = list(hooks.at[Point.RESERVE]) if may_have_left else []

    # Without a loop ------------------------------------------------------------------------------

    def run(self, call: Callable[[], Any]) -> Any:
        """Ask, do the run's work, report; raises the exceptions of the job, or VetoedError."""
        try:
            value = self._enter_and_call(call)
        except BaseException as error:
            self._leave(error)
            raise
        self._leave(None)
        return value

    def _leave(self, error: BaseException | None) -> None:
        """Undo, and report. The attempt has ended, so nothing that happens here may change how."""
        try:
            self._undo_and_tell(error)
        except BaseException as failure:  # noqa: BLE001 - a stop that arrives here is obeyed by the pool
            log.warning("hooks_cut_off", run=self._context.run_id, error=repr(failure))

    def _enter_and_call(self, call: Callable[[], Any]) -> Any:
        self._undo(is_last=False)  # what an execution that was cut off may have left
        for point in ASKED:
            for asked in self._hooks.at[point]:
                self._ask(asked, point)
        self._pipeline.settled(self._key)
        dispatcher = self._hooks.dispatcher
        return call() if dispatcher is None else self._dispatch(dispatcher)

    def _ask(self, asked: BoundHook, point: Point) -> None:
        started_ns = self._asking(asked, point)
        try:
            answer = self._pipeline.call(asked, point.value, self._context)
            veto = read_answer(asked.name, point.value, answer)
        except (HookFailedError, HookAnswerError) as error:
            veto = self._failed(asked, point, error)
        finally:
            self._measure(asked, point.value, started_ns)
        self._answered(asked, point, veto)

    def _dispatch(self, asked: BoundHook) -> Any:
        method = asked.method(Point.DISPATCH.value)
        return asyncio.run(method(self._context)) if inspect.iscoroutinefunction(method) else method(self._context)

    def _undo(self, *, is_last: bool = True) -> None:
        while self._reserved:
            asked = self._reserved.pop()
            started_ns = self._clock.elapsed_ns()
            try:
                self._pipeline.call(asked, UNRESERVE, self._context)
            except BaseException as error:  # noqa: BLE001 - one more timeout, or a stop, must not skip the others
                self._undone(asked, error, is_last=is_last)
            self._measure(asked, UNRESERVE, started_ns)

    def _undo_and_tell(self, error: BaseException | None) -> None:
        outcome, text = _outcome(error)
        if outcome != "ok":
            self._undo()
        for asked in self._hooks.at[Point.AFTER] if outcome != "deferred" else ():
            started_ns = self._clock.elapsed_ns()
            try:
                self._pipeline.call(asked, Point.AFTER.value, self._context, outcome, text)
            except BaseException as failure:  # noqa: BLE001 - a stop that arrives here is obeyed by the pool
                _report(asked, Point.AFTER.value, failure)
            self._measure(asked, Point.AFTER.value, started_ns)

    # In a loop -----------------------------------------------------------------------------------

    async def run_async(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as ``run`` does for a coroutine job."""
        try:
            value = await self._enter_and_call_async(call)
        except BaseException as error:
            await self._leave_async(error)
            raise
        await self._leave_async(None)
        return value

    async def _enter_and_call_async(self, call: Callable[[], Awaitable[Any]]) -> Any:
        await self._undo_async(is_last=False)
        for point in ASKED:
            for asked in self._hooks.at[point]:
                await self._ask_async(asked, point)
        self._pipeline.settled(self._key)
        dispatcher = self._hooks.dispatcher
        return await (call() if dispatcher is None else self._dispatch_async(dispatcher))

    async def _ask_async(self, asked: BoundHook, point: Point) -> None:
        started_ns = self._asking(asked, point)
        try:
            answer = await self._pipeline.call_async(asked, point.value, self._context)
            veto = read_answer(asked.name, point.value, answer)
        except (HookFailedError, HookAnswerError) as error:
            veto = self._failed(asked, point, error)
        finally:
            self._measure(asked, point.value, started_ns)
        self._answered(asked, point, veto)

    async def _dispatch_async(self, asked: BoundHook) -> Any:
        method = asked.method(Point.DISPATCH.value)
        if inspect.iscoroutinefunction(method):
            return await method(self._context)
        return await asyncio.to_thread(method, self._context)

    async def _undo_async(self, *, is_last: bool = True) -> None:
        while self._reserved:
            asked = self._reserved.pop()
            started_ns = self._clock.elapsed_ns()
            try:
                await self._pipeline.call_async(asked, UNRESERVE, self._context)
            except BaseException as error:  # noqa: BLE001 - one more cancellation must not skip the others
                self._undone(asked, error, is_last=is_last)
            self._measure(asked, UNRESERVE, started_ns)

    async def _leave_async(self, error: BaseException | None) -> None:
        outcome, text = _outcome(error)
        if outcome != "ok":
            await self._undo_async()
        for asked in self._hooks.at[Point.AFTER] if outcome != "deferred" else ():
            started_ns = self._clock.elapsed_ns()
            try:
                await self._pipeline.call_async(asked, Point.AFTER.value, self._context, outcome, text)
            except BaseException as failure:  # noqa: BLE001 - the job has ended, whatever happens here
                _report(asked, Point.AFTER.value, failure)
            self._measure(asked, Point.AFTER.value, started_ns)

    # What both share -----------------------------------------------------------------------------

    def _undone(self, asked: BoundHook, error: BaseException, *, is_last: bool) -> None:
        """Report an ``unreserve`` that failed. A request to end an attempt that has yet to begin ends it."""
        _report(asked, UNRESERVE, error)
        if not is_last and not isinstance(error, Exception):
            self._reserved.append(asked)  # undone with the others, on the way out
            raise error

    def _asking(self, asked: BoundHook, point: Point) -> int:
        if point is Point.RESERVE:
            self._reserved.append(asked)  # until it says no: nobody knows what one took that fails, or is cut off
        return self._clock.elapsed_ns()

    def _answered(self, asked: BoundHook, point: Point, veto: Veto | None) -> None:
        """Go on, or raise the hook's refusal."""
        if veto is None:
            HOOK_ANSWERS.labels(asked.name, point.value, "admit").inc()
            return
        if veto.is_failure and asked.is_ignorable:
            HOOK_ANSWERS.labels(asked.name, point.value, "ignored").inc()
            return
        if point is Point.RESERVE and not veto.is_failure:
            self._reserved.pop()  # it is the last that was asked
        final = self._pipeline.final(veto, self._key, self._hooks.defer_max_s)
        if not veto.is_failure:
            HOOK_ANSWERS.labels(asked.name, point.value, "reject" if final.delay_s is None else "defer").inc()
        raise VetoedError(final)

    @staticmethod
    def _failed(asked: BoundHook, point: Point, error: Exception) -> Veto:
        _report(asked, point.value, error)
        return Veto(asked.name, point.value, plain_reason(str(error)), is_failure=True)

    def _measure(self, asked: BoundHook, point: str, started_ns: int) -> None:
        HOOK_SECONDS.labels(asked.name, point).observe((self._clock.elapsed_ns() - started_ns) / SECOND_NS)


def _report(asked: BoundHook, point: str, error: BaseException) -> None:
    """Report a hook that failed: folded, since it may fail for every run."""
    HOOK_ANSWERS.labels(asked.name, point, "error").inc()
    events.record("hook_failed", f"{point} {describe(error)}", subject=asked.name, level="warning", point=point)


def _outcome(error: BaseException | None) -> tuple[str, str]:
    """Return how an attempt ended, as passed to hooks, and why: ok, failed, rejected, deferred or stopped."""
    if error is None or is_clean_exit(error):
        return "ok", ""
    if isinstance(error, VetoedError):
        return "rejected" if error.veto.delay_s is None else "deferred", str(error)
    if isinstance(error, asyncio.CancelledError | SoftTimeout | Interrupted):
        return "stopped", type(error).__name__
    return "failed", describe(error)


OWN = (Passage.run, Passage._leave)  # noqa: SLF001 - this module's own
"""Ours around a plain job: an exception raised into their code would fail a job that has returned."""
