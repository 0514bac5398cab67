"""A tree of runs whose workers are killed at random moments: every number is exact in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from tests.e2e.chaos_fan_out import FanOut

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_tree_of_runs_with_workers_killed_at_random_has_exact_counters(
    short_directory: Path, redis_url: str, store: Store, seed: int
) -> None:
    """Counts, errors and outcomes of six hundred runs; `make chaos-fan-out` does it with ten thousand."""
    fan = FanOut(short_directory, store, redis_url, leaves=600, kills=8, seed=seed)
    try:
        fan.run()
        fan.judge()
    finally:
        fan.tree.close()
    assert fan.killed.total() >= 3
