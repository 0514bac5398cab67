"""Hooks of one attempt: asked before the job is called, informed how it ended.

Guarantees
    Hooks are asked in the order of their profile, point by point: every gate, every filter, every reserve. The first
    refusal ends that; the job is not called.
    Reservations are undone when the attempt ends other than ok, the last first, each once. One whose ``reserve``
    failed or did not answer in time is undone too, since nobody knows whether it took something. A soft timeout or a
    cancel that comes meanwhile cuts no ``unreserve`` off.
    ``unreserve`` and ``after`` that hang are given up before the hard timeout of the run: they get no process killed.
    A process that dies undoes nothing. So an attempt that follows a crash or an interruption begins with undoing, the
    last first, reservations that the one before may have left, before it asks for anything.
    Effects and failures of ``unreserve`` and ``after`` change nothing about the attempt.

Does not guarantee
    That a reservation is undone whose process dies and whose run gets no other attempt, by too many crashes, a cancel
    or ``at_most_once``: it needs an expiry of its own, and its ``unreserve`` must not mind to be called twice.
    That ``after`` is called for a process that dies, or for a run that is put off: that has not ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from typing import Any

from supervisor.clock import Clock
from supervisor.core.jobs.hooks import ASKED, HookAnswerError, Point, Veto, VetoedError, plain_reason, read_answer
from supervisor.core.model import Kind
from supervisor.core.retry import Again
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.calls import Calls, Ended
from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.failure import is_clean_exit
from supervisor.roles.worker.attempt.hooks import BoundHook, HookFailedError, Hooks, Pipeline, describe
from supervisor.roles.worker.attempt.result_check import is_undone, work_undone
from supervisor.roles.worker.attempt.run_memory import waiting_key
from supervisor.roles.worker.attempt.run_output import MESSAGE_CHARS_MAX
from supervisor.roles.worker.process.loop_tasks import own_task
from supervisor.telemetry import events
from supervisor.telemetry.masking import mask_text, text_of
from supervisor.telemetry.metrics import HOOK_ANSWERS, HOOK_SECONDS

UNRESERVE = "unreserve"

_DO_IT = "do it there, define hooks that await with async def"
_Deciding = Generator[Callable[[], Any], Ended, BaseException | None]


TO_END_S, SHARE = 0.3, 1 / 3
"""Time to keep before the hard timeout, at most half of that from the soft one; share of the rest once it is used."""


class HookChain:
    """Hooks of one attempt."""

    def __init__(
        self,
        pipeline: Pipeline,
        hooks: Hooks,
        context: Context,
        clock: Clock,
        *,
        born: int = 0,
        may_have_left: bool = False,
    ) -> None:
        """Build it.

        Args:
            pipeline: of this process.
            hooks: of the run's profile.
            context: of the attempt.
            clock: of this machine.
            born: when the run was enqueued.
            may_have_left: an execution of this run was cut off before, so its reservations may not be undone.
        """
        self._pipeline = pipeline
        self._hooks = hooks
        self._context = context
        self._key = waiting_key(context.queue, context.run_id, born=born, fence=context.fence)
        self._clock = clock
        self._reserved: list[BoundHook] = list(hooks.at[Point.RESERVE]) if may_have_left else []
        dispatcher = hooks.dispatcher
        self.dispatch = None if dispatcher is None else pipeline.dispatch(dispatcher, context)
        """Call that does the run's work in the job's place; None: the job does."""

    def ask(self) -> _Deciding:
        """Ask every hook; return what keeps the job from being called: VetoedError, or a request to stop."""
        error = yield from self._undo(is_last=False)  # what an execution that was cut off may have left
        for point in ASKED:
            for asked in self._hooks.at[point]:
                if error is None:
                    error = yield from self._ask(asked, point)
        if error is None:
            self._pipeline.settled(self._key)
        return error

    def tell(self, error: BaseException | None) -> Generator[Callable[[], Any], Ended, None]:
        """Undo reservations of an attempt that ended by ``error``, and report its end."""
        outcome, text = _outcome(error)
        if outcome != "ok":
            yield from self._undo()
        for asked in self._hooks.at[Point.AFTER] if outcome != "deferred" else ():
            _, failure = yield from self._call(asked, Point.AFTER.value, outcome, text)
            if failure is not None:
                _report(asked, Point.AFTER.value, failure)

    def _call(self, asked: BoundHook, method: str, *args: str) -> Calls:
        started_ns = self._clock.elapsed_ns()
        within_s = time_after(self._context) if method in (UNRESERVE, Point.AFTER) else math.inf
        call = self._pipeline.step(asked, method, self._context, *args, within_s=within_s)
        if method == UNRESERVE and self._context.kind is Kind.ASYNC:  # of a sync pool a thread makes it, and goes on
            call = partial(_uncut, call)
        answer, error = yield call
        if is_undone(answer, self._context.kind):
            answer, error = None, HookFailedError(str(work_undone(answer, "it", remedy=_DO_IT)))
        HOOK_SECONDS.labels(asked.name, method).observe((self._clock.elapsed_ns() - started_ns) / SECOND_NS)
        return answer, error

    def _ask(self, asked: BoundHook, point: Point) -> _Deciding:
        if point is Point.RESERVE:
            self._reserved.append(asked)  # until it says no: nobody knows what one took that fails, or is cut off
        answer, error = yield from self._call(asked, point.value)
        veto = None
        if error is None:
            try:
                veto = read_answer(asked.name, point.value, answer)
            except HookAnswerError as unreadable:
                error = unreadable
        if isinstance(error, HookFailedError | HookAnswerError):
            _report(asked, point.value, error)
            veto = Veto(asked.name, point.value, plain_reason(str(error)), is_failure=True)
        elif error is not None:
            return error
        return self._refusal(asked, point, veto)

    def _refusal(self, asked: BoundHook, point: Point, veto: Veto | None) -> VetoedError | None:
        """Return what a hook's answer means for the attempt; None: it goes on."""
        if veto is None:
            HOOK_ANSWERS.labels(asked.name, point.value, "admit").inc()
            return None
        if veto.is_failure and asked.is_ignorable:
            HOOK_ANSWERS.labels(asked.name, point.value, "ignored").inc()
            return None
        if point is Point.RESERVE and not veto.is_failure:
            self._reserved.pop()  # it is the last that was asked
        final = self._pipeline.final(veto, self._key, self._hooks.defer_max_s)
        if not veto.is_failure:
            HOOK_ANSWERS.labels(asked.name, point.value, "reject" if final.delay_s is None else "defer").inc()
        return VetoedError(final)

    def _undo(self, *, is_last: bool = True) -> _Deciding:
        """Undo reservations. A request to end an attempt that has yet to begin ends it, and is returned."""
        while self._reserved:
            asked = self._reserved.pop()
            _, error = yield from self._call(asked, UNRESERVE)
            if isinstance(error, Exception):
                _report(asked, UNRESERVE, error)
            elif error is not None and not is_last:
                self._reserved.append(asked)  # undone with the others, on the way out
                return error
        return None


