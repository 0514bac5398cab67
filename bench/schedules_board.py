"""A scoreboard in a file, and what a process costs: shared by the benchmark and the scheduler it starts."""

from __future__ import annotations

import mmap
from pathlib import Path

from supervisor.core.supervision.scoreboard import Board, board_words

SLOT_NAMES = ("scheduler",)


def open_board(path: Path) -> Board:
    """Map the scoreboard in ``path``, made if absent."""
    size = 8 * board_words(slots=len(SLOT_NAMES), inflight=1)
    with path.open("a+b") as file:
        file.truncate(size)
        words = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
    return Board(words, slots=len(SLOT_NAMES), inflight=1)


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that all threads of a process have used, exact to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def private_mib(pid: int) -> float:
    """Return the memory that only this process has (USS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return (sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024
