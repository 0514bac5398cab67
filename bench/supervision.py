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
        name="death",
        title="worker killed -9 to seen",
        measure=deaths.worker_killed,
        rounds=24,
        p99_max=50,
        parts=(
            Goal(name=deaths.REPLACED, title="… to the successor's process", p99_max=100),
            Goal(name=deaths.READY, title="… to the successor's work", p99_max=500),
        ),
    ),
    Row(
        name="start",
        title="exec to READY, 4 workers",
        measure=stops.start_and_stop,
        rounds=10,
        p99_max=1500,
        parts=(Goal(name=stops.STOPPED, title="idle SIGTERM to exit 0", p99_max=300),),
    ),
    Row(
        name="busy",
        title="stop with jobs that refuse to end, beyond the grace",
        measure=stops.busy,
        rounds=4,
        p99_max=3500,
    ),
    Row(name="second", title="second SIGTERM to exit 1, busy", measure=stops.second_signal, rounds=6, p99_max=500),
    Row(
        name="orphans",
        title="parent killed -9 to 0 children",
        measure=deaths.parent_killed,
        rounds=10,
        p50_max=100,
        parts=(Goal(name=deaths.GRANDCHILDREN, title="… to 0 processes of jobs", p50_max=200),),
    ),
    Row(
        name="hang",
        title="stopped web child noticed after its limit of 2 s",
        measure=deaths.hang,
        rounds=6,
        p99_max=500,
        parts=(Goal(name=deaths.STACKLESS, title="… whose stack was not logged", p99_max=0, unit=""),),
    ),
    Row(
        name="pauses",
        title="false kills, whole tree paused 2 to 6 s",
        measure=deaths.pauses,
        rounds=20,
        p99_max=0,
        unit="",
    ),
    Row(
        name="starved",
        title="false kills, 60 s at 4 busy processes a core",
        measure=deaths.starved,
        rounds=1,
        p99_max=0,
        unit="",
    ),
    Row(
        name="memory",
        title="PSS of the parent, 8 idle workers",
        measure=costs.memory,
        rounds=3,
        p50_max=15,
        unit="MiB",
        parts=(Goal(name=costs.WORKER, title="USS of an idle worker", p50_max=8, unit="MiB"),),
    ),
    Row(
        name="idle",
        title="CPU of the idle parent, 32 children",
        measure=costs.idle,
        rounds=3,
        p50_max=0.3,
        unit="%",
        parts=(Goal(name=costs.WAKEUPS, title="… its wake-ups a second", p50_max=4, unit="/s"),),
    ),
    Row(
        name="restarts",
        title="growth of the parent over 10,000 restarts, RSS",
        measure=costs.restarts,
        rounds=10_000,
        p99_max=1,
        unit="MiB",
        parts=(Goal(name=costs.DESCRIPTORS, title="… file descriptors gained", p99_max=0, unit=""),),
    ),
    Row(
        name="livez",
        title="/livez with every core busy",
        measure=costs.livez,
        rounds=500,
        p99_max=20,
    ),
    Row(
        name="refused",
        title="connections refused while web is killed",
        measure=costs.web_killed,
        rounds=5,
        p99_max=0,
        unit="",
    ),
)

if __name__ == "__main__":
    sys.exit(run("bench.supervision", __doc__, ROWS))
