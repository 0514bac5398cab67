"""Schedules as an operator changes them beside a running tree: apply, watch it fire, pause, trigger, backfill, delete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.trees import Tree, tenure, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CONFIG = """\
version: 1
jobs: [jobs.shell]
cluster: e2e
redis: {url: "REDIS"}
web: {port: 0}
log: {format: json}
workers: {cpu: {kind: sync, processes: 1, queues: [default, shell]}}
schedules:
  fixed: {job: shell.command, every: 7d, args: {command: ["true"]}}
"""
DYNAMIC = 'tick: {job: shell.command, every: 1s, overlap: allow, args: {command: ["echo", "at {{ nominal_ms }}"]}}\n'


@pytest.mark.long
@pytest.mark.parametrize("due_times", [20, 60])
def test_an_control_schedules_while_the_tree_runs(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store, due_times: int
) -> None:
    """No reload, no restart: each change is seen in what runs."""
    (short_directory / "tenure.yaml").write_text(CONFIG.replace("REDIS", redis_url))
    (short_directory / "s.yaml").write_text(DYNAMIC)
    tree = start("one")
    tree.wait_for("schedules_declared", applied=True)

    def schedule(*arguments: str, code: int = 0) -> str:
        done = tenure(short_directory, "schedule", *arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout

    def finished(run: str) -> None:
        """Ask Redis for the run, not for its line: of what ends within one second only fifty have one of their own."""

        def completed() -> bool:
            view = store.run(Queues(Keys("e2e")).show(run))
            return view is not None and [end.outcome for end in view.history] == ["ok"]

        wait_until(completed, f"{run} to be completed")
        shown = json.loads(tenure(short_directory, "runs", "show", run, "-o", "json").stdout)
        assert [end["outcome"] for end in shown["history"]] == ["ok"]

    assert "1 created" in schedule("apply", "-f", "s.yaml")
    first = tree.wait_for("schedule_fired", schedule="tick")
    finished(first["run"])

    schedule("pause", "tick", "--reason", "the test says so")
    paused = json.loads(schedule("list", "--paused", "-o", "json"))
    assert [row["paused"]["reason"] for row in paused] == ["the test says so"]
    by_hand = schedule("trigger", "tick", "--key", "k").strip()
    finished(by_hand)
    schedule("resume", "tick")
    shown = json.loads(schedule("show", "tick", "-o", "json"))
    before = shown["counters"]["fired"]
    told = len(tree.events("schedule_fired"))
    wait_until(lambda: len(tree.events("schedule_fired")) > told, "more fires")
    wait_until(lambda: json.loads(schedule("show", "tick", "-o", "json"))["counters"]["fired"] > before, "their count")

    window = ("--from", "-2h", "--to", f"{due_times - 7200}s")
    planned = json.loads(schedule("backfill", "tick", *window, "--dry-run", "-o", "json"))
    assert due_times - 5 <= len(planned) <= due_times + 5
    done = schedule("backfill", "tick", "--from", planned[0]["nominal"], "--to", planned[-1]["nominal"], "--yes")
    assert done == f"done: {len(planned)} enqueued, 0 left out\n"
    finished(planned[-1]["run"])

    schedule("delete", "tick", "--yes")
    assert [row["schedule"] for row in json.loads(schedule("list", "-o", "json"))] == ["fixed"]
    assert "fixed" in schedule("delete", "fixed", "--yes", code=1)
    tree.terminate()
    assert tree.wait() == 0
