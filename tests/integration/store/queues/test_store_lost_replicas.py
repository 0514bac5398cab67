"""A run that was executed in several lost replicas in a row, between its executions."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Kind, Outcome, Release
from supervisor.operations.queues import verify
from supervisor.store.queues.control import QueueControl
from tests.integration.store.queues.test_store_release_script import S, release
from tests.kit.builders import StoreCalls, envelope


@pytest.mark.parametrize("is_told", [True, False])
def test_a_run_that_is_alone_for_lost_replicas_stays_so_when_it_goes_back_unstarted(
    world: StoreCalls, *, is_told: bool
) -> None:
    """Its worker stopped before it began it: the next one would take it beside others, and lose them with its replica."""
    world.open(S)
    world.enqueue(envelope("a"))
    for _ in range(3):
        assert world.fetch(S, want_suspect=True) == ["a"]
        release(world, ("a", Release.VANISHED))
    assert world.fetch(S, want_suspect=True) == ["a"]
    if is_told:
        world.ack(S, "a", Outcome.GIVEBACK)
    else:
        release(world, ("a", Release.UNSTARTED))

    assert world.fetch(S) == [], "not in company"
    (run,) = world.turn(S, want=5, want_suspect=True).runs
    assert (run.envelope.id, run.suspect, run.attempt) == ("a", True, 1)
    assert world.fsck() == []


@pytest.mark.parametrize("way", ["due", "hastened", "mended"])
def test_a_run_that_is_alone_for_lost_replicas_stays_so_however_it_becomes_ready(world: StoreCalls, way: str) -> None:
    """It was put off and its time comes, a person lets it start now, or its place was lost and is mended."""
    world.open(S)
    world.enqueue(envelope("a"))
    for _ in range(3):
        assert world.fetch(S, want_suspect=True) == ["a"]
        release(world, ("a", Release.VANISHED))
    if way == "mended":
        world.raw.delete(world.keys.queue("default").suspect(Kind.ASYNC))
        drive(verify(world.keys, ["default"], is_mending=True), world.run)
    else:
        assert world.fetch(S, want_suspect=True) == ["a"]
        world.ack(S, "a", Outcome.GIVEBACK, retry_delay_ms=5000)
    if way == "hastened":
        world.run(QueueControl(world.keys).hasten([("", "a")]))
    elif way == "due":
        world.make_due("a")

    assert world.fetch(S) == [], "not in company"
    (run,) = world.turn(S, want=5, want_suspect=True).runs
    assert (run.envelope.id, run.suspect, run.attempt) == ("a", True, 1)
    assert world.fsck() == []
