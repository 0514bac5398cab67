"""Forks throw-away children of the parent: the one that judges a changed configuration, and one that is waited for."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path

from supervisor.core.errors import EXIT_CONFIG, EXIT_CRASH_LOOP, EXIT_FAILED, EXIT_OK
from supervisor.process.child import die_with, flush_streams
from supervisor.process.system import linux, signals, systemd
from supervisor.telemetry.log_lines.render import print_traceback

MEMORY_BYTES_MAX = 2 << 30
"""How much more address space than the parent's the check may take."""

_OOM_SCORE_POINTS = 600  # it, rather than a worker


def start(check: Callable[[], bool]) -> int:
    """Fork a child that runs ``check``, exits with 0 if that returns true and else with 78; return its pid.

    It is not waited for: the parent goes on supervising, learns of its end by SIGCHLD, and ends it when it takes long.

    Raises:
        OSError: there is no process to be had.
    """
    threads = linux.thread_count()
    assert threads == 1, f"the parent has {threads} threads"
    with linux.raised_oom_score(_OOM_SCORE_POINTS):
        pid = _fork(lambda: EXIT_OK if check() else EXIT_CONFIG, _prologue, failed=EXIT_CRASH_LOOP)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # as the child does itself; whoever comes first
    return pid


def _fork(function: Callable[[], int], prologue: Callable[[int], None], *, failed: int) -> int:
    """Fork a child that exits with the code of ``function``, or ``failed`` when that raises; return its pid."""
    parent_pid = os.getpid()
    pid = os.fork()
    if pid != 0:
        return pid
    code = failed
    try:
        prologue(parent_pid)
        code = function()
    except BaseException as error:  # noqa: BLE001  # the top of a process: the stack of the parent must not run on
        print_traceback(error)
    finally:
        flush_streams()
        os._exit(code)


def _prologue(parent_pid: int) -> None:
    die_with(parent_pid)
    os.setpgid(0, 0)
    signals.reset_in_child()
    linux.set_name("config-check")
    systemd.forget(os.environ)
    _cap_memory()
    gc.enable()
    signals.unblock_all()


def _cap_memory() -> None:
    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


KILLED = -signal.SIGKILL


def run_in_child(function: Callable[[], int], *, timeout_s: float) -> int:
    """Return the exit code of ``function`` run in a forked child; negative: the signal that ended it.

    The parent must never hold a connection to Redis or run code that might hang; a check that
    needs either runs here, with a deadline, and reports by its exit code alone. It dies with
    the parent: it holds the parent's descriptors, and a bound port must not outlive the tree.
    After ``timeout_s`` the child is killed, and ``KILLED`` is returned.
    """
    assert timeout_s > 0
    # A starter or a module of jobs may have left it ignored; the kernel would then reap the child, status and all.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = _fork(function, die_with, failed=EXIT_FAILED)
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], timeout_s)
        if not ended:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
