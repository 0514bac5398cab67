"""The lease and fire protocol, explored exhaustively for small bounds; ``make model`` goes further."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.invariants import INVARIANTS, somebody_leads
from tests.model.mutations import MUTATIONS
from tests.model.protocol import Bounds, Protocol

BOUNDS = [
    pytest.param(Bounds(ticks=2, faults=1), 11_000, id="2 ticks"),
    pytest.param(Bounds(ticks=4, faults=1), 100_000, id="4 ticks", marks=pytest.mark.long),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("bounds", "states_min"), BOUNDS)
def test_no_history_within_the_bounds_breaks_a_rule(bounds: Bounds, states_min: int) -> None:
    """Two replicas, some ticks (two are a lease), one fault anywhere: every interleaving, hence every pause."""
    explored = explore(Protocol(bounds), INVARIANTS, goal=somebody_leads)

    assert not explored.broken, str(explored)
    assert explored.is_whole
    assert explored.states > states_min, "a step was lost from the model, and the proof with it"


@pytest.mark.share(3)
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_the_exploration_finds(mutation: str) -> None:
    """A protocol with one protection removed has a path that shows it; a model that finds none proves nothing."""
    explored = explore(MUTATIONS[mutation], INVARIANTS, goal=somebody_leads)

    assert explored.broken, f"no path within the bounds shows that {mutation}"
    assert explored.path
