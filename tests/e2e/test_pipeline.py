"""A tree whose profiles have hooks: what a user sees of a refusal, and how a reload changes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.trees import Tree, tenure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
from tenure import job

@job(profile="guarded")
async def collect(number: int) -> int:
    return number

@job()
def free() -> None: ...
"""
HOOKS = """
class Budget:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def filter(self, context):
        number = context.arguments["number"]
        return f"{number} is over {self.limit}" if number > self.limit else None
"""
CONFIG: dict[str, Any] = {
    "workers": {"io": {"kind": "async"}, "cpu": {"kind": "sync"}},
    "jobs": ["own"],
    "web": {"port": 0},
    "profiles": {
        "guarded": {"timeout": "1m", "hooks": {"enabled": ["ownhooks:Budget"], "config": {"ownhooks:Budget": {"limit": 3}}}},
        "shut": {"hooks": {"enabled": ["closed"], "config": {"closed": {"reason": "migration"}}}},
    },
    "schedules": {
        "over": {"job": "own.collect", "every": "1s", "args": {"number": 9}, "overlap": "allow"},
        "under": {"job": "own.collect", "every": "1s", "args": {"number": 1}, "overlap": "allow"},
        "shut": {"job": "own.free", "every": "1s", "profile": "shut", "overlap": "allow"},
    },
}  # fmt: skip


@pytest.mark.long
def test_a_user_sees_which_hook_refused_what_and_a_reload_lets_it_through(
    short_directory: Path, start: Callable[..., Tree]
) -> None:
    """Rejected runs in the history, refused due times with the schedule, the profile in ``explain`` and ``/configz``."""
    (short_directory / "own.py").write_text(JOBS)
    (short_directory / "ownhooks.py").write_text(HOOKS)
    config = short_directory / "tenure.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    tree = start("tree", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")

    def outcomes(schedule: str) -> set[str]:
        return {run["outcome"] for run in _runs(short_directory) if run["run"].startswith(f"{schedule}@")}

    wait_until(lambda: outcomes("over") == {"rejected"} and outcomes("under") == {"ok"}, what="runs of both schedules")
    (note,) = {run["note"] for run in _runs(short_directory) if run["outcome"] == "rejected"}
    assert note == "filter ownhooks:Budget: 9 is over 3"
    refused = tree.wait_for("fire_rejected", schedule="shut")
    assert (refused["hook"], refused["point"], refused["reason"]) == ("closed", "gate", "migration")
    assert "missed" in tenure(short_directory, "schedule", "show", "shut", "--config", "tenure.yaml").stdout
    explained = tenure(short_directory, "schedule", "explain", "over", "--config", "tenure.yaml").stdout
    assert "Goes by profile guarded." in explained
    assert "A worker asks ownhooks:Budget at filter." in explained
    status, shown = tree.get("/configz")
    assert status == 200
    assert json.loads(shown)["profiles"]["guarded"]["timeout"] == "1m"

    changed = json.loads(json.dumps(CONFIG))
    changed["profiles"]["guarded"]["hooks"]["config"]["ownhooks:Budget"]["limit"] = 10
    changed["profiles"]["shut"]["hooks"]["enabled"] = []
    changed["profiles"]["shut"]["hooks"]["config"] = {}
    config.write_text(yaml.safe_dump(changed))
    assert tenure(short_directory, "reload").returncode == 0
    wait_until(lambda: "ok" in outcomes("over"), what="a run that fits the new budget")
    wait_until(lambda: outcomes("shut") == {"ok"}, what="a run of the profile that was opened")


def _runs(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        tenure(directory, "runs", "list", "-o", "json", "--config", "tenure.yaml").stdout
    )
    return found
