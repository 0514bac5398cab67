"""The signals of the parent: blocked for ever and taken one by one, so that no handler ever runs.

A handler can interrupt anything, a fork and a log write included; a blocked signal waits
until the loop asks for it, and names the sender.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from signal import Signals

from supervisor.core.units import SECOND_NS

STOPPING = frozenset({Signals.SIGTERM, Signals.SIGINT, Signals.SIGQUIT})
CHANGING = frozenset({Signals.SIGHUP, Signals.SIGTTIN, Signals.SIGTTOU, Signals.SIGWINCH})
# USR2 has no meaning for the parent; taken all the same, since its default is death.
TAKEN = STOPPING | CHANGING | {Signals.SIGCHLD, Signals.SIGURG, Signals.SIGUSR1, Signals.SIGUSR2}

_TIMER = Signals.SIGALRM
_TIMER_STEP_NS = 1_000  # a timer of zero would be no timer

# A child survives what a terminal or an operator sends to everybody.
_PASSED_OVER = frozenset({Signals.SIGINT, Signals.SIGHUP, Signals.SIGUSR2})
_OF_TERMINAL = frozenset({Signals.SIGTTIN, Signals.SIGTTOU})
# Python turns these into exceptions, and every Python program counts on it.
_LEFT_TO_PYTHON = frozenset({Signals.SIGPIPE, Signals.SIGXFSZ})
_CANNOT_BE_HANDLED = frozenset({Signals.SIGKILL, Signals.SIGSTOP})


@dataclass(frozen=True, slots=True)
class Received:
    """One signal and its sender. The kernel merges equal pending ones."""

    signal: Signals
    pid: int
    uid: int
    is_from_kernel: bool = False  # a window was resized, a terminal went away: nobody asked for anything


def block() -> None:
    """Block everything that the parent takes. Before the first fork, and never undone in the parent."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN | {_TIMER})
    # A starter may have left SIGCHLD ignored; the kernel would then reap our children, statuses and all.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def take(timeout_ns: int) -> Received | None:
    """Return the next signal, waiting at most ``timeout_ns`` for it.

    The time-out is a timer whose signal is waited for like the others. ``sigtimedwait`` with a
    time-out would do, but when SIGSTOP and SIGCONT interrupt it for longer than that, CPython
    returns the structure that the kernel never filled in: SIGINT, for instance, from nobody.
    """
    if timeout_ns <= 0:
        info = signal.sigtimedwait(TAKEN, 0)  # does not wait, so nothing can interrupt it
    else:
        signal.setitimer(signal.ITIMER_REAL, max(timeout_ns, _TIMER_STEP_NS) / SECOND_NS)
        info = signal.sigwaitinfo(TAKEN | {_TIMER})
    if info is None or info.si_signo == _TIMER:
        return None
    return Received(Signals(info.si_signo), info.si_pid, info.si_uid, is_from_kernel=info.si_code > 0)


def reset_in_child(*, execs: bool = False) -> None:
    """Give a child default handlers, and let it survive signals sent to everybody; the mask stays as it is.

    Args:
        execs: whether the child becomes another program, which is to ignore those signals too. In any other child a
            handler takes them that does nothing: programs that a job starts would inherit that they are ignored.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _CANNOT_BE_HANDLED - _LEFT_TO_PYTHON - _PASSED_OVER - _OF_TERMINAL:
        signal.signal(number, signal.SIG_DFL)
    for number in _PASSED_OVER:
        signal.signal(number, signal.SIG_IGN if execs else _pass_over)
        signal.siginterrupt(number, False)  # noqa: FBT003 - positional only
    for number in _OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN if execs else _ignore_from_now_on)


def _pass_over(_number: int, _frame: object) -> None:
    """Do nothing: exec replaces this handler by the default, and would keep that a signal is ignored."""


def _ignore_from_now_on(number: int, _frame: object) -> None:
    """Ignore the signal of a terminal: the call that it interrupted is made again, and would raise it for ever."""
    signal.signal(number, signal.SIG_IGN)


def unblock_all() -> None:
    """Let signals through again, those that the tree's own starter had blocked included."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
