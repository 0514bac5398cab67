"""Imports point downwards, as the contracts in pyproject.toml have it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent


def test_no_inner_layer_imports_an_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core knows nothing of what stands around it, and only the store speaks to Redis."""
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=os.fspath(ROOT / "pyproject.toml"), no_cache=True) == 0
