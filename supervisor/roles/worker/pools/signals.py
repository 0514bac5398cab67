"""Signals of a sync worker that interrupt its calls of the code of others: hooks, middleware and jobs alike.

A signal ends a job or a wait by an exception. It can arrive between any two instructions, also after a job returned and
before anybody noticed: raised there, it would make a finished run a failed one, or break the worker itself.

Guarantees
    In a plain thread the code of others is entered by ``enter`` and by nothing else. An exception is raised only in
    code that it called, for ``job``, ``wait`` or the driver of an attempt; never in theirs, in the generator or in the
    worker's. The handler decides by looking whose frame it interrupted; there is no flag to reset in time.
    A signal that found no such frame is not lost: it is delivered again until it can be, or until its occasion is over.
    The same holds where Python drops the exception, since it was raised in a finalizer or a callback of the collector,
    and hands it to ``sys.unraisablehook``.
    An event loop of the job is left by a callback that raises the exception, which is a ``SystemExit`` too:
    asyncio keeps any other for whoever awaits the task or callback, maybe nobody. Where the loop does not turn
    for ``PUT_OFF_MAX`` signals, 0.1 s, the next one interrupts what it finds.
    ``Relief`` is called inside the handler, and never interrupted by it.

Does not guarantee
    That user code lets the exception pass, or a call into C returns to let it in: the parent kills the process at the
    hard deadline. Before Python 3.13 that is so too where an object of ``io.IOBase`` is dropped whose ``close`` is
    interrupted: nobody is told of the exception.
"""

from __future__ import annotations

import signal
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import ref

from supervisor.clock import Clock
from supervisor.core.supervision.states import UnwantedReason
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.calls import drive, enter
from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.process.fork_signals import HOOKS

if TYPE_CHECKING:
    from supervisor.roles.worker.attempt.executor import Execution

T = TypeVar("T")
EndRequest = tuple[int, int, UnwantedReason]
"""A request to end a run: its number, which only grows, the hash of the execution, and the reason."""

NO_REQUEST: EndRequest = (0, 0, UnwantedReason.REPLACED)
AGAIN_S = 0.01
PUT_OFF_MAX = 10
_signal = import_module("_signal")  # asked for each run: without the search for an enum that fits
_handler_of, _set_mask, _timer = _signal.getsignal, _signal.pthread_sigmask, _signal.getitimer
_AGAIN_NS = 10_000_000
_WHY = {
    None: "still running at its soft timeout",
    UnwantedReason.REPLACED: "a newer run takes its place",
    UnwantedReason.CANCELLED: "a person asked for its end",
}


class Demand(Enum):
    """Kind of interruption that a signal demands."""

    SOFT = "soft"  # the job should stop: its soft timeout passed, or somebody asked
    STOP = "stop"  # drain: finish the job, fetch nothing more
    QUIT = "quit"  # leave now


class Relief(NamedTuple):
    """Action in the middle of a job that takes too long for the runs waiting behind it.

    It must take no lock that a job could hold, and must not raise. It returns after how many seconds it is to be
    called again, if the job still runs; None: not for this job.
    """

    at_ns: int
    function: Callable[[], float | None]


_NOTHING: frozenset[Demand] = frozenset()
_IN_JOB = frozenset({Demand.SOFT, Demand.QUIT})
_IN_LOOP = [type(e.__name__, (e, SystemExit), {"__module__": e.__module__}) for e in (Interrupted, SoftTimeout)]


class _Hook(partial[None]):
    """``sys.unraisablehook`` of an ``Interrupts``, with that of others which it stands before."""


