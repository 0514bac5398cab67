"""The tests of a group run in one worker of pytest."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.kit.dealing import Dealing, name_groups


@pytest.mark.xdist_group("alone")
def test_the_scheduler_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """Otherwise each worker has some of its tests, and prepares what one could prepare for all."""
    item = copy.copy(request.node)
    name_groups([item])

    scheduler: Any = object.__new__(Dealing)
    assert scheduler._split_scope(item.nodeid) == "alone"
