"""A short stretch of chaos in every test run; `make chaos` does it for as long as you like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.trees import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_random_kills_and_pauses_lose_nothing_and_double_nothing(seconds: int) -> None:
    """Three replicas, everything that can die dies at random, and the checker reads what Redis remembers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.chaos", "--seconds", str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "held: seed" in done.stdout + done.stderr