def time_after(context: Context) -> float:
    """Return the seconds that one more call may take of an attempt whose job has ended, so that it ends in time."""
    if context.deadline_ns is None or context.soft_deadline_ns is None:
        return math.inf
    kept_s = min(TO_END_S, (context.deadline_ns - context.soft_deadline_ns) / SECOND_NS / 2)
    left_s = context.remaining_s()
    return max(left_s * SHARE, left_s - kept_s)


async def _uncut(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Make a call that has a time limit of its own; a request to end this task meanwhile is heeded after it."""
    task, is_cancelled = own_task(call(), copy_context()), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if not is_cancelled or task.cancelled():
        return task.result()
    task.exception()  # else the loop reports that nobody looked at it
    raise asyncio.CancelledError


def _report(asked: BoundHook, point: str, error: BaseException) -> None:
    """Report a hook that failed: folded, since it may fail for every run."""
    HOOK_ANSWERS.labels(asked.name, point, "error").inc()
    events.record("hook_failed", f"{point} {describe(error)}", subject=asked.name, level="warning", point=point)


def _outcome(error: BaseException | None) -> tuple[str, str]:
    """Return how an attempt ended (ok, failed, rejected, deferred or stopped), as passed to hooks, and why, masked."""
    if error is None or is_clean_exit(error):
        return "ok", ""
    if isinstance(error, VetoedError):
        return "rejected" if error.veto.delay_s is None else "deferred", mask_text(str(error), MESSAGE_CHARS_MAX)
    if isinstance(error, Again):
        return "again", mask_text(text_of(error), MESSAGE_CHARS_MAX)
    if isinstance(error, asyncio.CancelledError | SoftTimeout | Interrupted):
        return "stopped", type(error).__name__
    return "failed", describe(error)
