"""While workers drain, whoever keeps their sessions and their Redis, or tells of them, is still replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from signal import Signals

import pytest

from supervisor.core.units import SECOND_NS
from tests.unit.process.fake_kernel import GOOD, START_NS, Manner, make_world

STOP_S = 5.0
DRAIN_S = 4.0


def manner(victim: str, died_after_s: float) -> Callable[[str, int], Manner]:
    """Return a script: a worker that drains for a while, and a victim that dies once."""

    def of(name: str, generation: int) -> Manner:
        if name == "io":
            return replace(GOOD, term_s=DRAIN_S)
        return replace(GOOD, dies_s=died_after_s, status=-9) if (name, generation) == (victim, 1) else GOOD

    return of


@pytest.mark.parametrize("victim", ["agent", "server", "web"])
def test_who_carries_draining_workers_is_replaced_when_it_dies(victim: str) -> None:
    """Without beats another replica would run what is still running here; without the web child nobody answers probes."""
    world = make_world(manner(victim, STOP_S + 1), has_server=True)
    world.at(STOP_S, Signals.SIGTERM)

    assert world.run() == 0
    assert [process.launch.generation for process in world.kernel.of(victim)] == [1, 2]
    assert world.elapsed_s < STOP_S + DRAIN_S + 1


@pytest.mark.parametrize("victim", ["scheduler", "cpu"])
def test_nobody_else_is_started_once_a_stop_was_asked_for(victim: str) -> None:
    """A scheduler or worker that came up now would only be stopped again."""
    world = make_world(manner(victim, STOP_S + 1), has_server=True)
    world.at(STOP_S, Signals.SIGTERM)

    world.run()
    assert all(process.started_ns <= START_NS + int(STOP_S * SECOND_NS) for process in world.kernel.history)


def test_a_carrier_that_waits_for_its_restart_does_not_delay_the_end() -> None:
    """Its backoff may be longer than the drain: when the last worker is gone, nobody waits for it."""
    dies_once = manner("agent", STOP_S + 1)

    def dies_always(name: str, generation: int) -> Manner:
        if name == "agent" and generation > 1:
            return replace(GOOD, dies_s=0.2, status=-9)
        return dies_once(name, generation)

    world = make_world(dies_always, has_server=True)
    world.at(STOP_S, Signals.SIGTERM)

    world.run()
    assert world.elapsed_s < STOP_S + DRAIN_S + 1
