"""One command, one image: a replica does everything, only schedules, only works, or only serves HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, end_all, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
from tenure import job


@job("roles.tick")
async def tick() -> None:
    pass
"""
CONFIG = """
cluster: roles
web: {{port: 0}}
log: {{format: json}}
redis: {{url: "{url}"}}
jobs: [roles_jobs]
schedules:
  tick: {{job: roles.tick, every: 500ms, overlap: allow}}
"""
NO_WORKERS = {"TENURE_WORKERS": "{}"}
NO_TERM = {"TENURE_ELECTION__PARTICIPATE": "false"}


@pytest.fixture
def replica(start: Callable[..., Tree], short_directory: Path, server: Server) -> Callable[..., Tree]:
    """Start a replica that is told by its environment what it does."""
    (short_directory / "roles_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=server.url))

    def starter(name: str, environ: dict[str, str]) -> Tree:
        tree = start(name, "--set", f"replica={name}", "--data-dir", f"data-{name}", environ=environ)
        tree.wait_for("tree_ready")
        return tree

    return starter


def children(tree: Tree) -> set[str]:
    """Return the slots that were started, without the numbers of workers."""
    return {str(each["slot"]).partition("-")[0] for each in tree.events("child_started")}


def test_a_replica_does_everything_by_default(replica: Callable[..., Tree]) -> None:
    """One tree fires and executes."""
    tree = replica("all", {})

    assert {"agent", "scheduler", "web", "worker"} <= children(tree)
    tree.wait_for("run_succeeded", job="roles.tick")


def test_roles_apart_start_only_their_children_and_work_together(replica: Callable[..., Tree]) -> None:
    """The scheduler fires what the worker executes; who only serves does neither."""
    scheduler = replica("scheduler", NO_WORKERS)
    worker = replica("worker", NO_TERM)
    api = replica("api", {**NO_WORKERS, **NO_TERM})

    worker.wait_for("run_succeeded", job="roles.tick")
    scheduler.wait_for("leader_acquired")
    assert "worker" not in children(scheduler) | children(api)
    assert not worker.events("leader_acquired") + api.events("leader_acquired")
    assert not scheduler.events("run_succeeded")
    assert api.get("/livez")[0] == 200


@pytest.mark.long
def test_a_scheduler_names_the_zone_data_that_its_tree_began_with(
    short_directory: Path, server: Server, store: Store
) -> None:
    """It has their tables from its parent: named as newer, what they planned was never planned anew."""
    zone_data = short_directory / "zones" / "tzdata.zi"
    zone_data.parent.mkdir()
    zone_data.write_text("# version 2031a\n")
    (short_directory / "roles_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=server.url))
    sets = f"{Keys('roles').prefix}schedule:sets"
    tree = Tree(short_directory, "one", environ={"PYTHONTZPATH": str(zone_data.parent)}, is_fresh=True)
    try:
        tree.wait_for("term_served")
        zone_data.write_text("# version 2031b\n")
        store.raw.hdel(sets, "#zones")
        tree.kill("scheduler")
        noted = wait_until(lambda: store.raw.hget(sets, "#zones"), "the next term to note its zone data")
        assert noted.endswith(b" 2031a")
    finally:
        end_all([tree])
