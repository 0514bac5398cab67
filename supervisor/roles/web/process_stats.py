"""Process statistics of the kernel: processor time, memory, descriptors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Vitals:
    """One process at one moment."""

    cpu_s: float
    rss_bytes: int
    fds: int | None  # None: not ours to count


def read_vitals(pid: int) -> Vitals | None:
    """Return the vitals of ``pid``, or None when there is no such process."""
    directory = Path("/proc") / str(pid)
    try:
        stat = (directory / "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
    try:
        fds = sum(1 for _ in (directory / "fd").iterdir())
    except OSError:
        fds = None
    # Counted from field 3 of proc(5): utime is 14, stime 15, rss 24.
    return Vitals((int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE, fds)
