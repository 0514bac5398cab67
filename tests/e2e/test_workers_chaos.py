"""A short stretch of chaos among workers in every test run; `make chaos-workers` does it for as long as you like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.trees import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("runs", "seconds"), [(500, 5), pytest.param(5000, 30, marks=pytest.mark.long)])
def test_random_kills_lose_no_run_and_complete_none_twice(runs: int, seconds: int) -> None:
    """Two replicas under load; everything dies at random, Redis too. The record is compared with the jobs' own."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.e2e.chaos_workers",
            "--runs",
            str(runs),
            "--seconds",
            str(seconds),
            "--replicas",
            "2",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "held: seed" in done.stdout
