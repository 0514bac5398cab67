"""The handle of a guarded command, as the process that started it holds it (guard.py is the other side).

Guarantees
    ``kill`` leaves no process of the group and no zombie, at whatever point an exception (a soft timeout
    arrives as one, at any instruction) cut the rest off.
"""

from __future__ import annotations

import os
import signal
from _thread import get_native_id
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from supervisor.process.command.guard import ENDED, FAILED, RECORD, run_guard
from supervisor.process.command.spec import Launch

# Python runs signal handlers between instructions: a signal just before poll(2) is entered is noted, and handled
# only when poll returns. Without a bound a soft timeout could wait for the command that it is meant to end.
WAIT_MS_MAX = 250


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """End of a command. Neither field set: the guard itself was killed."""

    wait_status: int | None = None
    failed_at: tuple[bytes, int] | None = None  # where, and errno: it never started


@contextmanager
def signals_held() -> Iterator[None]:
    """Let no signal handler, and so no exception of one, run inside the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class CommandGuard:
    """A guard and its command. To be used with signals held, but for reading its report."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._records = b""
        self.status = -1
        """The descriptor on which the guard reports."""

    @property
    def is_running(self) -> bool:
        """True if there is a guard that was not reaped."""
        return self._pid is not None

    def fork(self, launch: Launch, *, stdin: int, output: int, errors: int | None = None) -> None:
        """Fork the guard, which forks the command; the descriptors are the command's, and stay the caller's to close.

        Raises:
            RuntimeError: this is not the main thread.
        """
        if get_native_id() != os.getpid():
            raise RuntimeError(
                "a command needs the main thread: the kernel ties its guard to the thread that forked it; "
                "run it in a sync pool"
            )
        self.status, status = os.pipe()
        try:
            worker = os.getpid()
            pid = os.fork()
            if pid == 0:
                run_guard(launch, worker=worker, stdin=stdin, output=output, status=status, errors=errors)
            self._pid = pid
        finally:
            os.close(status)

    def take_report(self) -> CommandEnd | None:
        """Return the ending once it is known. A command that never started is reported twice: why, then that."""
        chunk = os.read(self.status, 16 * RECORD.size)
        self._records += chunk
        failed_at = None
        for kind, where, value in RECORD.iter_unpack(self._records):
            if kind == FAILED:
                failed_at = failed_at or (where, value)
            elif kind == ENDED:
                return CommandEnd(wait_status=value, failed_at=failed_at)
        return CommandEnd(failed_at=failed_at) if not chunk else None

    def ask_to_end(self) -> None:
        """Send SIGTERM to the group."""
        if self._pid is not None:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process cannot answer

    def kill(self) -> None:
        """Kill the group and reap the guard; its zombie keeps the group's id from being anybody else's till then."""
        if self._pid is None:
            return
        with signals_held():
            self._signal(signal.SIGKILL)
            self._signal(signal.SIGKILL)  # it may have become a leader between the look-up and the kill
            with suppress(ChildProcessError):  # somebody waited for any child, as a test runner may
                os.waitpid(self._pid, 0)
            self._pid = None

    def close(self) -> None:
        """Kill remaining processes and close the report. Safe to call twice."""
        self.kill()
        if self.status >= 0:
            os.close(self.status)
            self.status = -1

    def _signal(self, number: signal.Signals) -> None:
        assert self._pid is not None
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # not its own leader yet, so nothing runs under it
        except PermissionError:
            return  # nothing of the group is ours to signal any more (a set-user-ID command)
