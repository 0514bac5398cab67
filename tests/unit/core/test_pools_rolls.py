"""The replacement of a whole pool waits for every process that may be the first of the new kind."""

from __future__ import annotations

import pytest

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool import PoolReplacement
from supervisor.core.supervision.states import SlotState
from tests.unit.core.pool_world import UP, SimulatedPool


@pytest.mark.parametrize("dead", [SlotState.BACKOFF, SlotState.FATAL])
@pytest.mark.parametrize("comes_up", [False, True])
def test_a_roll_waits_for_one_that_was_dead_when_it_began(dead: SlotState, *, comes_up: bool) -> None:
    """What takes its place has the configuration that is on trial, and may be all that ever tries it."""
    world = SimulatedPool.of(1)
    world.set(0, dead)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    assert world.pool.rolling is PoolReplacement.GOING, "how the former one ended says nothing"
    world.fork(0)
    world.settle()
    assert world.pool.rolling is PoolReplacement.GOING
    world.set(0, UP if comes_up else SlotState.BACKOFF)
    world.settle()
    assert world.pool.rolling is (PoolReplacement.DONE if comes_up else PoolReplacement.ABORTED)


@pytest.mark.parametrize("comes_up", [False, True])
def test_a_roll_waits_for_one_that_died_before_its_turn_came(*, comes_up: bool) -> None:
    """It is replaced by its own death, and not by a successor."""
    world = SimulatedPool.of(2)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.die(1)
    world.run_once()
    world.set(1, SlotState.STARTING)
    world.set(2, UP)
    world.settle()
    assert (world.pool.pairs, world.pool.rolling) == ((), PoolReplacement.GOING)
    world.set(1, UP if comes_up else SlotState.BACKOFF)
    world.settle()
    assert world.pool.rolling is (PoolReplacement.DONE if comes_up else PoolReplacement.ABORTED)
