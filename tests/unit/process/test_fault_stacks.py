"""Stacks of a process that is asked for them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from supervisor.process import child
from supervisor.process.system import linux
from tests.kit.waiting import wait_until


@pytest.mark.parametrize("is_read", [True, False])
def test_stacks_are_written_and_a_log_that_nobody_reads_holds_up_nobody(*, is_read: bool) -> None:
    """The question came from an operator who saw that the log stood still, and the worker hung until it was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(write, 2)
            child.watch_faults()
            full = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK)
            with suppress(BlockingIOError):
                while not is_read:
                    os.write(full, b"f" * 4096)
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            os._exit(0)
    os.close(write)
    try:
        wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "its end", bound_s=10)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        assert (b"test_fault_stacks.py" in pipe.read()) == is_read


def test_signals_that_come_all_at_once_overwrite_nothing() -> None:
    """A tree that went on after a pause has several pending: their frames wrote over the heap, or ended the process."""
    # SIGCONT would take pending stops back.
    taken = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR1, signal.SIGCONT}
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            child.watch_faults()
            linux.widen_signal_stack()
            came: list[int] = []
            for number in taken:
                signal.signal(number, lambda number, _: came.append(number))
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            for number in (*taken, signal.SIGUSR1):
                os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            code = sorted(came) != sorted(taken)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
