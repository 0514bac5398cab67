"""Plugins under whole trees: one that breaks and one that works, an upgrade under way, and a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.e2e.trees import Tree, tenure, wait_until
from tests.kit.canary import CANARY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DATA = Path(__file__).resolve().parents[1] / "data/plugins"
SLOW = """#!/bin/sh
# Says in the file `ran` which version did which task; a task waits until the file that it names is there.
while IFS= read -r line; do
  id=${line#*'{"id":'}; id=${id%%,*}
  method=${line#*'"method":"'}; method=${method%%'"'*}
  case $method in
    hello) printf '{"id":%s,"result":{"protocol":1,"version":"VERSION"}}\\n' "$id" ;;
    run)
      file=${line#*'"file":"'}; file=${file%%'"'*}
      echo "VERSION begins $file" >> ran
      until [ -e "$file" ]; do sleep 0.05; done
      echo "VERSION ends $file" >> ran
      printf '{"id":%s,"result":{"state":"SUCCESS"}}\\n' "$id" ;;
    *) printf '{"id":%s,"result":null}\\n' "$id" ;;
  esac
done
"""


class TreeWithPlugins:
    """A tree on a directory of its own, and its plugins."""

    def __init__(self, directory: Path, start: Callable[..., Tree], config: dict[str, Any]) -> None:
        self.directory = directory
        self.config: dict[str, Any] = {
            "workers": {"cpu": {"kind": "sync", "processes": 2, "queues": ["default"]}},
            "web": {"port": 0},
            **config,
        }
        self.write()
        self.tree = start("tree", "--config", "tenure.yaml")
        self.tree.wait_for("tree_ready")

    def write(self) -> None:
        """Write the configuration."""
        (self.directory / "tenure.yaml").write_text(yaml.safe_dump(self.config))

    def ask(self, *arguments: str) -> Any:
        """Run a command that must work; return what it said, from JSON."""
        done = tenure(self.directory, *arguments, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def plugin(self, name: str) -> dict[str, Any]:
        """Return a plugin as the list shows it."""
        (found,) = (row for row in self.ask("plugin", "list") if row["plugin"] == name)
        return dict(found)

    def ran(self) -> list[str]:
        """Return what the slow plugin noted."""
        file = self.directory / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def enqueue(self, run_id: str, plugin: str, **task: Any) -> None:
        """Enqueue a run of a plugin."""
        task_text = json.dumps(task)
        done = tenure(self.directory, "enqueue", "plugin.run", f"plugin={plugin}", f"task={task_text}", "--id", run_id)
        assert done.returncode == 0, done.stdout + done.stderr

    def ended(self) -> dict[str, str]:
        """Return how runs ended, by their ids."""
        return {row["run"]: row["outcome"] for row in self.ask("runs", "list")}


@pytest.mark.long
def test_a_broken_plugin_stands_still_with_its_reason_and_goes_on_when_it_is_repaired(
    short_directory: Path, start: Callable[..., Tree]
) -> None:
    """Its neighbour never notices; `tenure plugin verify` ends the suspension."""
    (short_directory / "broken.sh").write_text("echo no licence >&2; exit 4\n")
    shutil.copy(DATA / "words.sh", short_directory / "good.sh")
    plugins = {
        name: {"command": ["sh", f"{name}.sh"], "secrets": {"token": CANARY}, "retry_after": "1h"}
        for name in ("broken", "good")
    }
    # A second attempt of the run that found it broken might find it repaired, and release the schedule itself.
    plan: dict[str, Any] = {"job": "plugin.plan", "every": "1s", "retries": 0}
    schedules = {name: plan | {"args": {"plugin": name}} for name in plugins}
    world = TreeWithPlugins(short_directory, start, {"plugins": plugins, "schedules": schedules})
    wait_until(lambda: world.plugin("broken")["state"] == "ERROR", what="the broken plugin to be found out")

    shown = world.plugin("broken")
    assert (shown["suspended"], shown["reason"]) == (
        1,
        "plugin broken in hello: exited with 4; its last words: no licence",
    )
    paused = world.ask("schedule", "show", "broken")
    assert "plugin broken is in ERROR: plugin broken in hello: exited with 4" in json.dumps(paused)
    assert world.plugin("good")["state"] == "ACTIVE"
    before = set(world.ended())
    wait_until(
        lambda: any(run.startswith("good@") for run in set(world.ended()) - before), what="the good one to go on"
    )

    shutil.copy(DATA / "words.sh", short_directory / "broken.sh")
    assert world.ask("plugin", "verify", "broken")[0]["released"] == 1
    wait_until(
        lambda: any(how == "ok" and run.startswith("broken@") for run, how in world.ended().items()),
        what="the repaired plugin to run",
    )
    assert world.plugin("broken")["state"] == "ACTIVE"


@pytest.mark.long
def test_a_plugin_is_upgraded_by_a_reload_and_no_run_is_lost(short_directory: Path, start: Callable[..., Tree]) -> None:
    """What the old version has begun it ends; what comes later is the new one's."""
    for version in ("v1", "v2"):
        (short_directory / f"{version}.sh").write_text(SLOW.replace("VERSION", version))
    world = TreeWithPlugins(short_directory, start, {"plugins": {"slow": {"command": ["sh", "v1.sh"]}}})
    world.enqueue("run-1", "slow", file="first")
    wait_until(lambda: "v1 begins first" in world.ran(), what="the first run to begin")

    world.config["plugins"]["slow"]["command"] = ["sh", "v2.sh"]
    world.write()
    done = tenure(short_directory, "reload")
    assert (done.returncode, "applied: plugins" in done.stdout) == (0, True), done.stdout + done.stderr
    world.enqueue("run-2", "slow", file="second")
    wait_until(lambda: "v2 begins second" in world.ran(), what="the second run to begin beside the first")
    assert "v1 ends first" not in world.ran()
    for name in ("first", "second"):
        (short_directory / name).touch()
    wait_until(lambda: world.ended() == {"run-1": "ok", "run-2": "ok"}, what="both runs to end")

    assert sorted(world.ran()) == ["v1 begins first", "v1 ends first", "v2 begins second", "v2 ends second"]


def test_no_process_of_a_plugin_outlives_a_tree_that_is_killed(
    short_directory: Path, start: Callable[..., Tree]
) -> None:
    """Kill -9 of the parent, in the middle of a run."""
    (short_directory / "v1.sh").write_text(SLOW.replace("VERSION", "v1"))
    world = TreeWithPlugins(short_directory, start, {"plugins": {"slow": {"command": ["sh", "v1.sh"]}}})
    world.enqueue("run-1", "slow", file="never")
    wait_until(lambda: "v1 begins never" in world.ran(), what="the run to begin")
    family = world.tree.descendants()
    assert world.tree.named("v1.sh")
    world.tree.kill()
    _, alive = psutil.wait_procs(family, timeout=30)

    assert alive == []
