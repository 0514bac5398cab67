"""Clusters that end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.scheduling.cluster_operator import Desk


@pytest.fixture
def desk() -> Iterator[Any]:
    """Make clusters that end with the test."""
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(**options))
        return made[-1]

    yield make
    for each in made:
        each.cluster.close()
