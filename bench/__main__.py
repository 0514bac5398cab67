"""``make bench``: medians of what a user waits for, on a real server on loopback. Never part of the tests.

Figures depend on the machine and on what else it does: compare medians of one run with one another.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import cron, handover, latency

ROUNDS = 10


def main() -> None:
    """Run every benchmark and print one table."""
    table = Table("measure", "median", "worst", "rounds")
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as directory:
        for name, measure in {
            "idle: enqueue to start of the job": latency.measure,
            "SIGTERM of the leader to the other's term": handover.measure_resign,
            "kill -9 of a worker, reaped, to its runs given back": handover.measure_worker_death,
        }.items():
            found = [measure(Path(directory) / f"{name[:4]}{n}") for n in track(range(ROUNDS), description=name)]
            table.add_row(name, f"{median(found) * 1e3:.1f} ms", f"{max(found) * 1e3:.1f} ms", str(len(found)))
    for name, rate in cron.rates().items():
        table.add_row(f"next() of {name}", f"{rate / 1e3:.0f} k/s", "", "1")
    Console().print(table)


if __name__ == "__main__":
    main()
