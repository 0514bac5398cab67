"""A short stretch of chaos in every test run; `make chaos` does it for as long as you like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e import chaos
from tests.e2e.trees import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_random_kills_and_pauses_lose_nothing_and_double_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three replicas, everything that can die dies at random, and the checker reads what Redis remembers."""
    monkeypatch.setattr(sys, "argv", ["chaos", "--seconds", "3"])

    assert chaos.main() == 0

    assert "held: seed" in "".join(capsys.readouterr())


@pytest.mark.long
def test_a_minute_of_chaos_loses_nothing_and_doubles_nothing() -> None:
    """As `make chaos` does it, in processes of its own."""
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
