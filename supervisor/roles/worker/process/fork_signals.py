"""Copies of a worker process that its jobs fork, by ``multiprocessing`` for instance: their signals are their own.

Guarantees
    A signal that ends a process ends a copy, unless the job chose its action, and reaches no event loop of the worker.
    Those of a worker are held while it forks, so that none comes before the copy has let go of them.
"""

from __future__ import annotations

import os
import signal
import threading

_TAKEN = frozenset({signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR2, signal.SIGURG})
_OURS = frozenset({"supervisor", "uvloop"})  # packages of handlers that a worker installs


class _Held(threading.local):
    mask: frozenset[int] = frozenset()


_held = _Held()


def reset_in_forks() -> None:
    """Give processes that this one forks from now on the default actions again. Called once in a process."""
    os.register_at_fork(before=_hold, after_in_parent=_resume, after_in_child=_let_go)


def _hold() -> None:
    _held.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN))


def _resume() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _let_go() -> None:
    signal.set_wakeup_fd(-1)  # it leads to the worker
    for number in _TAKEN:
        module: str | None = getattr(signal.getsignal(number), "__module__", None)
        if module is not None and module.partition(".")[0] in _OURS:
            signal.signal(number, signal.SIG_DFL)
    _resume()


HOOKS = frozenset({_hold.__code__, _resume.__code__})
"""Code in which an exception of a signal handler would be lost: nobody takes one out of a hook of fork."""
