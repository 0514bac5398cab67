"""A command's guard, as the worker holds it: start, follow, stop, and leave nothing behind.

Guarantees
    ``close`` leaves no process of the group, no zombie and no descriptor, at whatever point
    an exception (the soft timeout arrives as one, at any instruction) cut the rest off.
    ``follow`` ends when the command ends, not when the last holder of its output does.

Does not guarantee
    To come back from a soft timeout while the guard is in uninterruptible sleep; the hard
    timeout, which kills the worker, bounds that.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from jobs.shell.guarded import ENDED, FAILED, RECORD, run_guard
from jobs.shell.launch import Launch
from jobs.shell.tail import Tail
from supervisor.clock import Clock

CHUNK_BYTES = 64 * 1024
# Python runs signal handlers between instructions: a signal just before poll(2) is entered is noted, and handled
# only when poll returns. Without a bound a soft timeout could wait for the command that it is meant to end.
WAIT_MS_MAX = 250
DRAIN_BYTES_MAX = 1024 * 1024  # what a pipe can hold; an escaped writer cannot keep us here


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended. Neither field set: the guard itself was killed."""

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


class Guard:
    """One command under guard. Always ``close`` it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid: int | None = None
        self._output = -1
        self._status = -1
        self._records = b""

    def start(self, launch: Launch) -> None:
        """Fork the guard, which forks the command."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "shell.command needs the main thread: the kernel ties a guard to the thread that forked it; "
                "run it in a sync pool"
            )
        with signals_held():
            theirs: list[int] = []
            try:
                self._fork(launch, theirs)
            finally:
                for number in theirs:
                    os.close(number)

    def _fork(self, launch: Launch, theirs: list[int]) -> None:
        stdin = _stdin(launch.stdin)
        theirs.append(stdin)
        self._output, output = os.pipe()
        theirs.append(output)
        self._status, status = os.pipe()
        theirs.append(status)
        os.set_blocking(self._output, False)
        worker = os.getpid()
        pid = os.fork()
        if pid == 0:
            run_guard(launch, worker=worker, stdin=stdin, output=output, status=status)
        self._pid = pid

    def follow(self, tail: Tail, *, until_ns: int | None = None) -> Ending | None:
        """Feed the output to ``tail`` until the command ends; None when ``until_ns`` came first."""
        poller = select.poll()
        poller.register(self._status, select.POLLIN)
        poller.register(self._output, select.POLLIN)
        while True:
            ready = dict(poller.poll(self._wait_ms(until_ns)))
            if self._output in ready and self._read(tail) == 0:
                poller.unregister(self._output)  # the command closed it, and may live on
            if self._status in ready:
                ending = self._take_report()
                if ending is not None:
                    self._kill()
                    self._drain(tail)
                    return ending
            if until_ns is not None and self._clock.elapsed_ns() >= until_ns:
                return None

    def stop(self, tail: Tail, *, patience_s: float) -> None:
        """Ask the group to end, wait at most ``patience_s``, then kill it. No signal interrupts this."""
        with signals_held():
            if self._pid is None:
                return
            until_ns = self._clock.elapsed_ns() + int(patience_s * 1e9)
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process cannot answer
            if self.follow(tail, until_ns=until_ns) is None:
                self._kill()
                self._drain(tail)

    def close(self) -> None:
        """Kill what is left, reap the guard, close the pipes. Safe to call at any point, and twice."""
        with signals_held():
            self._kill()
            for number in (self._output, self._status):
                if number >= 0:
                    os.close(number)
            self._output = self._status = -1

    def _wait_ms(self, until_ns: int | None) -> int:
        if until_ns is None:
            return WAIT_MS_MAX
        return min(WAIT_MS_MAX, max(0, (until_ns - self._clock.elapsed_ns()) // 1_000_000 + 1))

    def _read(self, tail: Tail) -> int | None:
        """Return how many bytes came: 0 at the end of the file, None when there are none now."""
        try:
            chunk = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return None
        tail.feed(chunk)
        return len(chunk)

    def _drain(self, tail: Tail) -> None:
        """Take what the pipe still holds. The group is dead, so this ends."""
        drained = 0
        while drained < DRAIN_BYTES_MAX and (count := self._read(tail)):
            drained += count

    def _take_report(self) -> Ending | None:
        """Return the ending once it is known. A command that never started is reported twice: why, then that."""
        chunk = os.read(self._status, 16 * RECORD.size)
        self._records += chunk
        failed_at = None
        for kind, where, value in RECORD.iter_unpack(self._records):
            if kind == FAILED:
                failed_at = failed_at or (where, value)
            elif kind == ENDED:
                return Ending(wait_status=value, failed_at=failed_at)
        return Ending(failed_at=failed_at) if not chunk else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._pid is not None
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # not its own leader yet, so nothing runs under it
        except PermissionError:
            return  # nothing of the group is ours to signal any more (a set-user-ID command)

    def _kill(self) -> None:
        """Kill the group and reap the guard; its zombie keeps the group's id from being anybody else's till then."""
        if self._pid is None:
            return
        with signals_held():
            self._signal(signal.SIGKILL)
            self._signal(signal.SIGKILL)  # it may have become a leader between the look-up and the kill
            with suppress(ChildProcessError):  # somebody waited for any child, as a test runner may
                os.waitpid(self._pid, 0)
            self._pid = None


def _stdin(data: bytes | None) -> int:
    """Return a descriptor to read ``data`` from: a file, so that no command can block us by not reading."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    number = os.memfd_create("stdin", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    return number
