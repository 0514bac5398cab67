"""What the README promises of one command on one machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.trees import ROOT, Tree, tenure, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEMO = str(ROOT / "config/demo")


OFTEN = tuple(f"--set=schedules.endpoint-verification.{each}" for each in ("every=1s", "overlap=allow"))


def demo(start: Callable[..., Tree], directory: Path, *settings: str) -> Tree:
    """Start the demo as `make run` does, in a directory of the test's own."""
    (directory / "config").symlink_to(ROOT / "config")
    tree = start("demo", "--config", "config/demo", "--port", "0", "--log-format", "json", *settings)
    tree.wait_for("tree_ready")
    tree.wait_for("schedules_declared", applied=True)
    return tree


def test_the_demo_runs_identity_jobs_and_says_what_happens(start: Callable[..., Tree], short_directory: Path) -> None:
    """Embedded server, jobs on a SQLite file, status, metrics, a clean stop."""
    tree = demo(start, short_directory)
    for job in ("domain_sync", "token_cleanup", "endpoint_verification"):
        asked = tenure(short_directory, "schedule", "trigger", job.replace("_", "-"), "--config", "config/demo")
        assert asked.returncode == 0, asked.stderr
        tree.wait_for("run_succeeded", job=f"identity.{job}", bound_s=90)

    status = tenure(short_directory, "status", "--config", "config/demo", "-o", "json")
    seen = json.loads(status.stdout)
    assert status.returncode == 0
    assert seen["leader"]["holder"] == seen["replicas"][0]["replica"]
    assert {row["schedule"] for row in seen["schedules"]} >= {"domain-sync", "token-cleanup"}
    assert any(run["outcome"] == "ok" for run in seen["recent_runs"])
    table = tenure(short_directory, "status", "--config", "config/demo").stdout
    assert "Leader: " in table
    assert "Next fires" in table

    database = sqlite3.connect(short_directory / ".tenure/identity.db")
    assert database.execute("select count(*) from domains").fetchone()[0] > 0
    database.close()

    code, metrics = tree.get("/metrics")
    assert code == 200
    families = {family.name for family in text_string_to_metric_families(metrics)}
    assert "tenure_runs_finished" in families
    wait_until(lambda: tree.get("/readyz?verbose")[1].rstrip().endswith("readyz check passed"), what="all checks")
    tree.terminate()
    assert tree.wait() == 0
    assert tree.events()[-1]["event"] == "tree_stopped"


def test_killing_the_parent_leaves_nothing(start: Callable[..., Tree], short_directory: Path) -> None:
    """After kill -9 no child, no server, no command that a job started, nor what that started in its group."""
    tree = demo(start, short_directory)
    command = 'command=["sh", "-c", "sleep 300 & sleep 300"]'
    done = tenure(short_directory, "enqueue", "shell.command", command, "--config", "config/demo")
    assert done.returncode == 0, done.stderr

    wait_until(lambda: len(tree.named("sleep 300")) >= 3, what="the command, its shell and its child")
    family = tree.descendants()
    os.kill(tree.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=30)

    assert not alive


@pytest.mark.long
def test_data_survives_the_death_of_the_whole_tree(start: Callable[..., Tree], short_directory: Path) -> None:
    """The embedded server syncs each write: schedules continue from their watermarks, epochs grow."""
    tree = demo(start, short_directory, *OFTEN)
    first = tree.wait_for("leader_acquired")
    tree.wait_for("schedule_fired")
    tree.kill()
    tree.process.wait()

    again = start("again", "--config", "config/demo", "--port", "0", "--log-format", "json", *OFTEN)
    second = again.wait_for("leader_acquired")
    again.wait_for("schedule_fired")

    assert second["epoch"] > first["epoch"]
    fired = [each["run"] for each in [*tree.events("schedule_fired"), *again.events("schedule_fired")]]
    assert len(fired) == len(set(fired))


@pytest.mark.parametrize(
    "is_asked", [True, pytest.param(False, marks=pytest.mark.long)], ids=["asked", "at its minute"]
)
def test_a_crontab_is_imported_and_runs(start: Callable[..., Tree], short_directory: Path, *, is_asked: bool) -> None:
    """Environment, home, input after %, umask, and a time zone reach the command as cron would give them."""
    home = short_directory / "home"
    home.mkdir()
    (short_directory / "crontab").write_text(
        f"HOME={home}\nGREETING=hello\n# says hello each minute\n* * * * * echo $GREETING $(cat) >> said.txt%from cron\n"
    )
    done = tenure(short_directory, "import", "crontab", "crontab", "--output", "imported.yaml")
    assert done.returncode == 0, done.stderr
    assert "says hello each minute" in (short_directory / "imported.yaml").read_text()

    tree = start("cron", "--config", "imported.yaml", "--port", "0", "--log-format", "json")
    if is_asked:
        tree.wait_for("schedules_declared", applied=True)
        (schedule,) = yaml.safe_load((short_directory / "imported.yaml").read_text())["schedules"]
        asked = tenure(short_directory, "schedule", "trigger", schedule, "--config", "imported.yaml")
        assert asked.returncode == 0, asked.stderr
    tree.wait_for("run_succeeded", job="shell.command", bound_s=120)

    assert (home / "said.txt").read_text().startswith("hello from cron")
    assert (home / "said.txt").stat().st_mode & 0o777 == 0o644
