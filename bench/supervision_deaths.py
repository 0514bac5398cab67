"""Deaths, hangs and pauses: how soon they are noticed, and what is killed that should not be."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import psutil

from bench.supervision_world import busy, enqueue, logged_ms, signal_all, tree, wait_gone
from bench.table import Samples, Tick
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

REPLACED, READY = "death-replaced", "death-ready"
GRANDCHILDREN = "orphans-jobs"
STACKLESS = "hang-stack"
WORKERS = 8
HANG_S = 2.0
STARVED_S = 60.0


def worker_killed(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill -9 of each worker once: a second death within a minute would be paced by its back-off."""
    seen: list[float] = []
    parts: dict[str, list[float]] = {REPLACED: [], READY: []}
    while len(seen) < rounds:
        with tree(directory / f"t{len(seen)}", workers=WORKERS) as one:
            for index in range(min(WORKERS, rounds - len(seen))):
                slot = f"worker-cpu-{index}"
                struck_ms = time.time() * 1e3
                pid = one.kill(slot)
                seen.append(logged_ms(one.wait_for("child_exited", child_pid=pid)) - struck_ms)
                parts[REPLACED].append(logged_ms(one.wait_for("child_started", slot=slot, generation=2)) - struck_ms)
                wait_until(lambda s=slot: len(_ready(one, s)) == 2, what=f"{slot} to be ready again")
                parts[READY].append(logged_ms(_ready(one, slot)[1]) - struck_ms)
                tick()
    return Samples(seen, "by the parent's log, to the ms", parts)


def _ready(one: Tree, slot: str) -> list[dict[str, object]]:
    return [event for event in one.events("child_ready") if event["slot"] == slot]


def parent_killed(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill -9 of the parent while a job has a command running."""
    children: list[float] = []
    jobs: list[float] = []
    for number in range(rounds):
        place = directory / f"t{number}"
        with tree(place) as one:
            enqueue(place, "shell.command", 'command=["sleep", "600"]')
            sleeper: psutil.Process = wait_until(lambda t=one: _sleeper(t), what="the job's command")
            family = [each for each in one.descendants() if each.pid != sleeper.pid]
            struck = time.perf_counter()
            one.kill()
            wait_gone(family)
            children.append((time.perf_counter() - struck) * 1e3)
            wait_gone([sleeper])
            jobs.append((time.perf_counter() - struck) * 1e3)
        tick()
    return Samples(children, "looked at every 10 ms; 9 children and a job with a command", {GRANDCHILDREN: jobs})


def _sleeper(one: Tree) -> psutil.Process | None:
    return next((each for each in one.descendants() if each.name() == "sleep"), None)


def hang(directory: Path, rounds: int, tick: Tick) -> Samples:
    """SIGSTOP of the web child: how long after its limit it is found out, and whether its stack is in the log."""
    late: list[float] = []
    stackless: list[float] = []
    for number in range(rounds):
        with tree(directory / f"t{number}", hang_s=HANG_S) as one:
            pid = one.slot_pid("web")
            struck_ms = time.time() * 1e3
            os.kill(pid, signal.SIGSTOP)
            found = one.wait_for("child_signalled", child_pid=pid, cause="hang")
            late.append(max(0.0, logged_ms(found) - struck_ms - HANG_S * 1e3))
            one.wait_for("child_exited", child_pid=pid)
            stackless.append(float("most recent call first" not in one.log_path.read_text(errors="replace")))
        tick()
    return Samples(late, "counted from the signal; its last beat may be up to a second older", {STACKLESS: stackless})


def pauses(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Stop every process of the tree, the parent among them, and let it go on: nobody hung."""
    draw = random.Random(1)
    killed: list[float] = []
    with tree(directory, hang_s=HANG_S) as one:
        for _ in range(rounds):
            before = len(one.events("child_exited"))
            family = [psutil.Process(one.pid), *one.descendants()]
            signal_all(family, signal.SIGSTOP)
            time.sleep(draw.uniform(2, 6))
            signal_all(family, signal.SIGCONT)
            time.sleep(1 + HANG_S)  # so long would a false judgement take to fall
            killed.append(float(len(one.events("child_exited")) - before))
            tick()
    return Samples(killed, f"hang limits 2 s (scheduler, web, workers) and 3 s (agent); seed 1, {rounds} pauses")


def starved(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Four busy processes a core beside an idle tree."""
    killed: list[float] = []
    spinners = 4 * (os.cpu_count() or 1)
    for number in range(rounds):
        with tree(directory / f"t{number}") as one, busy(spinners):
            time.sleep(STARVED_S)
            killed.append(float(len(one.events("child_exited"))))
        tick()
    return Samples(killed, f"{spinners} busy processes for {STARVED_S:g} s, default limits")
