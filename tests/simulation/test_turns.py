"""Workers against every fault of their conversation with Redis: at every position for few runs, at random for many."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.testing.server import driven_time
from tests.simulation.turns import Plan, TurnWorld
from tests.simulation.turns_lane import DEADLY, Fault

RUNS, MANY, SEEDS = 5, 24, 8
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]


def simulate(plan: Plan, *, runs: int = RUNS, workers: int = 1, concurrency: int = 2) -> TurnWorld:
    """Live through one world and prove what is promised."""
    world = TurnWorld(plan, workers=workers, concurrency=concurrency)
    try:
        with driven_time(lambda: world.time.wall_ms() / 1000):
            world.enqueue(runs)
            world.run()
            world.prove()
    finally:
        world.close()
    return world


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("os.kill", lambda *_: None)
    with capture_logs():
        yield


def test_without_a_fault_each_run_is_executed_once() -> None:
    """The world itself is sound: what the faults are compared with."""
    world = simulate(lambda _position: Fault.NONE)

    assert len(world.starts) == len(world.expected) + 1, "one of them fails at first"
    assert world.lost == set()


def at_positions(which: int) -> list[Any]:
    """Return each fault with every eighth position, the next ones for the next fault; with all for the long tests."""
    dealt = [pytest.param(each, (n + which) % 8, 8, id=each.name.lower()) for n, each in enumerate(FAULTS)]
    return dealt + [pytest.param(each, 0, 1, id=f"{each.name.lower()}, all", marks=pytest.mark.long) for each in FAULTS]


@pytest.mark.share(2)
@pytest.mark.parametrize(("fault", "first", "step"), at_positions(0))
def test_one_fault_at_any_position_loses_and_doubles_nothing(fault: Fault, first: int, step: int) -> None:
    """Session, fetch, acknowledgement, end: whichever call it strikes."""
    calls = simulate(lambda _position: Fault.NONE).position
    for struck in range(first, calls, step):
        world = simulate(lambda position, struck=struck: fault if position == struck else Fault.NONE)
        assert world.lost or fault not in DEADLY


@pytest.mark.share(2)
@pytest.mark.parametrize(("second", "first", "step"), at_positions(1))
def test_a_fault_right_after_a_lost_reply_loses_and_doubles_nothing(second: Fault, first: int, step: int) -> None:
    """The repeated turn is where a protocol that counts on its answer breaks."""
    calls = simulate(lambda _position: Fault.NONE).position
    for struck in range(first, calls, step):
        plan = {struck: Fault.REPLY_LOST, struck + 1: second}
        simulate(lambda position, plan=plan: plan.get(position, Fault.NONE))


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults_of_every_kind_lose_and_double_nothing(seed: int) -> None:
    """Three workers, many runs, and a third of all calls goes wrong for a while."""
    draw = Random(seed)
    rate = draw.choice([0.05, 0.15, 0.35])
    plan = [draw.choice(FAULTS) if draw.random() < rate else Fault.NONE for _ in range(150)]
    world = simulate(
        lambda position: plan[position] if position < len(plan) else Fault.NONE,
        runs=MANY,
        workers=draw.randint(1, 3),
        concurrency=draw.randint(1, 8),
    )
    assert world.position > 0, f"seed {seed}"
