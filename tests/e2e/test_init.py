"""What ``tenure init`` wrote runs its jobs, as its README says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.trees import ROOT, Tree, tenure

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def project(short_directory: Path) -> Path:
    """A project that was just made."""
    assert tenure(short_directory, "init", "demo").returncode == 0
    return short_directory / "demo"


@pytest.fixture
def tree(project: Path) -> Iterator[Tree]:
    """A tree started in it; its package is importable, as after the installation."""
    options = ("--port", "0", "--log-format", "json")
    tree = Tree(project, "tree", *options, environ={"PYTHONPATH": f"{ROOT}:{project / 'jobs'}"})
    yield tree
    tree.close()


@pytest.mark.long
def test_a_new_project_runs_its_jobs(tree: Tree) -> None:
    """The coroutine, the planner, and the children that it plans; then a clean stop."""
    tree.wait_for("schedule_planned", schedule="sync-tenants")
    assert tenure(tree.log_path.parent, "schedule", "trigger", "sync-tenants", environ=tree.environ).returncode == 0
    for job in ("demo.remind", "demo.sync_all", "demo.sync"):
        tree.wait_for("run_succeeded", job=job)
    tree.terminate()

    assert tree.wait() == 0
