"""``make bench-schedules``: what docs/schedules.md promises of speed and size, measured.

A real server on loopback and a real scheduler process. Figures depend on the machine and on what else it
does: the ratio to the goal says more than the number.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.schedules_cost import cost_rows, outage_rows
from bench.schedules_cron import cron_rows
from bench.schedules_rows import QUICK, Scale, Told, burst_row, fire_row, many_rows, rate_row
from bench.schedules_table import Row, table_of

SPIN_S = 0.3

ROWS: dict[str, Callable[[Scale, Told], list[Row]]] = {
    "rate-10": partial(rate_row, rate=10, p50=2, p99=10),
    "rate-1000": partial(rate_row, rate=1000, p50=5, p99=25),
    "rate-5000": partial(rate_row, rate=5000, p50=10, p99=50),
    "burst-10k": partial(burst_row, count=10_000, goal_s=0.5),
    "burst-100k": partial(burst_row, count=100_000, goal_s=5.0),
    "fire": fire_row,
    "many": many_rows,
    "cost": cost_rows,
    "outage": outage_rows,
    "cron": cron_rows,
}


def main() -> int:
    """Measure, print the table, and return 1 if a goal was missed."""
    options = _options()
    chosen = options.rows.split(",") if options.rows else list(ROWS)
    console = Console(stderr=True)
    found: list[Row] = []
    shares: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(chosen))
        for name in chosen:
            told = partial(_tell, progress, task, name)
            told("")
            shares.append(share_of_a_core())
            rows = ROWS[name](QUICK if options.quick else Scale(), told)
            found += rows
            progress.advance(task)
            for row in rows:
                progress.console.print("  ".join(row.cells()))
    table = table_of(found)
    shares.append(share_of_a_core())
    table.caption = (
        f"{os.cpu_count()} cores; between the rows one busy thread got {min(shares):.0%} to {max(shares):.0%} of one"
    )
    Console(width=None if Console().is_terminal else 160).print(table)
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_json() for row in found], indent=2) + "\n")
    return int(any(row.ratio > 1 for row in found))


def share_of_a_core() -> float:
    """Return how much of a core one busy thread gets now: the rest goes to others, and makes every figure worse."""
    begun_s, used_s = time.perf_counter(), time.process_time()
    while time.process_time() - used_s < SPIN_S:
        pass
    return SPIN_S / (time.perf_counter() - begun_s)


def _tell(progress: Progress, task: object, name: str, what: str) -> None:
    progress.update(task, description=f"{name}: {what}" if what else name)  # type: ignore[arg-type]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.schedules", description=__doc__)
    parser.add_argument("--rows", help=f"which, separated by commas; of {','.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the schedules and a third of the time")
    parser.add_argument("--json", metavar="FILE", help="also write what was found for a machine to read")
    options = parser.parse_args()
    unknown = sorted(set((options.rows or "").split(",")) - set(ROWS) - {""})
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
