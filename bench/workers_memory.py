"""The rows about memory: of an idle worker, of a queued run, and what a million runs leave behind."""

from __future__ import annotations

import time
from pathlib import Path

from bench.schedules_board import private_mib
from bench.schedules_table import Measure, Row, Told
from bench.workers_world import ASYNC, Scale, World, template
from supervisor.core.model import Envelope
from supervisor.store.wire.envelope import pack
from tests.e2e.trees import Tree

EXTRA = 4
SETTLE_S = 3.0
QUEUED = 50_000
STEP = 100_000
KIB = 1024


def memory_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure an extra idle worker, by the difference of whole trees, and a queued run."""
    told("idle workers")
    few = _tree_pss_mib(1)
    idle = (_tree_pss_mib(1 + EXTRA) - few) / EXTRA
    told("queued runs")
    with World() as world:
        world.enqueue(1000, template())
        before = world.used_bytes()
        count = min(QUEUED, scale.runs)
        world.enqueue(count, template(), first=1000)
        each = (world.used_bytes() - before) / count
    payload = len(pack(Envelope(id="run-000000000", template=template(), enqueued_ms=1_700_000_000_000)).data)
    return [
        Row(
            "extra idle async worker",
            (Measure(idle, 12, "MiB PSS"),),
            f"mean of {EXTRA}; the whole tree with one {few:.0f}",
        ),
        Row(
            "Redis bytes per queued run, beyond its payload",
            (Measure(each - payload, 160, "bytes"),),
            f"{each:.0f} with a payload of {payload}",
        ),
    ]


def _tree_pss_mib(processes: int) -> float:
    with World() as world:
        tree = world.start(f"io: {{kind: async, processes: {processes}, concurrency: 100, queues: [bench]}}")
        time.sleep(SETTLE_S)
        return sum(_pss_mib(pid) for pid in (tree.pid, *(each.pid for each in tree.descendants())))


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / KIB


def million_rows(scale: Scale, told: Told) -> list[Row]:
    """Send very many no-op runs through one worker: the history is capped, so nothing may grow."""
    with World() as world:
        tree = world.start(ASYNC)
        worker = tree.slot_pid("worker-io-0")
        done = _pass(world, 0, 2 * STEP, told, scale.many)  # caches are full, the history is at its cap
        redis_before, worker_before = world.used_bytes(), private_mib(worker)
        _pass(world, done, scale.many, told, scale.many)
        time.sleep(SETTLE_S)
        redis_grown, worker_grown = world.used_bytes() - redis_before, private_mib(worker) - worker_before
        assert tree.slot_pid("worker-io-0") == worker, "the worker was replaced meanwhile"
        others = _others(tree, worker)
    per_million = worker_grown * 1e6 / scale.many
    return [
        Row(
            f"Redis after {scale.many:,} more runs, history capped",
            (Measure(max(0.0, redis_grown / KIB), 512, "KiB more"),),
            f"{redis_grown / KIB:+.0f} KiB, without the nonces of batches, which go after ten minutes",
        ),
        Row(
            "growth of the worker per 1,000,000 no-op runs",
            (Measure(max(0.0, per_million), 2, "MiB"),),
            f"{worker_grown:+.2f} MiB private; agent, scheduler and web together {others:.0f} MiB",
        ),
    ]


def _pass(world: World, done: int, count: int, told: Told, total: int) -> int:
    """Send ``count`` runs through, never many at once; return how many have ended in all."""
    for start in range(done, done + count, STEP):
        told(f"{start:,} of {total:,}")
        world.enqueue(STEP, template(), first=start)
        world.wait_for_ends(start + STEP)
    for key in world.raw.scan_iter(match=f"{world.keys.prefix}enqueues:*", count=STEP):
        world.raw.delete(key)  # of each batch, for ten minutes, so that it may be repeated: they go by themselves
    return done + count


def _others(tree: Tree, worker: int) -> float:
    return sum(private_mib(each.pid) for each in tree.descendants() if each.pid != worker)
