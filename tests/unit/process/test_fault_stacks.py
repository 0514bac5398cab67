"""Stacks of a process that is asked for them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from supervisor.process import child
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
