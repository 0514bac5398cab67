"""What only Linux offers, and only by ``prctl`` or ``/proc``."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_NAME_BYTES_MAX = 15
_OOM_SCORE_MAX = 1000

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


def _prctl(option: int, argument: int | bytes) -> None:
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    zero = ctypes.c_ulong(0)
    if _libc.prctl(ctypes.c_int(option), value, zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent(signal_number: int) -> None:
    """Ask for ``signal_number`` when the thread that forked us ends. Not inherited, and cleared by setuid."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Set what ``ps -o comm`` shows; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES_MAX])


def thread_count() -> int:
    """Return how many threads the kernel knows in this process; Python's own count misses those of libraries."""
    return len(list(Path("/proc/self/task").iterdir()))


def open_descriptors() -> list[int]:
    """Return the descriptors that are open; the one used to find out is closed again."""
    return [int(path.name) for path in list(Path("/proc/self/fd").iterdir())]


def raise_oom_score(points: int) -> None:
    """Make the kernel prefer this process when memory runs out. Raising needs no privilege."""
    path = Path("/proc/self/oom_score_adj")
    try:
        path.write_text(str(min(_OOM_SCORE_MAX, int(path.read_text()) + points)))
    except OSError:
        return  # a read-only /proc: then all processes are equal


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``, zombies included."""
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [process for process in processes if _parent_of(process) == pid]


def _parent_of(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0  # gone meanwhile
    # The command stands in parentheses and may hold any byte, so count from the last one.
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def processor_pressure_percent() -> float:
    """Return the share of the last ten seconds in which something waited for a processor; 0 where unknown."""
    found = 0.0
    for path in ("/proc/pressure/cpu", "/sys/fs/cgroup/cpu.pressure"):
        try:
            first = Path(path).read_text().splitlines()[0]
        except (OSError, IndexError):
            continue  # a kernel without pressure information, or a cgroup of version 1
        fields = dict(field.split("=") for field in first.split()[1:])
        found = max(found, float(fields.get("avg10", "0")))
    return found
