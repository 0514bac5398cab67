"""Starting and stopping: idle, busy, and by a second signal."""

from __future__ import annotations

import json
import time
from pathlib import Path

from bench.supervision_world import enqueue, logged_ms, tree
from bench.table import Samples, Tick
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

STOPPED = "start-stop"
GRACE_S = 2.0
DEBOUNCED_S = 0.5


def start_and_stop(directory: Path, rounds: int, tick: Tick) -> Samples:
    """From exec to READY, and from SIGTERM to exit 0 of a tree without work."""
    started: list[float] = []
    stopped: list[float] = []
    for number in range(rounds):
        began_ms = time.time() * 1e3
        with tree(directory / f"t{number}") as one:
            started.append(logged_ms(one.wait_for("tree_ready")) - began_ms)
            stopped.append(_stop_ms(one, code=0))
        tick()
    return Samples(started, "a fresh data directory and the bundled server each time", {STOPPED: stopped})


def busy(directory: Path, rounds: int, tick: Tick) -> Samples:
    """A job that swallows whatever is raised in it: how long beyond the grace the tree takes to be gone."""
    beyond: list[float] = []
    for number in range(rounds):
        place = directory / f"t{number}"
        with tree(place, grace_s=GRACE_S) as one:
            _occupy(place, one)
            beyond.append(_stop_ms(one, code=1) - GRACE_S * 1e3)
        tick()
    return Samples(beyond, f"grace {GRACE_S:g} s; exit code 1")


def second_signal(directory: Path, rounds: int, tick: Tick) -> Samples:
    """A second SIGTERM, after the debounce, while a job refuses to end."""
    found: list[float] = []
    for number in range(rounds):
        place = directory / f"t{number}"
        with tree(place, grace_s=60) as one:
            _occupy(place, one)
            one.terminate()
            one.wait_for("stop_stage")
            time.sleep(DEBOUNCED_S)
            found.append(_stop_ms(one, code=1))
        tick()
    return Samples(found, "grace 60 s; exit code 1")


def _occupy(place: Path, one: Tree) -> None:
    enqueue(place, "bench.stubborn")
    wait_until(lambda: _busy(one), what="the job to run")


def _busy(one: Tree) -> int:
    status = json.loads(one.get("/statusz?format=json")[1])
    return sum(int(slot.get("busy") or 0) for slot in status["slots"])


def _stop_ms(one: Tree, *, code: int) -> float:
    struck = time.perf_counter()
    one.terminate()
    found = one.wait()
    assert found == code, f"exit code {found}, not {code}"
    return (time.perf_counter() - struck) * 1e3
