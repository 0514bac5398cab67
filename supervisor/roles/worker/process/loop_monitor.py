"""Detection of the job that blocks an event loop.

A job that computes, or calls something that blocks, holds up every other one in its process. That the loop was
late is easily seen afterwards; whose fault it was is not, for by then another task runs. So a timer of the
kernel is set a little beyond the loop's next tick. It only ever fires while the loop does not turn, and then its
handler looks which run is being executed.

Guarantees
    A loop that turns is never interrupted.
    A job is named by the context of the code that blocked, so tasks that it started count as the job itself.

Does not guarantee
    That a call into C is seen while it lasts: handlers run between two steps of Python, so it is named when it
    returns. Where a process hangs for good, the parent writes its stack before it kills it.
    That the job is to blame where the machine gave the process no processor.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NamedTuple

import structlog

from supervisor.telemetry import metrics
from supervisor.telemetry.run_context import current_run

TICK_S = 0.05
BLOCK_S = 0.1
TELL_EVERY_S = 60.0
JOBS_NAMED_MAX = 10
_JOBS_MAX = 1000

log = structlog.get_logger("tenure.worker")


class Culprit(NamedTuple):
    """Run that blocked the loop, and its place in the code."""

    run: str
    job: str
    queue: str
    where: str  # file:line function


class LoopWatch:
    """The tick of one event loop, while it executes runs."""

    def __init__(
        self, *, running: Callable[[], Sequence[str]], queue_of: Callable[[str], str | None], is_sampling: bool
    ) -> None:
        """Build it.

        Args:
            running: returns the jobs that run, each once.
            queue_of: returns the queue of a run that is executed here; None: it is not.
            is_sampling: whether to look for the culprit by a timer: takes SIGALRM, so only in a process of our own.
        """
        self._running = running
        self._queue_of = queue_of
        self._is_sampling = is_sampling
        self._tick_timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._culprit: Culprit | None = None
        self._told: dict[str, tuple[float, int]] = {}  # job: when it was told last, how often it blocked since

    def watch(self) -> None:
        """Watch from now on, until ``stop``."""
        if self._tick_timer is None:
            self._loop = asyncio.get_running_loop()
            self._next(self._loop.time())

    def stop(self) -> None:
        """Watch no more: nothing runs."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
            self._set_timer(0.0)

    def _tick(self) -> None:
        now_s = self._loop.time()
        lag_s = now_s - self._due_s
        if lag_s >= BLOCK_S:
            self._tell(lag_s, now_s)
        self._culprit = None
        if self._running():
            self._next(now_s)
        else:
            self.stop()

    def _next(self, now_s: float) -> None:
        self._due_s = now_s + TICK_S
        self._tick_timer = self._loop.call_at(self._due_s, self._tick)
        if self._is_sampling and signal.getsignal(signal.SIGALRM) != self._sample:
            signal.signal(signal.SIGALRM, self._sample)  # that of a job would be called in whatever blocks next
        self._set_timer(TICK_S + BLOCK_S)

    def _set_timer(self, seconds: float) -> None:
        if self._is_sampling:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        """Look who is being executed; the loop has not turned for too long."""
        fields = current_run()
        if fields is None or frame is None:
            return
        queue = self._queue_of(fields["run"])
        if queue is not None:
            path = "/".join(frame.f_code.co_filename.split("/")[-2:])
            where = f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
            self._culprit = Culprit(fields["run"], fields["job"], queue, where)

    def _tell(self, lag_s: float, now_s: float) -> None:
        culprit = self._culprit
        if culprit is None:
            if self._may_tell("", now_s) is not None:
                jobs = list(self._running())[:JOBS_NAMED_MAX]
                log.warning("loop_lag", lag_s=round(lag_s, 3), jobs=jobs)
            return
        metrics.JOB_BLOCKED_LOOP.labels(culprit.queue, culprit.job).inc()
        further = self._may_tell(culprit.job, now_s)
        if further is not None:
            log.warning(
                "job_blocks_loop",
                job=culprit.job,
                run=culprit.run,
                lag_s=round(lag_s, 3),
                where=culprit.where,
                further=further,
            )

    def _may_tell(self, job: str, now_s: float) -> int | None:
        """Return how often ``job`` blocked unreported since its last report; None if it is not to be reported now."""
        told_s, further = self._told.get(job, (float("-inf"), 0))
        if now_s - told_s < TELL_EVERY_S:
            self._told[job] = told_s, further + 1
            return None
        if len(self._told) >= _JOBS_MAX:
            self._told.clear()
        self._told[job] = now_s, 0
        return further
