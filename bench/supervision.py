"""``make bench-supervision``: how fast and how cheap the process tree is, and how its peers do the same.

Whole trees with the bundled server. Times are from the blow to what the log or the kernel says, on this machine and
beside whatever else it does: the ratio to the goal says more than the number.
"""

from __future__ import annotations

import sys

from bench import supervision_costs as costs
from bench import supervision_deaths as deaths
from bench import supervision_stops as stops
from bench.program import run
from bench.table import Goal, Row

ROWS = (
    Row(
        "death",
        "worker killed -9 to seen",
        deaths.worker_killed,
        24,
        p99_max=50,
        parts=(
            Goal(deaths.REPLACED, "… to the successor's process", p99_max=100),
            Goal(deaths.READY, "… to the successor's work", p99_max=500),
        ),
    ),
    Row(
        "start",
        "exec to READY, 4 workers",
        stops.start_and_stop,
        10,
        p99_max=1500,
        parts=(Goal(stops.STOPPED, "idle SIGTERM to exit 0", p99_max=300),),
    ),
    Row("busy", "stop with jobs that refuse to end, beyond the grace", stops.busy, 4, p99_max=3500),
    Row("second", "second SIGTERM to exit 1, busy", stops.second_signal, 6, p99_max=500),
    Row(
        "orphans",
        "parent killed -9 to 0 children",
        deaths.parent_killed,
        10,
        p50_max=100,
        parts=(Goal(deaths.GRANDCHILDREN, "… to 0 processes of jobs", p50_max=200),),
    ),
    Row(
        "hang",
        "stopped web child noticed after its limit of 2 s",
        deaths.hang,
        6,
        p99_max=500,
        parts=(Goal(deaths.STACKLESS, "… whose stack was not logged", p99_max=0, unit=""),),
    ),
    Row("pauses", "false kills, whole tree paused 2 to 6 s", deaths.pauses, 20, p99_max=0, unit=""),
    Row("starved", "false kills, 60 s at 4 busy processes a core", deaths.starved, 1, p99_max=0, unit=""),
    Row(
        "memory",
        "PSS of the parent, 8 idle workers",
        costs.memory,
        3,
        p50_max=15,
        unit="MiB",
        parts=(Goal(costs.WORKER, "USS of an idle worker", p50_max=8, unit="MiB"),),
    ),
    Row(
        "idle",
        "CPU of the idle parent, 32 children",
        costs.idle,
        3,
        p50_max=0.3,
        unit="%",
        parts=(Goal(costs.WAKEUPS, "… its wake-ups a second", p50_max=4, unit="/s"),),
    ),
    Row(
        "restarts",
        "growth of the parent over 10,000 restarts, RSS",
        costs.restarts,
        10_000,
        p99_max=1,
        unit="MiB",
        parts=(Goal(costs.DESCRIPTORS, "… file descriptors gained", p99_max=0, unit=""),),
    ),
    Row("livez", "/livez with every core busy", costs.livez, 500, p99_max=20),
    Row("refused", "connections refused while web is killed", costs.web_killed, 5, p99_max=0, unit=""),
)

if __name__ == "__main__":
    sys.exit(run("bench.supervision", __doc__, ROWS))
