"""A run to interrupt, and handlers to do it with."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from supervisor.clock import SystemClock
from supervisor.core.supervision.scoreboard import execution_hash
from supervisor.core.supervision.states import UnwantedReason
from supervisor.roles.worker.pools.signals import Interrupts

SIGNALS = (signal.SIGALRM, signal.SIGUSR2, signal.SIGTERM, signal.SIGQUIT)


@dataclass
class Subject:
    """A run that is executed."""

    hash: int = execution_hash(("q", "r"), 5)
    is_cancelled: bool = False
    unwanted: UnwantedReason | None = None

    def cancel(self, unwanted: UnwantedReason | None = None) -> None:
        """Note it."""
        self.unwanted = self.unwanted if unwanted is None else unwanted
        self.is_cancelled = True


@contextmanager
def own_handlers() -> Iterator[Interrupts]:
    """Handlers of its own for the test, as a pool has them; those of the runner come back, its alarm included.

    A signal may find any code of the test within a callback of the garbage collector, which drops exceptions.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    interrupts = Interrupts(SystemClock())
    interrupts.install()
    try:
        with interrupts.kept_in_finalizers():
            yield interrupts
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, *left)


def in_s(seconds: float) -> int:
    """Return the moment ``seconds`` from now."""
    return SystemClock().elapsed_ns() + round(seconds * 1e9)


def soft_timeout_in(seconds: float) -> None:
    """Move the soft timeout of the plain job that calls this: one that is short from the start may come before its first line."""
    interrupts = signal.getsignal(signal.SIGALRM).__self__  # type: ignore[union-attr]
    interrupts._soft_ns = in_s(seconds)
    interrupts._arm()


@contextmanager
def no_alarm() -> Iterator[None]:
    """Hold alarms back while a job asks: the handler would wait for the lock of the same fakeredis."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
