"""Very many runs that hooks put off."""

from __future__ import annotations

import pytest

from supervisor.core.jobs.hooks import Veto
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt import hooks as module
from supervisor.roles.worker.attempt import run_memory
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.settings.sections.models import Settings
from tests.kit.clock import FakeClock

CLOSED = Veto("market", "gate", "market is closed", 600.0)


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands still."""
    return FakeClock()


@pytest.fixture
def pipeline(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Return the hooks of a worker that remembers ten runs."""
    monkeypatch.setattr(run_memory, "RUNS_MAX", 10)
    monkeypatch.setattr(module, "FURTHER_MAX", 10)
    return Pipeline(Settings(), clock, Kind.SYNC)


def test_of_more_than_are_remembered_each_is_rejected_in_its_turn(pipeline: Pipeline, clock: FakeClock) -> None:
    """While a hook is closed for days all of them were put off for ever, for each made the oldest forgotten."""
    left, ends = [("q", f"r{number}") for number in range(25)], []
    for _ in range(21):
        left = [key for key in left if pipeline.final(CLOSED, key, 3600.0).delay_s is not None]
        ends.append(len(left))
        clock.now_ns += 600 * 10**9

    assert ends == [25] * 6 + [15] * 5 + [5] + [0] * 9


def test_what_ended_elsewhere_leaves_its_place_to_another(pipeline: Pipeline, clock: FakeClock) -> None:
    """A person cancelled them, or another process had them."""
    for number in range(10):
        pipeline.final(CLOSED, ("q", f"gone{number}"), 3600.0)
    clock.now_ns += 7200 * 10**9
    pipeline.final(CLOSED, ("q", "r"), 3600.0)
    clock.now_ns += 3600 * 10**9

    assert pipeline.final(CLOSED, ("q", "r"), 3600.0).delay_s is None


def test_those_that_other_processes_execute_keep_no_other_from_its_end(pipeline: Pipeline, clock: FakeClock) -> None:
    """A busy hook puts off a few runs a second here, each once: they had all the room, and defer_max ended no other."""
    for number in range(10):
        pipeline.final(CLOSED, ("q", f"elsewhere{number}"), 3600.0)
    ends = []
    for round_ in range(13):
        for number in range(3):
            pipeline.final(CLOSED, ("q", f"elsewhere{round_}-{number}"), 3600.0)
        ends.append(pipeline.final(CLOSED, ("q", "r"), 3600.0).delay_s is None)
        clock.now_ns += 300 * 10**9

    assert ends == [False] * 12 + [True]


def test_what_was_executed_waits_anew(pipeline: Pipeline, clock: FakeClock) -> None:
    """Its retry may be put off, too, wherever it was noted."""
    for number in range(15):
        pipeline.final(CLOSED, ("q", f"r{number}"), 3600.0)
    for number in range(15):
        pipeline.settled(("q", f"r{number}"))
    clock.now_ns += 3600 * 10**9

    assert all(pipeline.final(CLOSED, ("q", f"r{number}"), 3600.0).delay_s for number in range(15))