class Interrupts:
    """The signal handlers of the main thread, and the two kinds of code that they may interrupt."""

    def __init__(self, clock: Clock, end_request: Callable[[], EndRequest] = lambda: NO_REQUEST) -> None:
        """Build it; ``end_request`` returns the last request to end an execution."""
        self._clock = clock
        self._end_request = end_request
        self._noted = end_request()[0]  # number of the last request that a signal brought
        self._signals_to_come = 0  # of requests that were read with a later one
        self._demands: set[Demand] = set()
        self._armed: frozenset[Demand] = _NOTHING
        self._delivered: dict[ref[BaseException], frozenset[Demand]] = {}  # by what was raised in this job or wait
        self._puts_off = 0  # how many signals were left to the event loop of this job
        self._hook: Callable[[Any], object] | None = None  # sys.unraisablehook, while it is ours
        self._run: Execution | None = None
        self._early: tuple[int, UnwantedReason] | None = None  # a request that came just before its job was called
        self._soft_ns = 0
        self._relief: Relief | None = None
        self._handlers = {
            signal.SIGALRM.value: self._on_alarm,
            signal.SIGUSR2.value: self._on_soft,
            signal.SIGTERM.value: self._on_stop,
            signal.SIGQUIT.value: self._on_quit,
        }

    @property
    def must_stop(self) -> bool:
        """True if nothing more may be fetched."""
        return bool(self._demands) and bool(self._demands & {Demand.STOP, Demand.QUIT})

    @property
    def must_quit(self) -> bool:
        """True if the process must leave now."""
        return Demand.QUIT in self._demands

    def install(self) -> None:
        """Take the signals, and the hook. Called before each job too: the one before may have taken them away."""
        for number, handler in self._handlers.items():
            if _handler_of(number) is not handler:
                signal.signal(number, handler)
        _set_mask(signal.SIG_UNBLOCK, self._handlers)
        if self._hook is not None and sys.unraisablehook is not self._hook:
            self._take_hook()

    @contextmanager
    def kept_in_finalizers(self) -> Iterator[None]:
        """Within the block, deliver a demand again whose exception Python drops, for instance in ``__del__``."""
        before = sys.unraisablehook
        self._take_hook()
        try:
            yield
        finally:
            sys.unraisablehook, self._hook = before, None

    def _take_hook(self) -> None:
        """Put the hook before that of others, unless it is one of ours that a job put back."""
        hook = sys.unraisablehook
        self._hook = sys.unraisablehook = hook if type(hook) is _Hook else _Hook(self.on_unraisable, hook)

    def on_unraisable(self, others: Callable[[Any], object], dropped: sys.UnraisableHookArgs) -> None:
        """Arm the demand again whose exception was dropped, or hand what is of others on."""
        error = dropped.exc_value
        if isinstance(error, (SoftTimeout, Interrupted)) and (due := self._delivered.pop(ref(error), None)):
            self._armed |= due
            self._come_again()
        else:
            others(dropped)

    def stop(self) -> None:
        """Ask for a drain, as SIGTERM does."""
        self._demands.add(Demand.STOP)

    def job(
        self, function: Callable[..., T], arguments: dict[str, Any], *, run: Execution, soft_ns: int,
        relief: Relief | None = None,
    ) -> T:  # fmt: skip
        """Call a job. Raises whatever it raises, ``SoftTimeout`` after ``soft_ns``, ``Interrupted`` on SIGQUIT.

        With ``relief`` the timer is left running at the end, for the next job: it is set once in a while
        instead of twice for each run, and its signals in between are looked at and dropped. The kernel is asked
        whether it runs, since a job may have used it too.
        """
        self._demands.discard(Demand.SOFT)
        self._run, self._soft_ns, self._relief, self._puts_off = run, soft_ns, relief, 0
        self.install()
        if relief is None or not 0 < _timer(signal.ITIMER_REAL)[0] <= self._due_s():
            self._arm()
        if self._early is not None:
            self._heed_early(run)
        if Demand.SOFT in self._demands:
            self._come_again()  # a signal brought it since the first line, and the timer may have been set anew
        try:
            self._armed = _IN_JOB
            if Demand.QUIT in self._demands:
                raise Interrupted
            return enter(partial(function, **arguments))
        finally:
            self.install()  # a job may have left an alarm, or the default actions
            self._armed, self._delivered = _NOTHING, {}
            self._run = None
            if relief is None:
                self._disarm()

    def wait(self, function: Callable[[], T], *, on: frozenset[Demand]) -> T:
        """Call something that waits for Redis. Raises its exceptions, or ``Interrupted`` on a demand of ``on``."""
        self._early = None  # whoever waits is past the moment in which a job of its could be about to be called
        try:
            self._armed = on
            if self._demands & on:
                raise Interrupted
            return enter(function)
        finally:
            self._armed, self._delivered = _NOTHING, {}

    def _heed_early(self, run: Execution) -> None:
        """Apply a request that its signal brought between the note that the run began and this call."""
        early, self._early = self._early, None
        if early is not None and early[0] == run.hash:
            run.cancel(early[1])
            self._demands.add(Demand.SOFT)

    def _arm(self) -> None:
        """Set the timer for the next demand on the job."""
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, self._due_s()), AGAIN_S)

    def _due_s(self) -> float:
        """Return the seconds until then."""
        due_ns = self._soft_ns if self._relief is None else min(self._soft_ns, self._relief.at_ns)
        return (due_ns - self._clock.elapsed_ns()) / SECOND_NS

    def _disarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _come_again(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)

    def _on_alarm(self, _number: int, frame: FrameType | None) -> None:
        if Demand.SOFT in self._armed:
            now_ns = self._clock.elapsed_ns()
            if self._relief is not None and now_ns >= self._relief.at_ns:
                self._relieve(frame)
            if now_ns >= self._soft_ns:
                self._demands.add(Demand.SOFT)
            elif not self._demands & self._armed:
                # The timer counts another clock than the deadline, or was set for another job: ask it for the rest.
                self._arm()
                return
        if self._demands & self._armed:
            self._deliver(frame)
        elif self._run is not None:
            self._come_again()  # the job is about to be called, or is being relieved
        else:
            self._disarm()

    def _relieve(self, frame: FrameType | None) -> None:
        """Call the relief inside the handler, unless the job has returned meanwhile."""
        relief = self._relief
        if relief is None:
            return  # this alarm was interrupted by the next one, which has done it
        if _is_ours(frame):
            self._relief = Relief(relief.at_ns + _AGAIN_NS, relief.function)
            return
        if self._relief is not relief:
            return  # the next alarm came within that call, and has done it; after it, nothing interrupts up to here:
        self._relief, armed, self._armed = None, self._armed, _NOTHING  # what is demanded meanwhile waits
        try:
            again_s = relief.function()
        finally:
            self._armed = armed
        if again_s is not None:
            self._relief = Relief(self._clock.elapsed_ns() + round(again_s * SECOND_NS), relief.function)

    def _on_soft(self, _number: int, frame: FrameType | None) -> None:
        number, execution, reason = self._end_request()
        if number != self._noted:
            is_ours = self._run is not None and execution == self._run.hash
            # Acted upon before it counts as noted: a signal that interrupts this handler here finds it as well.
            if self._run is None:
                self._early = (execution, reason)
            elif is_ours:
                self._run.cancel(reason)
            self._signals_to_come, self._noted = number - self._noted - 1, number
            if not is_ours:
                return
        elif self._signals_to_come > 0 or self._run is None:
            self._signals_to_come = max(0, self._signals_to_come - 1)
            return  # its request is known, or it was meant for a run that has ended since
        self._demands.add(Demand.SOFT)
        if Demand.SOFT in self._armed:
            self._deliver(frame)
        else:
            self._come_again()  # the job is about to be called, or is being relieved

    def _on_stop(self, _number: int, frame: FrameType | None) -> None:
        self._demands.add(Demand.STOP)
        self._deliver(frame)

    def _on_quit(self, _number: int, frame: FrameType | None) -> None:
        self._demands.add(Demand.QUIT)
        self._deliver(frame)

    def _deliver(self, frame: FrameType | None) -> None:
        """Raise the demand, if the interrupted code is meant for it; else come again soon."""
        if not self._armed & self._demands:
            return
        if _is_ours(frame):
            self._come_again()
            return
        loop = _get_running_loop()
        if loop is not None and self._puts_off < PUT_OFF_MAX:
            self._puts_off += 1
            loop.call_soon_threadsafe(self._interrupt)
            self._come_again()
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise what is due, where a signal found the job or as a callback of its event loop."""
        due = self._armed & self._demands
        if not due:
            return
        if self._run is not None and Demand.SOFT in self._armed:
            self._run.cancel()
        interrupted, soft = (Interrupted, SoftTimeout) if _get_running_loop() is None else _IN_LOOP
        why = _WHY[None if self._run is None else self._run.unwanted]
        # With a text, since `sys.exit()` has none: a SystemExit without one says that a program is done.
        error = interrupted("its process must go") if due - {Demand.SOFT} else soft(why)
        delivered = self._delivered | {ref(error): due}
        # Nothing is called from here on: a signal that interrupted this handler has raised all that is due.
        self._armed -= due  # each once: what the job does to clean up is not interrupted by the same demand again
        self._delivered = delivered
        try:
            raise error
        finally:
            del error  # its traceback leads to this frame


def _is_ours(frame: FrameType | None) -> bool:
    """Return whether a signal interrupted code that must not be: ours, or nobody's."""
    while frame is not None and frame.f_code in _HANDLERS:
        frame = frame.f_back  # one signal interrupted the handler of another
    interrupted = frame
    while frame is not None and frame.f_code not in _BOUNDARIES:
        frame = frame.f_back
    return frame is None or frame is interrupted or frame.f_code is not enter.__code__


_BOUNDARIES = frozenset({enter.__code__, drive.__code__, Interrupts.on_unraisable.__code__}) | HOOKS
"""Code that the first calls may be interrupted; what ``drive`` calls by itself is the generator of an attempt, ours."""

_HANDLERS = frozenset(
    getattr(Interrupts, name).__code__
    for name in (
        "_on_alarm", "_on_soft", "_on_stop", "_on_quit", "_deliver", "_interrupt", "_relieve", "_arm", "_due_s",
        "_disarm", "_come_again",
    )
) | {_is_ours.__code__}  # fmt: skip
