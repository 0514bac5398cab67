"""A tree that follows its configuration, and commands to it, as a person gives them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.trees import Tree, tenure, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
import os, time
import structlog
from tenure import job

@job()
async def tick():
    pass

@job()
async def told():
    structlog.get_logger().info("told", to="somebody", sum=5)

@job()
def slow():
    time.sleep(0.5)
"""
FRESH = """
import os
from tenure import job

if os.path.exists("broken") and open("/proc/self/comm").read().startswith("worker"):
    os._exit(3)

@job()
def fresh():
    pass
"""
CONFIG: dict[str, Any] = {
    "workers": {
        "io": {"kind": "async", "processes": 1, "queues": ["default"]},
        "cpu": {"kind": "sync", "processes": 1, "queues": ["default"]},
    },
    "jobs": ["own"],
    "schedules": {"tick": {"job": "own.tick", "every": "1h"}},
    "web": {"port": 0},
    "log": {"file": "tree.log"},
}


class ReloadedTree:
    """A tree on a directory of its own, and its configuration."""

    def __init__(self, directory: Path, start: Callable[..., Tree]) -> None:
        self.directory = directory
        (directory / "own.py").write_text(JOBS)
        (directory / "newer.py").write_text(FRESH)
        self.config: dict[str, Any] = json.loads(json.dumps(CONFIG))
        self.write()
        self.tree = start("tree", "--config", "tenure.yaml")
        self.tree.log_path = directory / "tree.log"
        wait_until(self.tree.log_path.exists, what="the log file")
        self.tree.wait_for("tree_ready")

    def write(self, extra: str = "") -> None:
        """Write the configuration."""
        (self.directory / "tenure.yaml").write_text(yaml.safe_dump(self.config) + extra)

    def tenure(self, *arguments: str) -> tuple[int, str]:
        """Run the command on this directory; return its exit code and all that it said."""
        done = tenure(self.directory, *arguments)
        return done.returncode, done.stdout + done.stderr

    def workers(self) -> dict[str, int | None]:
        """Return the pid of each worker, as `tenure worker list` shows it."""
        rows = json.loads(tenure(self.directory, "worker", "list", "-o", "json").stdout)
        return {row["slot"]: row["pid"] for row in rows if row["state"] in {"running", "quiet"}}

    def ended(self, run: str) -> list[dict[str, Any]]:
        """Return the ends of one run, as the log tells them."""
        return [each for each in self.tree.events("run_succeeded") if each["run"] == run]


@pytest.fixture
def world(short_directory: Path, start: Callable[..., Tree]) -> ReloadedTree:
    """Return a tree that is ready."""
    return ReloadedTree(short_directory, start)


def test_a_running_tree_follows_its_file_or_refuses_it(world: ReloadedTree) -> None:
    """A bad one changes nothing; a good one loses no run; new workers that do not come up leave the old ones."""
    before = world.workers()
    leader = world.tree.wait_for("leader_acquired")["epoch"]
    world.config["web"]["port"] = 1
    world.write("bogus: 1\n")
    code, said = world.tenure("reload", "--pid", str(world.tree.pid))
    assert code == 1
    assert "tenure.yaml:" in said
    assert "bogus: is not a setting" in said

    world.config["web"]["port"] = 0
    world.config["jobs"] = ["own", "newer"]
    world.write()
    (world.directory / "broken").touch()
    code, said = world.tenure("reload")
    assert code == 1
    assert "did not come up" in said
    assert world.workers() == before

    (world.directory / "broken").unlink()
    world.config["schedules"]["second"] = {"job": "newer.fresh", "every": "1h"}
    runs = [world.tenure("enqueue", "own.slow")[1].strip() for _ in range(2)]
    code, said = world.tenure("reload")
    assert (code, "applied: jobs" in said) == (0, True), said
    world.write()
    code, said = world.tenure("reload", "-o", "json")
    assert json.loads(said)["changed"] == ["schedules"]
    world.tree.wait_for("schedules_declared", added=["second"])
    assert world.tenure("reload")[1].endswith(": unchanged\n")
    assert set(world.workers().values()).isdisjoint(before.values())
    for run in runs:
        wait_until(lambda run=run: world.ended(run), what=run)
    runs.append(world.tenure("enqueue", "newer.fresh")[1].strip())
    wait_until(lambda: world.ended(runs[-1]), what="a run of the new job")

    assert [len(world.ended(run)) for run in runs] == [1, 1, 1]
    assert [each["epoch"] for each in world.tree.events("leader_acquired")] == [leader]
    code, said = world.tenure("stop", "--yes")
    assert (code, "exit code 0" in said) == (0, True), said
    assert world.tree.wait() == 0
    code, said = world.tenure("reload")
    assert (code, "no tree runs on data_dir" in said) == (1, True)


