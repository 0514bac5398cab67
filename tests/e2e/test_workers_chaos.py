"""A short stretch of chaos among workers in every test run; `make chaos-workers` does it for as long as you like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e import chaos_workers
from tests.e2e.trees import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_random_kills_lose_no_run_and_complete_none_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two replicas under load; everything dies at random, Redis too. The record is compared with the jobs' own."""
    monkeypatch.setattr(sys, "argv", ["chaos_workers", "--runs", "250", "--seconds", "3", "--replicas", "2"])

    assert chaos_workers.main() == 0

    assert "held: seed" in "".join(capsys.readouterr())


@pytest.mark.long
def test_half_a_minute_of_random_kills_loses_no_run_and_completes_none_twice() -> None:
    """As `make chaos-workers` does it, in processes of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.chaos_workers", "--runs", "5000", "--seconds", "30", "--replicas", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "held: seed" in done.stdout
