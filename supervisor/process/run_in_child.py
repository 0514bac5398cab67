"""Runs one function in a child that is thrown away, so that the parent keeps no effect of it.

The parent must never hold a connection to Redis or run code that might hang; a check that
needs either runs here, with a deadline, and reports by its exit code alone. It dies with
the parent: it holds the parent's descriptors, and a bound port must not outlive the tree.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable

from supervisor.core.errors import EXIT_FAILED
from supervisor.process.system import linux

KILLED = -signal.SIGKILL


def run_in_child(function: Callable[[], int], *, timeout_s: float) -> int:
    """Return the exit code of ``function`` run in a forked child; negative: the signal that ended it.

    Args:
        function: returns an exit code; its output goes to this process's standard error.
        timeout_s: after so many seconds the child is killed, and ``KILLED`` is returned.
    """
    assert timeout_s > 0
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = EXIT_FAILED
        try:
            linux.die_with_parent(signal.SIGKILL)
            if os.getppid() == parent_pid:  # else it died before the line above could tell us
                code = function()
        except BaseException:  # noqa: BLE001  # the top of a process: the stack of the parent must not run on
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], timeout_s)
        if not ended:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
