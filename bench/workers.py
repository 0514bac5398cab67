"""``make bench-workers``: what queues and workers promise of speed, recovery and size, measured.

A real server on loopback and real trees, started by the command; history and metrics are on, as they
come. Figures depend on the machine and on what else it does: the ratio to the goal says more than the
number, and processor time more than the clock.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.rows import main
from bench.schedules_table import Row, Told
from bench.workers_deaths import killed_rows, node_rows, outage_rows, timeout_rows
from bench.workers_memory import memory_rows, million_rows
from bench.workers_producing import enqueue_rows, latency_rows, result_rows
from bench.workers_speed import async_rows, life_rows, output_rows, sync_rows, trips_rows
from bench.workers_world import QUICK, Scale

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


if __name__ == "__main__":
    quick = (QUICK, "a third of the runs, few rounds")
    raise SystemExit(main("bench.workers", __doc__, ROWS, scale=Scale(), quick=quick))
