"""Schedules whose grid begins when the cluster first saw them, declared again and again."""

from __future__ import annotations

import pytest

from supervisor.core.model import ScheduleDef
from tests.integration.store.schedules.declaration import Declaration
from tests.kit.builders import StoreCalls, schedule


@pytest.fixture
def desk(world: StoreCalls) -> Declaration:
    return Declaration(world)


def begin(desk: Declaration) -> int:
    """Return where the stored grid begins."""
    stored: ScheduleDef = desk.world.stored()["a"].definition
    assert stored.start_at_ms is not None
    return stored.start_at_ms


def test_a_second_replica_and_a_second_start_find_the_phase_of_the_first(desk: Declaration) -> None:
    """The moment is kept in Redis with the definition; an unchanged set writes nothing."""
    term = desk.world.lead()
    first = desk.declare(term, schedule("a", every_ms=60_000, anchor="first_seen"))
    assert first["added"] == ["a"]
    kept = begin(desk)
    again = desk.declare(term, schedule("a", every_ms=60_000, anchor="first_seen"), schedule("b"))
    assert (again["added"], again["changed"]) == (["b"], [])
    assert begin(desk) == kept
    described = schedule("a", every_ms=60_000, anchor="first_seen", description="another")
    assert desk.declare(term, described, schedule("b"))["changed"] == ["a"]
    assert begin(desk) == kept
