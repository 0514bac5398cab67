"""``make bench-workers``: what queues and workers promise of speed, recovery and size, measured.

A real server on loopback and real trees, started by the command; history and metrics are on, as they
come. Figures depend on the machine and on what else it does: the ratio to the goal says more than the
number, and processor time more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.schedules import share_of_a_core
from bench.schedules_table import Row, table_of
from bench.workers_deaths import killed_rows, node_rows, outage_rows, timeout_rows
from bench.workers_memory import memory_rows, million_rows
from bench.workers_producing import enqueue_rows, latency_rows, result_rows
from bench.workers_speed import async_rows, life_rows, output_rows, sync_rows, trips_rows
from bench.workers_world import QUICK, Scale, Told

ROWS: dict[str, Callable[[Scale, Told], list[Row]]] = {
    "async": async_rows,
    "sync": sync_rows,
    "output": output_rows,
    "enqueue": enqueue_rows,
    "life": life_rows,
    "trips": trips_rows,
    "latency": latency_rows,
    "result": result_rows,
    "killed": killed_rows,
    "node": node_rows,
    "timeout": timeout_rows,
    "outage": outage_rows,
    "memory": memory_rows,
    "million": million_rows,
}


def main() -> int:
    """Measure, print the table, and return 1 if a goal was missed or a row could not be measured."""
    options = _options()
    chosen = options.rows.split(",") if options.rows else list(ROWS)
    scale = QUICK if options.quick else Scale()
    found: list[Row] = []
    failures: list[str] = []
    shares: list[float] = []
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)
    ) as progress:
        task = progress.add_task("", total=len(chosen))
        for name in chosen:
            shares.append(share_of_a_core())
            rows = _measure(name, scale, partial(_tell, progress, task, name), failures)
            progress.advance(task)
            found += rows
            for row in rows:
                progress.console.print("  ".join(row.cells()))
    shares.append(share_of_a_core())
    table = table_of(found)
    table.caption = (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; between the rows one busy thread got "
        f"{min(shares):.0%} to {max(shares):.0%} of one"
    )
    console = Console(width=None if Console().is_terminal else 180)
    console.print(table)
    for failure in failures:
        console.print(failure)
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_json() for row in found], indent=2) + "\n")
    return int(bool(failures) or any(row.ratio > 1 for row in found))


def _measure(name: str, scale: Scale, told: Told, failures: list[str]) -> list[Row]:
    """Measure one row; a failure costs that row only."""
    told("")
    try:
        return ROWS[name](scale, told)
    except AssertionError as error:
        failures.append(f"{name}: not measured: {' '.join(str(error).split())}")
        return []


def _tell(progress: Progress, task: TaskID, name: str, what: str) -> None:
    progress.update(task, description=f"{name}: {what}" if what else name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--rows", help=f"which, separated by commas; of {','.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a third of the runs, few rounds")
    parser.add_argument("--json", metavar="FILE", help="also write what was found for a machine to read")
    options = parser.parse_args()
    unknown = sorted(set((options.rows or "").split(",")) - set(ROWS) - {""})
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
