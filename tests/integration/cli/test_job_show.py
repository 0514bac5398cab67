"""``tenure job show`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit.launcher import tenure

ROOT = Path(__file__).resolve().parents[3]


def test_a_job_is_shown_with_the_schema_of_its_arguments(tmp_path: Path) -> None:
    """Without a running tree: its options, and what other programs need to call it."""
    done = tenure(tmp_path, "job", "show", "shell.command", "--set", "jobs=[jobs.shell]", "-o", "json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["kind"], shown["queue"], shown["delivery"]) == ("sync", "shell", "at_least_once")
    assert shown["arguments"]["required"] == ["command"]
    assert shown["arguments"]["properties"]["check"] == {"type": "boolean"}


def test_a_job_that_is_not_there_says_where_jobs_come_from(tmp_path: Path) -> None:
    """One line, and exit code 1."""
    done = tenure(tmp_path, "job", "show", "shell.comand", "--set", "jobs=[jobs.shell]")
    assert done.returncode == 1
    assert "no job is called 'shell.comand'; list the module that defines it under jobs:" in done.stderr
    assert "Traceback" not in done.stderr
