"""Signals of a sync worker: they end a job or a wait in the main thread by an exception, and nothing else.

A signal can arrive between any two instructions, also after a job returned and before anybody
noticed. An exception raised there would turn a finished run into a failed one, or break the
worker itself.

Guarantees
    An exception is raised only in code that ``job`` or ``wait`` called, never in theirs or in
    the worker's. The handler decides by looking whose frame it interrupted; there is no flag to
    reset in time.
    A signal that found no such frame is not lost: it is delivered again until it can be, or until
    what it was meant for is over.

Does not guarantee
    That user code lets the exception pass. The parent kills the process at the hard deadline.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Any, TypeVar

from supervisor.clock import Clock
from supervisor.core.board import run_hash
from supervisor.roles.worker.context import Context, Interrupted, SoftTimeout

T = TypeVar("T")
AGAIN_S = 0.01


class Demand(Enum):
    """What a signal asks for."""

    SOFT = "soft"  # the job should stop: its soft timeout passed, or somebody asked
    STOP = "stop"  # drain: finish the job, fetch nothing more
    QUIT = "quit"  # leave now


_NOTHING: frozenset[Demand] = frozenset()


class Interrupts:
    """The signal handlers of the main thread, and the two kinds of code that they may interrupt."""

    def __init__(self, clock: Clock, unwanted: Callable[[], int | None] = lambda: None) -> None:
        """Build it.

        Args:
            clock: of this machine.
            unwanted: tells the hash of a run that must give way to a newer one, once for each request.
        """
        self._clock = clock
        self._unwanted = unwanted
        self._demands: set[Demand] = set()
        self._armed: frozenset[Demand] = _NOTHING
        self._context: Context | None = None
        self._soft_ns = 0

    @property
    def must_stop(self) -> bool:
        """Whether to fetch nothing more."""
        return bool(self._demands & {Demand.STOP, Demand.QUIT})

    @property
    def must_quit(self) -> bool:
        """Whether to leave now."""
        return Demand.QUIT in self._demands

    def install(self) -> None:
        """Take the signals. Called before each job too: the one before may have taken them away."""
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGUSR2, self._on_soft)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGQUIT, self._on_quit)

    def stop(self) -> None:
        """Ask for a drain, as SIGTERM does."""
        self._demands.add(Demand.STOP)

    def job(self, function: Callable[..., T], arguments: dict[str, Any], *, context: Context, soft_ns: int) -> T:
        """Call a job. Raises whatever it raises, ``SoftTimeout`` after ``soft_ns``, ``Interrupted`` on SIGQUIT."""
        self._demands.discard(Demand.SOFT)
        self._context = context
        self._soft_ns = soft_ns
        self.install()
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, (soft_ns - self._clock.elapsed_ns()) / 1e9), AGAIN_S)
        try:
            self._armed = frozenset({Demand.SOFT, Demand.QUIT})
            if Demand.QUIT in self._demands:
                raise Interrupted
            return function(**arguments)
        finally:
            self._armed = _NOTHING
            signal.setitimer(signal.ITIMER_REAL, 0)

    def wait(self, function: Callable[[], T], *, on: frozenset[Demand]) -> T:
        """Call something that waits for Redis. Raises what it raises, or ``Interrupted`` on a demand of ``on``."""
        try:
            self._armed = on
            if self._demands & on:
                raise Interrupted
            return function()
        finally:
            self._armed = _NOTHING

    def _on_alarm(self, _number: int, frame: FrameType | None) -> None:
        if Demand.SOFT in self._armed:
            left_s = (self._soft_ns - self._clock.elapsed_ns()) / 1e9
            if left_s <= 0:
                self._demands.add(Demand.SOFT)
            elif not self._demands & self._armed:
                # The timer counts another clock than the deadline; ask it again for the rest.
                signal.setitimer(signal.ITIMER_REAL, left_s, AGAIN_S)
                return
        if self._demands & self._armed:
            self._deliver(frame)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_soft(self, _number: int, frame: FrameType | None) -> None:
        unwanted = self._unwanted()
        if self._context is not None and unwanted == run_hash(self._context.run_id):
            self._context.is_replaced = True
        elif unwanted is not None:
            return  # meant for a run that has ended since
        if Demand.SOFT in self._armed:
            self._demands.add(Demand.SOFT)
        self._deliver(frame)

    def _on_stop(self, _number: int, frame: FrameType | None) -> None:
        self._demands.add(Demand.STOP)
        self._deliver(frame)

    def _on_quit(self, _number: int, frame: FrameType | None) -> None:
        self._demands.add(Demand.QUIT)
        self._deliver(frame)

    def _deliver(self, frame: FrameType | None) -> None:
        """Raise what is demanded, if the interrupted code is meant for it; else come again soon."""
        due = self._demands & self._armed
        if not due:
            return
        while frame is not None and frame.f_code in _HANDLERS:
            frame = frame.f_back  # one signal interrupted the handler of another
        if frame is None or frame.f_code in _OWN:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
            return
        if self._context is not None and Demand.SOFT in self._armed:
            self._context.is_cancelled = True
        self._armed -= due  # each once: what the job does to clean up is not interrupted by the same demand again
        if Demand.QUIT in due or Demand.STOP in due:
            raise Interrupted
        is_replaced = self._context is not None and self._context.is_replaced
        raise SoftTimeout("a newer run takes its place" if is_replaced else "still running at its soft timeout")


_OWN = frozenset({Interrupts.job.__code__, Interrupts.wait.__code__})
_HANDLERS = frozenset(
    handler.__code__
    for handler in (
        Interrupts._on_alarm,  # noqa: SLF001 - this module's own
        Interrupts._on_soft,  # noqa: SLF001
        Interrupts._on_stop,  # noqa: SLF001
        Interrupts._on_quit,  # noqa: SLF001
        Interrupts._deliver,  # noqa: SLF001
    )
)
