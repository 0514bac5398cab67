"""What the kernel says of a process that wants a processor, and of one that does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from supervisor.process.system.linux import processor_wait


def test_a_process_that_computes_wants_a_processor_and_a_stopped_one_does_not() -> None:
    """The one is to be spared on a starved machine, the other hangs."""
    assert processor_wait(os.getpid()).is_now
    child = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        stopped = processor_wait(child.pid)
        assert not stopped.is_now
        assert processor_wait(child.pid) == stopped
    finally:
        child.kill()
        child.wait()


def test_nothing_known_counts_as_wanting_one() -> None:
    """Where the kernel keeps no account, the benefit of the doubt stays as large as it was."""
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    assert processor_wait(gone.pid).is_now
