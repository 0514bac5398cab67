"""The rows about throughput: how many runs one worker process finishes, and what each costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.schedules_board import cpu_s
from bench.schedules_table import Measure, Row, Told
from bench.workers_world import ASYNC, BOUND_S, SYNC, Scale, World, template
from supervisor.core.model import Kind, Template

LOOK_S = 0.02
OUTPUT_ROUNDS = 3
FROM, UNTIL = 0.15, 0.9  # of all runs: what is measured is the middle, without start and end


@dataclass(frozen=True, slots=True)
class Look:
    """What had been used and done at one moment."""

    at_s: float
    done: int
    worker_s: float
    server_s: float
    trips: int


@dataclass(frozen=True, slots=True)
class Speed:
    """What a stretch of runs took."""

    per_s: float
    worker_us: float  # processor time of the worker, per run
    server_us: float  # processor time of the server, per run: fetch, acknowledgement, history
    trips: float  # per run

    @property
    def note(self) -> str:
        """What a reader must know to read the numbers on a busy machine."""
        alone = 1e6 / self.worker_us
        return (
            f"worker {self.worker_us:.1f} µs CPU per run, so {alone:,.0f}/s with a core of its own; "
            f"server {self.server_us:.1f} µs, {self.trips:.3f} round trips per run"
        )


def measure(world: World, pool: str, job: Template, count: int, options: Sequence[str] = ()) -> Speed:
    """Fill the queue, start a tree with one worker process, and watch it empty the queue."""
    world.enqueue(count, job)
    return drain(world, pool, count, options)


def drain(world: World, pool: str, count: int, options: Sequence[str] = ()) -> Speed:
    """Start a tree with one worker process, and watch it finish the ``count`` runs that wait."""
    tree = world.start(pool, options=options)
    worker = tree.slot_pid(f"worker-{pool.partition(':')[0]}-0")
    first, last = (_look_at(world, worker, round(share * count)) for share in (FROM, UNTIL))
    done = last.done - first.done
    return Speed(
        per_s=done / (last.at_s - first.at_s),
        worker_us=1e6 * (last.worker_s - first.worker_s) / done,
        server_us=1e6 * (last.server_s - first.server_s) / done,
        trips=(last.trips - first.trips) / done,
    )


def _look_at(world: World, worker: int, count: int) -> Look:
    """Wait until ``count`` runs have ended, and return what had been used by then."""
    until_s = time.perf_counter() + BOUND_S
    while (done := world.count()) < count:
        assert time.perf_counter() < until_s, f"{done} of {count} runs ended in {BOUND_S:g} s"
        time.sleep(LOOK_S)
    return Look(time.perf_counter(), done, cpu_s(worker), world.server_cpu_s(), world.round_trips())


def async_rows(scale: Scale, _told: Told) -> list[Row]:
    """Measure no-op coroutines in one process with 100 slots, history and metrics on."""
    with World() as world:
        speed = measure(world, ASYNC, template(), scale.runs)
    return _rows("async no-op, one process, 100 slots", speed, 20_000)


def sync_rows(scale: Scale, _told: Told) -> list[Row]:
    """Measure no-op functions in one process."""
    with World() as world:
        speed = measure(world, SYNC, template("bench.noop_sync", Kind.SYNC), scale.runs)
    return _rows("sync no-op, one process", speed, 8_000)


def output_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure what it costs that output is kept: of runs that write nothing, and of those that print ten lines.

    Paired: each round measures all policies one after the other, and the median of the rounds' ratios counts.
    """
    policies = ("none", "failures", "all")
    rows = []
    for job, what, goals in (("bench.noop", "silent", (1.1, 1.1)), ("bench.tell", "ten lines", (2.0, 10.0))):
        found: dict[str, list[float]] = {policy: [] for policy in policies}
        for turn in range(OUTPUT_ROUNDS):
            for policy in policies[turn % 3 :] + policies[: turn % 3]:
                told(f"{what}, log.runs {policy}, round {turn + 1}")
                with World() as world:
                    speed = measure(world, ASYNC, template(job), scale.runs // 4, ("--set", f"log.runs={policy}"))
                found[policy].append(speed.worker_us)
        for policy, goal in zip(policies[1:], goals, strict=True):
            ratio = median(each / base for each, base in zip(found[policy], found["none"], strict=True))
            note = f"worker {median(found[policy]):.1f} µs CPU per run, with none {median(found['none']):.1f} µs"
            rows.append(Row(f"output, {what}: log.runs {policy} to none", (Measure(ratio, goal, "times"),), note))
    return rows


def _rows(name: str, speed: Speed, goal_per_s: int) -> list[Row]:
    """Return the rate, and the processor time that the goal allows a worker that has a core of its own."""
    cpu_ms = Measure(speed.worker_us, 1e6 / goal_per_s, "ms")
    return [
        Row(name, (Measure(speed.per_s, goal_per_s, "/s", at_least=True),), speed.note),
        Row("… CPU of the worker per 1,000 runs", (cpu_ms,), "less dependent on what else the machine does"),
    ]


def trips_rows(scale: Scale, _told: Told) -> list[Row]:
    """Measure round trips at 20 slots."""
    with World() as world:
        few = measure(world, ASYNC.replace("100", "20"), template(), scale.runs // 2)
    return [Row("round trips per run, 20 slots", (Measure(few.trips, 0.1, ""),), few.note)]


def life_rows(scale: Scale, _told: Told) -> list[Row]:
    """Measure the server's processor time for the whole life of a run, enqueued by fifty."""
    with World() as world:
        world.enqueue(1000, template(), batch=50)
        before_s = world.server_cpu_s()
        world.enqueue(scale.runs, template(), batch=50, first=1000)
        enqueue_us = 1e6 * (world.server_cpu_s() - before_s) / scale.runs
        speed = drain(world, ASYNC, scale.runs + 1000)
    total = Measure(enqueue_us + speed.server_us, 12, "µs")
    note = f"enqueue {enqueue_us:.1f} µs (batches of 50), turns {speed.server_us:.1f} µs (100 slots)"
    return [Row("server CPU per run, whole life", (total,), note)]
