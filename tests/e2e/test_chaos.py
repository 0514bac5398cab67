"""A minute of chaos in every long run of the tests; `make chaos` does it for as long as you like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.trees import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.long
def test_a_minute_of_chaos_loses_nothing_and_doubles_nothing() -> None:
    """Three replicas, everything that can die dies at random, and the checker reads what Redis remembers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.chaos", "--seconds", "60"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "held: seed" in done.stdout + done.stderr
