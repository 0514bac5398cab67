"""Imports point downwards, as the contracts in pyproject.toml have it."""

from __future__ import annotations

import ast
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


def test_what_tests_import_of_tests_is_there() -> None:
    """A module that moved would else be missed where nobody runs the test that asks for it."""
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests"
        if not (ROOT / f"{node.module.replace('.', '/')}.py").is_file()
        if not all((ROOT / node.module.replace(".", "/") / f"{each.name}.py").is_file() for each in node.names)
    ]
    assert missing == []
