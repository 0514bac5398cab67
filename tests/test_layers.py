"""Imports point downwards, as the contracts in pyproject.toml have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_no_inner_layer_imports_an_outer_one() -> None:
    """The core knows nothing of its surroundings, and only the store speaks to Redis.

    In a process of its own: the linter's logging configuration disables every logger that exists.
    """
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
