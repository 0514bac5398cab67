"""The lease and fire protocol, explored exhaustively for small bounds; ``make model`` goes further."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.invariants import INVARIANTS, somebody_leads
from tests.model.mutations import MUTATIONS
from tests.model.protocol import Bounds, Protocol

STATES_MIN = 100_000  # fewer: a step was lost from the model, and the proof with it


@pytest.mark.timeout(240)
def test_no_history_within_the_bounds_breaks_a_rule() -> None:
    """Two replicas, four ticks (two leases), one fault anywhere: every interleaving, hence every pause."""
    explored = explore(Protocol(Bounds(ticks=4, faults=1)), INVARIANTS, goal=somebody_leads)

    assert not explored.broken, str(explored)
    assert explored.is_whole
    assert explored.states > STATES_MIN


@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_the_exploration_finds(mutation: str) -> None:
    """A protocol with one protection removed has a path that shows it; a model that finds none proves nothing."""
    explored = explore(MUTATIONS[mutation], INVARIANTS, goal=somebody_leads)

    assert explored.broken, f"no path within the bounds shows that {mutation}"
    assert explored.path
