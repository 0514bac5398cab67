"""Gives tests toy trees, and leaves nothing of them behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process.toy_harness import BOUND_S, ToyTree


@pytest.fixture
def make_tree(tmp_path: Path) -> Iterator[Callable[..., ToyTree]]:
    """Give a function that starts toy trees."""
    trees: list[ToyTree] = []

    def make(slots: list[list[Any]], *, environment: dict[str, str] | None = None, **plan: Any) -> ToyTree:
        directory = tmp_path / str(len(trees))
        directory.mkdir()
        tree = ToyTree(directory, environment or {})
        trees.append(tree)
        return tree.start(slots, **plan)

    yield make
    for tree in trees:
        tree.process.kill()
        tree.process.wait(BOUND_S)
        for pid in tree.left():
            os.kill(pid, signal.SIGKILL)
