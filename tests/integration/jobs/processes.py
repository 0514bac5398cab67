"""Looking at processes that are nobody's children here."""

from __future__ import annotations

import psutil


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def living(pids: list[int]) -> list[int]:
    """Return those of ``pids`` that have not ended."""
    return [pid for pid in pids if not is_gone(pid)]