@pytest.mark.long
def test_sources_follow_a_reload(world: ReloadedTree) -> None:
    """/configz?sources names the line of each setting in effect, also of one that a reload brought."""

    def level() -> str:
        return str(json.loads(world.tree.get("/configz?sources")[1])["sources"]["log.level"])

    assert level() == "default"
    world.config["log"]["level"] = "debug"
    world.write()
    line = (world.directory / "tenure.yaml").read_text().splitlines().index("  level: debug") + 1
    code, said = world.tenure("reload")
    assert (code, "applied: log.level" in said) == (0, True), said
    wait_until(lambda: len(world.tree.events("web_ready")) == 2, what="the web child that the reload started")
    assert level() == f"tenure.yaml:{line}"


@pytest.mark.long
def test_the_rules_of_the_log_follow_a_reload(world: ReloadedTree) -> None:
    """Workers mask what a job logs under the names that are set, and no process writes what is excluded."""

    def told() -> set[str]:
        world.tenure("enqueue", "own.told")
        return {str(line["to"]) for line in world.tree.events("told")}

    wait_until(told, what="the first line")
    world.config["log"] |= {"mask": {"own.told": ["to"]}, "exclude": ["request_accepted"]}
    world.write()
    code, said = world.tenure("reload")
    assert (code, "applied: log.mask, log.exclude" in said) == (0, True), said
    assert wait_until(lambda: told() if len(told()) > 1 else None, what="a masked line") == {"somebody", "***"}

    accepted = len(world.tree.events("request_accepted"))
    assert world.tenure("worker", "stacks", "worker-io-0")[0] == 0
    world.tree.wait_for("command_taken", word="stacks")
    assert len(world.tree.events("request_accepted")) == accepted


@pytest.mark.long
def test_workers_are_listed_quieted_and_replaced_by_name(world: ReloadedTree) -> None:
    """Each command says what became of it; the log file is opened anew after a rotation, and has the stacks."""
    assert set(world.workers()) == {"worker-io-0", "worker-cpu-0"}
    code, said = world.tenure("worker", "quiet", "worker-io-9")
    assert (code, "there is no worker worker-io-9" in said) == (1, True)

    assert world.tenure("worker", "quiet", "worker-io-0")[0] == 0
    world.tree.wait_for("child_exited", slot="worker-io-0", cause="retired")
    assert world.workers()["worker-io-0"] is None
    assert world.tenure("worker", "resume", "worker-io-0")[0] == 0
    world.tree.wait_for("child_ready", slot="worker-io-0", child_pid=world.tree.slot_pid("worker-io-0"))
    assert world.tenure("worker", "recycle", "worker-cpu-0")[0] == 0
    world.tree.wait_for("replacement_done", old="worker-cpu-0", new="worker-cpu-1")

    world.tree.log_path.rename(world.directory / "rotated.log")
    world.tree.process.send_signal(signal.SIGUSR1)
    wait_until(world.tree.log_path.exists, what="a new log file")
    assert world.tenure("worker", "stacks", "worker-cpu-1")[0] == 0
    wait_until(lambda: "most recent call first" in world.tree.log_path.read_text(), what="the stacks")
