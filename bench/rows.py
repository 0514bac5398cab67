"""The command of a benchmark whose rows are functions: the chosen ones, a bar of progress, the table, and JSON."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.schedules_table import Row, Told, table_of

SPIN_S = 0.3
S = TypeVar("S")
Rows = Mapping[str, Callable[[S, Told], list[Row]]]


def main(name: str, described: str | None, rows: Rows[S], *, scale: S, quick: tuple[S, str]) -> int:
    """Measure, print the table, and return 1 if a goal was missed or a row could not be measured.

    Args:
        name: of the module.
        described: what the help says.
        rows: by the names for ``--rows``.
        scale: how much is measured.
        quick: how much with ``--quick``, and what the help says of it.
    """
    options = _options(name, described, rows, quick[1])
    chosen = options.rows.split(",") if options.rows else list(rows)
    found: list[Row] = []
    failures: list[str] = []
    shares: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen))
        for row in chosen:
            told = partial(_tell, progress, task, row)
            told("")
            shares.append(_share_of_a_core())
            try:
                measured = rows[row](quick[0] if options.quick else scale, told)
            except AssertionError as error:  # it costs that row only
                failures.append(f"{row}: not measured: {' '.join(str(error).split())}")
                measured = []
            progress.advance(task)
            found += measured
            for each in measured:
                progress.console.print("  ".join(each.cells()))
    shares.append(_share_of_a_core())
    table = table_of(found)
    table.caption = (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; between the rows one busy thread got "
        f"{min(shares):.0%} to {max(shares):.0%} of one"
    )
    console = Console(width=None if Console().is_terminal else 180)
    console.print(table, *failures, sep="\n")
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_json() for row in found], indent=2) + "\n")
    return int(bool(failures) or any(row.ratio > 1 for row in found))


def _share_of_a_core() -> float:
    """Return how much of a core one busy thread gets now: the rest goes to others, and makes every figure worse."""
    begun_s, used_s = time.perf_counter(), time.process_time()
    while time.process_time() - used_s < SPIN_S:
        pass
    return SPIN_S / (time.perf_counter() - begun_s)


def _tell(progress: Progress, task: TaskID, name: str, what: str) -> None:
    progress.update(task, description=f"{name}: {what}" if what else name)


def _options(name: str, described: str | None, rows: Rows[S], quick: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=described)
    parser.add_argument("--rows", help=f"which, separated by commas; of {','.join(rows)}")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", metavar="FILE", help="also write what was found for a machine to read")
    options = parser.parse_args()
    unknown = sorted(set((options.rows or "").split(",")) - set(rows) - {""})
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(rows)}")
    return options
