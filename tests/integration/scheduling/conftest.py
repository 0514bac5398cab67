"""Clusters that end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.scheduling.cluster_operator import ClusterOperator


@pytest.fixture
def desk() -> Iterator[Any]:
    """Make clusters that end with the test."""
    made: list[ClusterOperator] = []

    def make(**options: Any) -> ClusterOperator:
        made.append(ClusterOperator(**options))
        return made[-1]

    yield make
    for each in made:
        each.cluster.close()
