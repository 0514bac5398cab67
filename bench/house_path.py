"""Modules that a run crosses, from its due schedule to its history, traced in a real tree with a profile function."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.e2e.trees import Tree, end_all
from tests.kit.waiting import wait_until

RUNS = 3
ROLES = ("supervisor.roles.scheduler.", "supervisor.roles.worker.")
LEFT_OUT = ("supervisor.telemetry.", "supervisor.clock")
JOBS = """
import os
import sys
from pathlib import Path

from tenure import job

HERE = Path(__file__).parent
seen, calls, state = set(), 0, ""


def note(frame, event, _argument):
    global calls, state
    if event != "call" or state == "over":
        return
    seen.add(frame.f_globals.get("__name__", ""))
    calls += 1
    if calls % 100 == 0:
        now = "over" if os.path.exists(HERE / "over") else "on" if os.path.exists(HERE / "on") else ""
        if now == "over":
            (HERE / "new").mkdir(exist_ok=True)
            (HERE / "new" / str(os.getpid())).write_text(" ".join(sorted(seen)))
            os.rename(HERE / "new" / str(os.getpid()), HERE / f"seen-{os.getpid()}")
        if now != state:
            seen.clear()
        state = now


os.register_at_fork(after_in_child=lambda: sys.setprofile(note))


@job("path.run", queue="default")
def run() -> None:
    pass
"""
CONFIG = """
version: 1
cluster: path
redis: {url: embedded}
data_dir: data
web: {port: 0}
log: {format: json}
workers: {cpu: {kind: sync, processes: 1, queues: [default]}}
jobs: [path_jobs]
schedules: {tick: {job: path.run, every: 2s}}
"""


def modules_of_a_run() -> set[str]:
    """Return the modules that scheduler and worker execute meanwhile: standing duties too, logs and metrics not."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-path-"))
    (directory / "path_jobs.py").write_text(JOBS)
    (directory / "tenure.yaml").write_text(CONFIG)
    tree = Tree(directory, "path", "--config", "tenure.yaml")
    try:
        wait_until(lambda: len(tree.events("run_succeeded")) >= 5)
        (directory / "on").touch()
        known = len(tree.events("run_succeeded"))
        wait_until(lambda: len(tree.events("run_succeeded")) >= known + RUNS)
        (directory / "over").touch()
        roles: dict[str, set[str]] = {}

        def are_told() -> bool:
            for path in directory.glob("seen-*"):
                names = {name for name in path.read_text().split() if name.startswith("supervisor.")}
                roles.update((role, names) for role in ROLES if any(name.startswith(role) for name in names))
            return len(roles) == len(ROLES)

        wait_until(are_told)
    finally:
        end_all([tree])
        shutil.rmtree(directory, ignore_errors=True)
    return {name for names in roles.values() for name in names if not name.startswith(LEFT_OUT)}
