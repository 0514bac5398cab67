"""Questions about a run that its caller may ask: state, result, end on request, runs below it.

Each is a generator of effects, calls of the store and waits, written once and driven either by the calling thread or in
the caller's event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

from supervisor.clock import Clock
from supervisor.core.durations import delay_to_ms
from supervisor.core.effects import drive, drive_async
from supervisor.core.errors import ResultGoneError, RunTimeoutError, StoreUnavailableError
from supervisor.core.units import SECOND_NS
from supervisor.store.keys import Keys
from supervisor.store.producer.run_status import (
    ChildPage,
    ChildRun,
    RunPhase,
    RunStatus,
    checked_page,
    result_of,
    status_of,
)
from supervisor.store.producer.waiting import RunWaits
from supervisor.store.queues.control import CancelCode, QueueControl
from supervisor.store.queues.reads import HISTORY_SCAN, Need, QueueReads, RunView
from supervisor.store.queues.run_records import RunEnds, Tallies, Tally
from supervisor.store.queues.run_search import await_runs, search
from supervisor.store.scripts import Call
from supervisor.store.wire.envelope import check_run_id
from supervisor.store.wire.poll import HISTORY

T = TypeVar("T")
Timeout: TypeAlias = float | str | timedelta | None
AGAIN_NS = SECOND_NS
RETURNS_MAX = 3
"""How often a run that came back to life is asked for at once; then the two questions contradict each other."""


@dataclass(frozen=True, slots=True)
class WaitForEnd:
    """Wait until the run may have ended; answer whether that is so, or False at ``until_ns``; None: no bound.

    ``is_deaf``: until then, whatever is heard.
    """

    until_ns: int | None
    is_deaf: bool = False


Effects: TypeAlias = Generator[Call[Any] | WaitForEnd, Any, T]


class RunQueries:
    """Asks about runs of one cluster."""

    def __init__(
        self,
        keys: Keys,
        *,
        clock: Clock,
        run: Callable[[Call[Any]], Any],
        run_async: Callable[[Call[Any]], Awaitable[Any]],
        waits: RunWaits,
        in_place_of_waiting: Callable[[float | None], object] | None = None,
    ) -> None:
        """Build it; ``in_place_of_waiting``: done once where it would wait so many seconds, without other processes."""
        self._cluster = keys.cluster
        self._clock = clock
        self._run = run
        self._run_async = run_async
        self.waits = waits
        self._in_place_of_waiting = in_place_of_waiting
        self._reads = QueueReads(keys)
        self._ends = RunEnds(keys)
        self._control = QueueControl(keys)
        self._tallies = Tallies(keys)

    def status(self, run_id: str, queue: str) -> Effects[RunStatus]:
        """State of a run; where it ended, as far as history reaches."""
        view = yield from self._view(check_run_id(run_id), queue, need="history")
        return status_of(run_id, view)

    def cancel(self, run_id: str, queue: str, reason: str) -> Effects[bool]:
        """End a run on request; return whether it was ended or asked to end."""
        (done,) = yield self._control.cancel([(queue, check_run_id(run_id))], by="producer", reason=reason)
        if done.code is CancelCode.UNKNOWN and queue:
            view = yield self._reads.show(run_id, [queue], need="end", scan=HISTORY)
            if status_of(run_id, view).state is not RunPhase.GONE:
                return False  # another queue may hold a run of the same id
            (done,) = yield self._control.cancel([("", run_id)], by="producer", reason=reason)
        return done.code in {CancelCode.CANCELLED, CancelCode.ASKED}

    def tally(self, run_id: str) -> Effects[Tally | None]:
        """Counts of the runs below a run."""
        found: Tally | None = yield self._tallies.read(run_id)
        return found

    def children(self, run_id: str, *, has_results: bool, start: int, limit: int) -> Effects[ChildPage]:
        """A page of the numbered children of a run."""
        numbers = checked_page(start, limit)
        tally: Tally | None = yield self._tallies.read(run_id)
        total = 0 if tally is None else tally.total  # of all runs below it, so at least of its children
        found: list[ChildRun] = []
        for number in numbers[: max(0, total - start)]:
            child = f"{run_id}/{number}"
            view = yield from search(self._reads, child, need="job" if has_results else "end")
            found.append(self._child(child, view, has_results=has_results))
        is_last = start + limit >= total or (bool(found) and found[-1].status.state is RunPhase.GONE)
        while is_last and found and found[-1].status.state is RunPhase.GONE:  # of its grandchildren, or forgotten
            found.pop()
        return ChildPage(tuple(found), None if is_last else start + limit)

    def _view(
        self, run_id: str, queue: str, found: str = "", *, need: Need, scan: int = HISTORY_SCAN
    ) -> Effects[RunView | None]:
        """Look at a run where it was put, and elsewhere only if it left without an end there: it was moved then.

        Another queue may hold a run of the same id. ``found``: the queue that holds one now.
        """
        there: RunView | None = None
        if queue:
            there = yield self._reads.show(run_id, [queue], need=need, scan=scan)
            if status_of(run_id, there).state is not RunPhase.GONE:
                return there
        view = yield from search(self._reads, run_id, "" if found == queue else found, need=need)
        return view or there

    def _child(self, run_id: str, view: RunView | None, *, has_results: bool) -> ChildRun:
        status = status_of(run_id, view)
        if not has_results or status.state is not RunPhase.OK:
            return ChildRun(status=status)
        try:
            value = self._result(run_id, view)
        except ResultGoneError:
            return ChildRun(status=status)
        return ChildRun(status=status, result=value, has_result=True)

    def _result(self, run_id: str, view: RunView | None, job: str = "") -> Any:
        return result_of(run_id, view, job=job, cluster=self._cluster, wall_ms=self._clock.wall_ms())

    def result(self, run_id: str, queue: str, timeout: Timeout, *, job: str = "") -> Effects[Any]:
        """Result of a run, once it ended.

        Raises:
            RunTimeoutError: it did not end in time.
        """
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        timeout_s = None if timeout_s is None else delay_to_ms(timeout_s) / 1000
        view, fault = yield from self.until_ended(run_id, queue, timeout_s, need="end" if job else "job")
        if fault or (view is not None and view.is_live):
            state = "" if fault else status_of(run_id, view).state.value
            raise RunTimeoutError(run_id, state=state, waited_s=timeout_s or 0, fault=fault)
        return self._result(run_id, view, job)

    def until_ended(
        self, run_id: str, queue: str, timeout_s: float | None, *, need: Need
    ) -> Effects[tuple[RunView | None, str]]:
        """View of a run that ended, or as it stands when the time is over; with it the last fault of Redis, if any.

        Raises:
            StoreUnavailableError: the very first question was not answered. Later on that is waited out.
        """
        check_run_id(run_id)
        start_ns = self._clock.elapsed_ns()
        until_ns = None if timeout_s is None else start_ns + round(timeout_s * SECOND_NS)
        is_over, was_answered, returns = False, False, 0
        while True:
            try:
                found = queue
                if not is_over:
                    (found,) = yield from await_runs(self._ends, self.waits.bell, [(queue, run_id)])
                    was_answered = True
                if is_over or not found or (queue and found != queue):
                    view = yield from self._view(run_id, queue, found, need=need, scan=HISTORY)
                    if is_over or view is None or not view.is_live:
                        return view, ""
                    returns += 1
                    if returns <= RETURNS_MAX:
                        queue = view.queue
                        continue  # it was moved, or came back to life between the two questions
                queue = found or queue
                fault = ""
            except StoreUnavailableError as error:
                if not was_answered:
                    raise
                fault = str(error)
            if fault and is_over:
                return None, fault
            again_ns = self._clock.elapsed_ns() + AGAIN_NS
            if fault and (until_ns is None or again_ns < until_ns):
                yield WaitForEnd(again_ns, is_deaf=True)
            else:
                is_over = not (yield WaitForEnd(until_ns))

    def answer(self, effects: Effects[T], run_id: str = "", queue: str = "") -> T:
        """Drive ``effects`` in this thread."""
        woken = threading.Event()

        def execute(effect: Call[Any] | WaitForEnd) -> Any:
            if isinstance(effect, Call):
                return self._run(effect)
            if self._in_place_of_waiting is not None:
                self._in_place_of_waiting(self._left_s(effect))
                return False  # one last look
            self.waits.listen()
            if effect.is_deaf:
                threading.Event().wait(self._left_s(effect))
                return True
            is_woken = woken.wait(self._left_s(effect))
            woken.clear()
            return is_woken

        with self.waits.watch(run_id, queue, woken.set):
            return drive(effects, execute)

    async def answer_async(self, effects: Effects[T], run_id: str = "", queue: str = "") -> T:
        """Drive ``effects`` in the running event loop."""
        woken = asyncio.Event()

        async def execute(effect: Call[Any] | WaitForEnd) -> Any:
            if isinstance(effect, Call):
                return await self._run_async(effect)
            if self._in_place_of_waiting is not None:
                self._in_place_of_waiting(self._left_s(effect))
                return False  # one last look
            self.waits.listen()
            if effect.is_deaf:
                await asyncio.sleep(self._left_s(effect) or 0)
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._left_s(effect)):
                    await woken.wait()
            is_woken = woken.is_set()
            woken.clear()
            return is_woken

        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        with self.waits.watch(run_id, queue, wake):
            return await drive_async(effects, execute)

    def _left_s(self, effect: WaitForEnd) -> float | None:
        return None if effect.until_ns is None else max(0.0, (effect.until_ns - self._clock.elapsed_ns()) / SECOND_NS)
