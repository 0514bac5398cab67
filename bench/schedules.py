"""``make bench-schedules``: what docs/schedules.md promises of speed and size, measured.

A real server on loopback and a real scheduler process. Figures depend on the machine and on what else it
does: the ratio to the goal says more than the number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.rows import main
from bench.schedules_cost import cost_rows, outage_rows
from bench.schedules_cron import cron_rows
from bench.schedules_rows import QUICK, Scale, burst_row, fire_row, many_rows, rate_row
from bench.schedules_table import Row, Told

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


if __name__ == "__main__":
    quick = (QUICK, "a tenth of the schedules and a third of the time")
    raise SystemExit(main("bench.schedules", __doc__, ROWS, scale=Scale(), quick=quick))
