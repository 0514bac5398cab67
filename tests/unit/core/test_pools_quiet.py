"""Pools that a person makes quiet, one row or all, and starts again."""

from __future__ import annotations

import pytest

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool_rows import RowState
from tests.unit.core.pool_world import SimulatedPool


def test_what_is_quiet_has_no_process_and_keeps_its_place() -> None:
    """The pool starts nobody else for it, however often it looks."""
    world = SimulatedPool.of(2)
    world.take(pools.quiet(world.pool, 0))
    world.run()
    assert world.up == [1]
    world.take(pools.resume(world.pool, 0, world.facts))
    world.run()
    assert world.up == [0, 1]


@pytest.mark.parametrize("is_one", [True, False])
def test_what_is_resumed_while_it_still_leaves_is_started_in_a_free_row(*, is_one: bool) -> None:
    """It leaves for as long as its runs take: an hour, or for ever beside one that has no end."""
    world = SimulatedPool.of(2)
    world.take(pools.quiet_all(world.pool))
    world.settle()
    facts = world.facts
    world.take(pools.resume(world.pool, 0, facts) if is_one else pools.resume_all(world.pool, facts))
    world.run_once()
    world.run_once()
    assert world.up == ([2] if is_one else [2, 3])
    assert world.pool.rows(RowState.LEAVING) == ([0] if is_one else [0, 1])
    world.run()
    assert world.up == ([2] if is_one else [2, 3]), "nor does what has left come back"


def test_what_is_resumed_while_it_still_leaves_comes_back_by_itself_without_a_free_row() -> None:
    """A pool never has more processes than rows."""
    world = SimulatedPool.of(2, capacity=3)
    world.take(pools.quiet_all(world.pool))
    world.take(pools.resume_all(world.pool, world.facts))
    world.run_once()
    world.run_once()
    assert (world.up, world.pool.rows(RowState.LEAVING)) == ([2], [0])
    world.run()
    assert world.up == [1, 2]


def test_a_quiet_pool_stays_quiet_while_it_grows() -> None:
    """More processes, asked for while nobody may work, wait with the others."""
    world = SimulatedPool.of(2)
    world.take(pools.quiet_all(world.pool))
    world.take(pools.set_processes(world.pool, 4))
    world.run()
    assert world.up == []
    world.take(pools.resume_all(world.pool, world.facts))
    world.run()
    assert world.up == [0, 1, 2, 3]


def test_making_quiet_ends_a_replacement() -> None:
    """The successor would take a place in which nobody is wanted."""
    world = SimulatedPool.of(1)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.take(pools.quiet_all(world.pool))
    world.run()
    assert world.up == []
    assert world.pool.pairs == ()


def test_making_one_quiet_that_is_being_replaced_ends_its_replacement() -> None:
    """The successor has nobody to follow, and the wish of a person stands."""
    world = SimulatedPool.of(2)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.take(pools.quiet(world.pool, 0))
    world.run()
    assert world.up == [1]
    assert world.pool.places[0] is RowState.QUIET
