"""Collects dead processes: those of our slots with their status, and whatever was adopted.

Guarantees
    No zombie is left, and the process group of a dead child is killed before its pid is
    given back, while no other process can have that number.

Does not guarantee
    That a descendant which left the group is gone before the tree is; ``sweep`` ends those.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Container
from dataclasses import dataclass

from supervisor.process.system import linux, signals

REAPED_PER_TURN_MAX = 1000
_SWEEP_STEP_NS = 20_000_000  # at most: the first death wakes us


@dataclass(frozen=True, slots=True)
class Ended:
    """One dead process."""

    pid: int
    status: int  # exit code, or minus a signal
    memory_kib_max: int


def reap(ours: Container[int]) -> list[Ended]:
    """Collect everything that is dead now; of our own children, the group goes with its leader."""
    ended = []
    for _ in range(REAPED_PER_TURN_MAX):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
        if found is None:
            break
        if found.si_pid in ours:
            kill_group(found.si_pid)
        pid, status, usage = os.wait4(found.si_pid, 0)
        ended.append(Ended(pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss))
    return ended


def kill_group(pid: int) -> None:
    """SIGKILL the group that ``pid`` leads, if it leads one. ``pid`` must not have been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a child that was not reaped, so the pid cannot be another's; one of another user gets none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill(pid: int) -> None:
    """SIGKILL a child and its group."""
    kill_group(pid)
    send(pid, signal.SIGKILL)


def sweep(parent_pid: int, *, elapsed_ns: Callable[[], int], until_ns: int) -> int:
    """Kill and collect every child of this process, adopted ones included; return how many resisted."""
    while _has_children():
        left = linux.children_of(parent_pid)
        for pid in left:
            kill(pid)
        signals.take(_SWEEP_STEP_NS)
        reap(left)
        if elapsed_ns() >= until_ns:
            return len(linux.children_of(parent_pid))
    return 0


def _has_children() -> bool:
    """Ask the kernel, which knows without a walk through all processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
