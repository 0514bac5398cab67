"""The rows about death: how soon runs go back, a run that overruns is gone, and all work again after an outage."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path

from bench.schedules_table import Measure, Row, Told, percentile
from bench.workers_world import SYNC, Scale, World, template
from supervisor.core.model import Kind
from supervisor.core.retry import Retry
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

LOOK_S = 0.0003
CALM_S = 0.4
WORKERS = 8
POOL = f"io: {{kind: async, processes: {WORKERS}, concurrency: 10, queues: [bench]}}"
ONE = "io: {kind: async, processes: 1, concurrency: 10, queues: [bench]}"
FAST = "queues: {session_lease: 3s, beat_period: 500ms}"
BOUND_S = 60.0


def _until_reclaimed_ms(world: World, total: int, begun_ns: int) -> float:
    """Return the milliseconds from ``begun_ns`` until so many runs in all have been taken back."""
    while world.reclaimed() < total:
        passed_s = (time.perf_counter_ns() - begun_ns) / 1e9
        assert passed_s < BOUND_S, f"not given back after {BOUND_S:g} s"
        time.sleep(LOOK_S)
    return (time.perf_counter_ns() - begun_ns) / 1e6


def _until_begun_again_ms(file: Path, victim: int, begun_ns: int) -> float:
    """Return the milliseconds from ``begun_ns`` until another process than ``victim`` executes the run of ``file``."""
    while file.read_text() in {"", str(victim)}:
        passed_s = (time.perf_counter_ns() - begun_ns) / 1e9
        assert passed_s < BOUND_S, f"not begun again after {BOUND_S:g} s"
        time.sleep(LOOK_S)
    return (time.perf_counter_ns() - begun_ns) / 1e6


def killed_rows(scale: Scale, told: Told) -> list[Row]:
    """Kill -9 of one of eight workers, each time while it executes a run, until another process has begun that run."""
    found_ms: list[float] = []
    with World() as world:
        world.start(POOL)
        for number in range(scale.kills):
            if number % 10 == 0:
                told(f"{number} of {scale.kills}")
            run_id = f"hold-{number}"
            victim = world.hold(run_id)[run_id]
            time.sleep(CALM_S)  # what the kill before it set off is over: the replacement stands
            begun_ns = time.perf_counter_ns()
            os.kill(victim, signal.SIGKILL)
            found_ms.append(_until_begun_again_ms(world.held(run_id), victim, begun_ns))
    return [
        Row(
            "worker killed -9 to its run begun again",
            (
                Measure(percentile(found_ms, 0.5), 25, "ms", name="p50 "),
                Measure(percentile(found_ms, 0.99), 100, "ms", name="p99 "),
            ),
            f"{len(found_ms)} kills",
        )
    ]


def node_rows(scale: Scale, told: Told) -> list[Row]:
    """Kill -9 of a whole replica, agent and all; another one gives its runs back."""
    rows = []
    for name, lease_s, extra, rounds in (("fast", 3, FAST, scale.nodes), ("default", 15, "", max(1, scale.nodes // 2))):
        found_s = []
        with World() as world:
            for number in range(rounds):
                told(f"{name} settings, {number} of {rounds}")
                lost = world.start(ONE, name=f"lost{number}", extra=extra)
                world.hold(f"hold-{number}")
                if not number:
                    world.start(SYNC, name="other", extra=extra)  # it takes no coroutines
                    time.sleep(2 * lease_s / 3)  # until it has seen the sessions beat
                total, begun_ns = world.reclaimed() + 1, time.perf_counter_ns()
                lost.kill()
                lost.process.wait()
                found_s.append(_until_reclaimed_ms(world, total, begun_ns) / 1000)
        worst = Measure(max(found_s), lease_s + 1, "s", name="worst ")
        note = f"{rounds} kills, the lease is {lease_s} s; median {percentile(found_s, 0.5):.2f} s"
        rows.append(Row(f"node lost to its runs runnable, {name} settings", (worst,), note))
    return rows


def timeout_rows(scale: Scale, told: Told) -> list[Row]:
    """A job that spins and lets no exception pass, until its hard timeout of two seconds."""
    killed_ms, ready_ms = [], []
    with World() as world:
        tree = world.start(SYNC)
        path = world.directory / "spins"
        path.touch()
        job = template(
            "bench.spin", Kind.SYNC, args={"path": str(path)}, timeout_s=2.0, soft_timeout_s=1.0, max_crashes=1,
            retry=Retry(attempts=1),
        )  # fmt: skip
        for number in range(scale.timeouts):
            told(f"{number} of {scale.timeouts}")
            world.enqueue(1, job, first=number)
            wait_until(lambda n=number: path.read_text().count("\n") > n, what="the job to spin")
            pid, started_ns = (int(part) for part in path.read_text().splitlines()[number].split())
            gone = tree.wait_for("child_exited", child_pid=pid)
            again = _ready_after(tree, number + 1)
            killed_ms.append(_ms(gone) - started_ns / 1e6 - 2000)
            ready_ms.append(_ms(again) - _ms(gone))
    return [
        Row(
            "hard timeout to killed",
            (Measure(max(killed_ms), 250, "ms", name="worst "),),
            f"{len(killed_ms)} times, median {percentile(killed_ms, 0.5):.0f} ms",
        ),
        Row(
            "… killed to replacement ready",
            (Measure(max(ready_ms), 500, "ms", name="worst "),),
            f"median {percentile(ready_ms, 0.5):.0f} ms",
        ),
    ]


def _ready_after(tree: Tree, generation: int) -> dict[str, str]:
    """Return when the worker's process after ``generation`` others was ready."""
    slot = "worker-cpu-0"
    wait_until(
        lambda: sum(each["slot"] == slot for each in tree.events("child_ready")) > generation, what="the replacement"
    )
    return [each for each in tree.events("child_ready") if each["slot"] == slot][generation]


def _ms(event: dict[str, str]) -> float:
    return datetime.fromisoformat(event["ts"]).timestamp() * 1000


def outage_rows(scale: Scale, told: Told) -> list[Row]:
    """The server is killed and comes back with its data; three idle workers must all take runs again."""
    workers = 3
    with World(is_durable=True) as world:
        assert isinstance(world.server, Server)
        tree = world.start(f"io: {{kind: async, processes: {workers}, concurrency: 1, queues: [bench]}}")
        told(f"an outage of {scale.outage_s:g} s")
        world.server.kill()
        time.sleep(scale.outage_s)
        world.server.start()
        back_ns = time.perf_counter_ns()
        pids = world.hold(*(f"hold-{number}" for number in range(workers)), seconds=30.0)
        all_s = (time.perf_counter_ns() - back_ns) / 1e9
        restarts = sum(each["generation"] > 1 for each in tree.events("child_started"))
    assert len(set(pids.values())) == workers
    assert restarts == 0, f"{restarts} processes were started anew"
    note = f"after {scale.outage_s:g} s; {workers} workers with one slot each, no process restarted"
    return [Row("Redis back to every worker consuming", (Measure(all_s, 5, "s"),), note)]
