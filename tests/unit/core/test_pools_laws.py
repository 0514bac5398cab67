"""The laws of replacing: it takes nothing away, it ends, and nothing is started after the stop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool import PoolReplacement
from supervisor.core.supervision.pool_rows import RowState
from supervisor.core.supervision.states import SlotState
from tests.unit.core.pool_world import UP, SimulatedPool

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["replace", "roll", "abort", "set", "quiet", "resume", "quiet all", "resume all"]
            + ["die", "hang", "fork", "ready", "gone", "fatal"] * 2  # the world is busier than people
        ),
        st.integers(0, 9),
    ),
    max_size=60,
)


def _ask(world: SimulatedPool, what: str, number: int) -> None:
    row, pool = number % world.pool.capacity, world.pool
    match what:
        case "replace":
            world.take(pools.replace_row(pool, row, world.facts[row].generation))
        case "roll":
            world.take(pools.roll(pool, world.facts))
        case "abort":
            world.take(pools.abort(pool))
        case "set":
            world.take(pools.set_processes(pool, number))
        case "quiet":
            world.take(pools.quiet(pool, row))
        case "resume":
            world.take(pools.resume(pool, row, world.facts))
        case "quiet all":
            world.take(pools.quiet_all(pool))
        case "resume all":
            world.take(pools.resume_all(pool, world.facts))


def _happen(world: SimulatedPool, what: str, number: int) -> None:
    """Let something happen to the processes, if it can."""
    row = number % world.pool.capacity
    state = world.facts[row].state
    match what:
        case "die" if state.has_process:
            world.die(row)
        case "hang" if state.has_process:
            world.set(row, SlotState.KILLING)
        case "fork" if row in world.wanted and not state.has_process:
            world.fork(row)
        case "ready" if state is SlotState.STARTING:
            world.set(row, UP)
        case "gone" if state in {SlotState.STOPPING, SlotState.KILLING}:
            world.die(row)
        case "fatal" if state.has_process and row in world.wanted:
            world.set(row, SlotState.FATAL)


@given(processes=st.integers(1, 4), steps=STEPS, stop_at=st.one_of(st.none(), st.integers(0, 60)))
def test_whatever_happens_a_replacement_takes_nothing_away_and_ends(
    processes: int, steps: list[tuple[str, int]], stop_at: int | None
) -> None:
    """Crashes, hangs, refusals and people in any order: the laws of replacing hold after every single step."""
    world = SimulatedPool.of(processes)
    for number, (what, which) in enumerate(steps):
        if number == stop_at:
            world.pool = pools.stopped(world.pool)
            wanted = set(world.wanted)
        if stop_at is None or number < stop_at:
            _ask(world, what, which)
        _happen(world, what, which)
        running = [row for row in world.pool.rows(RowState.MEMBER) if world.facts[row].state is UP]
        asked, pairs = world.pool.desired, len(world.pool.pairs)
        world.settle()
        stays = [row for row in world.pool.rows(RowState.MEMBER) if world.facts[row].state is UP]
        assert len(stays) >= min(len(running), asked), "a replacement took a worker away"
        assert len(world.pool.rows(RowState.MEMBER, RowState.QUIET)) <= max(asked, len(running))
        assert len(world.pool.pairs) <= max(world.pool.surge, pairs)
        assert {pair.new for pair in world.pool.pairs} == set(
            world.pool.rows(RowState.SUCCESSOR)
        ) or world.pool.is_stopped
        if stop_at is not None and number >= stop_at:
            assert world.wanted <= wanted, "something was started after the stop"
    if stop_at is None or stop_at >= len(steps):
        world.run()
        quiet = len(world.pool.rows(RowState.QUIET))
        assert (world.pool.pairs, world.pool.waiting) == ((), ())
        assert len(world.up) + quiet == world.pool.desired
        assert world.pool.rolling is not PoolReplacement.GOING
