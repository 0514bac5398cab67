"""A deploy with many schedules: from SIGTERM at the leader to the other's first accepted fire."""

from __future__ import annotations

from pathlib import Path

from bench.clusters import CLOCK, CLUSTER, DEFAULT, Bench, bench
from bench.table import Samples, Tick
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import Change, Definitions
from tests.kit.waiting import wait_until

SCHEDULES = 100_000
DAY_MS = 86_400_000
BATCH = 250
PLANNED_S = 300.0
ELECTION = "sigterm-election"


def sigterm(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Return the milliseconds to the first accepted fire, and those to the other's term."""
    found: list[float] = []
    election: list[float] = []
    with bench(directory, election=DEFAULT) as cluster:
        define(cluster)
        for _ in range(rounds):
            leader, _standby = cluster.roles()
            epoch, struck_ms = cluster.view().epoch, CLOCK.wall_ms()
            leader.terminate()
            first_ms = wait_until(
                lambda before=epoch: cluster.first_fire_ms(after_ms=0, above_epoch=before), what="the first fire"
            )
            found.append(first_ms - struck_ms)
            election.append(cluster.view().acquired_ms - struck_ms)
            leader.wait()
            cluster.replace(leader)
            tick()
    note = f"{SCHEDULES:,} schedules of one day; SIGTERM to the other's first accepted fire"
    return Samples(found, note, {ELECTION: election})


def define(cluster: Bench) -> None:
    """Bring in the schedules, due evenly over a day, and wait until the leader has planned them."""
    keys = Keys(CLUSTER)
    definitions, template = Definitions(keys), Template(job="bench.tick", kind=Kind.ASYNC)
    for start in range(0, SCHEDULES, BATCH):
        batch = [
            Change(
                definition=ScheduleDef(id=f"many-{n:06d}", template=template, every_ms=DAY_MS, phase_ms=_phase_ms(n))
            )
            for n in range(start, start + BATCH)
        ]
        cluster.store.run(definitions.upsert(batch, wall_ms=CLOCK.wall_ms()))
    raw = cluster.store.raw
    wait_until(
        lambda: raw.zcount(keys.schedule_next, "-inf", 0) == 0, what="the plan of all of them", bound_s=PLANNED_S
    )


def _phase_ms(number: int) -> int:
    return number * DAY_MS // SCHEDULES
