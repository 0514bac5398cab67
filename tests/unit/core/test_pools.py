"""The rows of a pool: filled, replaced, scaled and made quiet."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool import Fact, News, PoolChange, PoolReplacement
from supervisor.core.supervision.pool_rows import MOVES, ImpossibleMoveError, Move, Order, RowState
from supervisor.core.supervision.states import SlotState
from tests.kit.tables import table
from tests.unit.core.pool_world import EMPTY, UP, SimulatedPool


@table(("place", "move"), list(product(RowState, Move)))
def test_every_pair_of_place_and_move_is_decided(place: RowState, move: Move) -> None:
    """A pair is either in the table or refused: nothing falls through."""
    change = PoolChange(replace(pools.make("io", processes=1, capacity=4), places=(place,) * 4))
    if (place, move) in MOVES:
        change.move(0, move)
        assert change.pool.places[0] is MOVES[place, move][0]
    else:
        with pytest.raises(ImpossibleMoveError, match=move.value):
            change.move(0, move)


@pytest.mark.parametrize("place", list(RowState))
def test_a_row_gets_a_process_only_in_places_that_want_one(place: RowState) -> None:
    """What is started must be a member or a successor; what leaves or is quiet is stopped or was."""
    started = {after for after, order in MOVES.values() if order is Order.START}
    assert started == {RowState.MEMBER, RowState.SUCCESSOR}
    stopped = {after for after, order in MOVES.values() if order is Order.STOP}
    assert stopped == {RowState.LEAVING, RowState.QUIET}


def test_a_new_pool_fills_its_first_rows() -> None:
    """The names of the first start are those that people know: 0, 1, 2."""
    world = SimulatedPool.of(3)
    assert world.up == [0, 1, 2]
    assert (world.pool.capacity, world.pool.most) == (8, 7)


def test_a_replacement_tells_the_old_one_only_once_the_new_one_runs() -> None:
    """In between, both work: nobody waits for a boot."""
    world = SimulatedPool.of(1)
    assert world.take(pools.replace_row(world.pool, 0, 1)) == ""
    world.settle()
    world.run_once()
    assert [fact.state for fact in world.facts[:2]] == [UP, SlotState.STARTING]
    world.run_once()
    assert [fact.state for fact in world.facts[:2]] == [SlotState.STOPPING, UP]
    world.run()
    assert world.up == [1]
    assert world.news == [News.REPLACING, News.REPLACED]


@pytest.mark.parametrize("state", [SlotState.BACKOFF, SlotState.FATAL, SlotState.KILLING, SlotState.STOPPING])
def test_a_successor_that_does_not_come_up_leaves_the_old_one_at_work(state: SlotState) -> None:
    """It died, hung at its boot, or was told to go: the pool is what it was."""
    world = SimulatedPool.of(2)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.run_once()
    world.set(2, state)
    world.settle()
    assert world.up == [0, 1]
    assert world.pool.rolling is PoolReplacement.ABORTED
    assert world.news == [News.REPLACING, News.ABORTED, News.ROLL_ABORTED]
    world.run()
    assert world.up == [0, 1]
    assert {fact.generation for fact in world.facts[:2]} == {1}


def test_an_abort_keeps_the_old_ones_also_where_a_successor_runs() -> None:
    """The configuration it came up with is not wanted any more."""
    world = SimulatedPool.of(8)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.fork(8)
    world.set(8, UP)
    world.take(pools.abort(world.pool))
    assert world.pool.rolling is PoolReplacement.ABORTED
    world.run()
    assert world.up == [*range(8)]
    assert world.news == [News.REPLACING] * 2 + [News.ABORTED, News.ROLL_ABORTED, News.ABORTED]


def test_an_old_one_that_dies_first_is_followed_at_once() -> None:
    """Starting it again, only to replace it, would be two boots for one."""
    world = SimulatedPool.of(1)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.die(0)
    world.settle()
    assert world.pool.places[:2] == (RowState.LEAVING, RowState.MEMBER)
    world.run()
    assert world.up == [1]
    assert world.news == [News.REPLACING, News.OUTLIVED]


@pytest.mark.parametrize("comes_up", [False, True])
def test_a_roll_waits_for_one_that_took_a_place_before_it_ran(*, comes_up: bool) -> None:
    """Its configuration may be on trial, and the death of an old worker proves nothing of it."""
    world = SimulatedPool.of(2)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.fork(2)
    world.die(0)
    world.settle()
    world.settle()
    assert world.pool.places[2] is RowState.MEMBER
    assert world.pool.rolling is PoolReplacement.GOING
    assert len(world.pool.waiting) == 1, "the other one goes on meanwhile"
    world.set(2, UP if comes_up else SlotState.BACKOFF)
    world.settle()
    assert world.pool.rolling is (PoolReplacement.GOING if comes_up else PoolReplacement.ABORTED)
    world.run()
    assert world.pool.rolling is (PoolReplacement.DONE if comes_up else PoolReplacement.ABORTED)


def test_an_old_one_that_died_and_came_back_needs_no_successor() -> None:
    """It is a fresh one itself."""
    world = SimulatedPool.of(1)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.die(0)
    world.fork(0)
    world.settle()
    world.run()
    assert world.up == [0]
    assert world.pool.places.count(RowState.EMPTY) == 3


def test_rows_are_used_again_and_again() -> None:
    """A worker that is replaced every hour must not run out of rows by the evening."""
    world = SimulatedPool.of(1)
    for _ in range(10):
        (row,) = world.up
        world.take(pools.replace_row(world.pool, row, world.facts[row].generation))
        world.run()
    assert world.news.count(News.REPLACED) == 10


def test_both_dying_at_once_leaves_the_old_row_to_come_back() -> None:
    """The successor showed nothing; what worked before is tried first."""
    world = SimulatedPool.of(1)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.die(0)
    world.die(1)
    world.settle()
    world.run()
    assert world.up == [0]


def test_a_roll_replaces_everybody_a_quarter_at_a_time() -> None:
    """Eight processes: two successors at once, and never fewer than eight that run."""
    world = SimulatedPool.of(8)
    world.take(pools.roll(world.pool, world.facts))
    for _ in range(100):
        world.settle()
        assert len(world.pool.pairs) <= 2
        assert len(world.up) >= 8
        if world.pool.rolling is PoolReplacement.DONE:
            break
        world.run_once()
    assert (world.news.count(News.REPLACED), world.news.count(News.ROLLED)) == (8, 1)
    world.run()
    assert len(world.up) == 8
    assert not {0, 1, 2, 3, 4, 5, 6, 7} & set(world.up)


def test_a_roll_while_old_ones_take_hours_goes_on_in_the_spare_rows() -> None:
    """A job of an hour must not keep a changed configuration from the others."""
    world = SimulatedPool.of(2)
    world.take(pools.roll(world.pool, world.facts))
    for _ in range(10):
        world.run_once()
        world.settle()
    assert world.pool.rolling is PoolReplacement.DONE
    assert [fact.state for fact in world.facts[:4]] == [SlotState.STOPPING] * 2 + [UP] * 2


def test_a_roll_includes_a_successor_that_was_forked_before_it() -> None:
    """Else the last one of an earlier replacement would keep the old settings."""
    world = SimulatedPool.of(1)
    world.take(pools.replace_row(world.pool, 0, 1))
    world.settle()
    world.run_once()
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.run()
    assert world.pool.rolling is PoolReplacement.DONE
    assert len(world.up) == 1
    assert world.news.count(News.REPLACED) == 2


def test_asking_twice_replaces_once() -> None:
    """A worker repeats itself, because its request could be lost."""
    world = SimulatedPool.of(1)
    for _ in range(3):
        world.take(pools.replace_row(world.pool, 0, 1))
        assert len(world.pool.waiting) + len(world.pool.pairs) == 1
        world.settle()
    world.run()
    assert world.news.count(News.REPLACED) == 1
    assert pools.replace_row(world.pool, 0, 1).refusal != ""


@pytest.mark.parametrize("processes", [0, 6, 100])
def test_more_than_the_rows_hold_is_refused(processes: int) -> None:
    """One row stays free for a successor; the board is as large as it is."""
    world = SimulatedPool.of(2)
    assert "1 to 5" in world.take(pools.set_processes(world.pool, processes))
    assert world.pool.desired == 2
    assert world.take(pools.set_processes(world.pool, world.pool.most)) == ""
    world.run()
    assert len(world.up) == 5


def test_scaling_down_takes_the_quiet_then_the_idle_then_the_youngest() -> None:
    """What is lost least goes first."""
    world = SimulatedPool.of(4)
    world.facts[:4] = [replace(fact, busy=busy) for fact, busy in zip(world.facts, (0, 1, 0, 1), strict=False)]
    world.take(pools.quiet(world.pool, 1))
    gone = []
    for processes in (3, 2, 1):
        world.take(pools.set_processes(world.pool, processes))
        before = set(world.pool.rows(RowState.MEMBER, RowState.QUIET))
        world.settle()
        gone += before - set(world.pool.rows(RowState.MEMBER, RowState.QUIET))
    assert gone == [1, 2, 0]


def test_scaling_down_takes_one_that_is_not_up_before_one_that_works() -> None:
    """It may not come up at all."""
    world = SimulatedPool.of(3)
    world.set(0, SlotState.BACKOFF)
    world.take(pools.set_processes(world.pool, 2))
    world.run()
    assert world.up == [1, 2]


def test_scaling_down_the_one_that_is_being_replaced_ends_its_replacement() -> None:
    """Neither may be left over."""
    world = SimulatedPool.of(2)
    world.take(pools.replace_row(world.pool, 1, 1))
    world.settle()
    world.take(pools.set_processes(world.pool, 1))
    world.run()
    assert world.up == [0]
    assert world.pool.pairs == ()


def test_what_is_made_quiet_or_dies_while_it_waits_to_be_replaced_is_not_replaced() -> None:
    """It has no process any more, or a fresh one."""
    world = SimulatedPool.of(4)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.take(pools.quiet(world.pool, 2))
    world.die(3)
    world.fork(3)
    world.run()
    assert (world.news.count(News.REPLACED), world.pool.rolling) == (2, PoolReplacement.DONE)
    assert world.pool.places[2] is RowState.QUIET
    assert world.facts[3] == Fact(UP, 2, world.facts[3].started_ns)


@pytest.mark.parametrize("place", [RowState.EMPTY, RowState.LEAVING, RowState.SUCCESSOR])
def test_rows_that_are_nobodys_or_on_the_move_cannot_be_asked_for(place: RowState) -> None:
    """The reason is told; nothing changes."""
    pool = replace(pools.make("io", processes=1, capacity=4), places=(place,) * 4)
    for outcome in (pools.replace_row(pool, 0, 0), pools.quiet(pool, 0), pools.resume(pool, 0, [EMPTY] * 4)):
        assert place.value in outcome.refusal
        assert outcome.pool is pool


def test_after_the_stop_nothing_is_ordered() -> None:
    """The stop of the tree has its own order; a pool that fills itself again would fight it."""
    world = SimulatedPool.of(2)
    world.take(pools.roll(world.pool, world.facts))
    world.settle()
    world.pool = pools.stopped(world.pool)
    for row in range(world.pool.capacity):
        world.set(row, SlotState.STOPPED)
    outcome = pools.settle(world.pool, world.facts)
    assert (outcome.orders, outcome.news) == ([], [])
