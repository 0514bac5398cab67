"""Backfills under lost replies, crashes, cancellation and old terms: nothing doubled, nothing lost, never too fast."""

from __future__ import annotations

import pytest

from supervisor.core.errors import FencedError
from supervisor.roles.scheduler.backfill import HELD_NS
from supervisor.store.schedules.backfills import BackfillCancelCode, BackfillState
from tests.integration.store.schedules.backfill_fixture import OTHER, BackfilledSchedule, nominal
from tests.kit.builders import StoreCalls
from tests.kit.stepper import term_of


@pytest.fixture
def desk(world: StoreCalls) -> BackfilledSchedule:
    return BackfilledSchedule(world)


@pytest.mark.share(3)
@pytest.mark.parametrize("lost", range(1, 10))
def test_a_lost_reply_neither_doubles_nor_loses_a_run(desk: BackfilledSchedule, lost: int) -> None:
    """The cursor says whether the step was done."""
    desk.add(250)
    desk.stepper.lose_reply = lambda number: number == lost
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(1, 251)]
    assert done.enqueued == 250


@pytest.mark.share(3)
@pytest.mark.parametrize("stops_after", range(1, 8))
def test_after_a_crash_the_next_leader_goes_on_at_the_cursor(desk: BackfilledSchedule, stops_after: int) -> None:
    """Whatever the old one had asked, and also when it goes on asking."""
    first = desk.world.lead("a")
    desk.add(250)
    old = desk.role()
    for _ in range(stops_after):
        desk.stepper.once(old, term_of(first))
        desk.stepper.now_ns += HELD_NS
    second = desk.world.lead("b", OTHER, mode="expired", observed_epoch=first.epoch)
    done = desk.finish(second)

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(1, 251)]
    assert done.enqueued == 250


def test_a_step_of_an_old_term_is_refused(desk: BackfilledSchedule) -> None:
    """It wakes up between its look and its step."""
    first = desk.world.lead("a")
    desk.add(10)
    old = desk.role()
    assert desk.stepper.once(old, term_of(first))
    assert desk.stepper.once(old, term_of(first))
    desk.world.lead("b", OTHER, mode="expired", observed_epoch=first.epoch)
    with pytest.raises(FencedError, match="backfill_step"):
        desk.stepper.once(old, term_of(first))
    assert desk.ready() == []


def test_a_cancelled_backfill_stops_where_it_is(desk: BackfilledSchedule) -> None:
    """What was enqueued stays; the leader's next step is refused."""
    role, term = desk.role(), term_of(desk.world.lead())
    desk.add(250)
    desk.stepper.until(lambda: len(desk.ready()) == 100, role, term)
    code, cancelled = desk.world.run(desk.calls.cancel("b1"))
    assert (code, cancelled.state if cancelled else None) == (BackfillCancelCode.CANCELLED, BackfillState.CANCELLED)
    for _ in range(20):
        desk.stepper.once(role, term)
        desk.stepper.now_ns += HELD_NS

    assert len(desk.ready()) == 100
    assert desk.world.run(desk.calls.cancel("nobody"))[0] is BackfillCancelCode.UNKNOWN
    desk.add(1, name="b2", first=900)
    desk.finish(desk.world.lead("b", OTHER, mode="expired", observed_epoch=term.epoch), "b2")
    assert desk.world.run(desk.calls.cancel("b2"))[0] is BackfillCancelCode.OVER


def test_it_keeps_to_its_rate(desk: BackfilledSchedule) -> None:
    """So that what becomes due meanwhile is not behind a flood."""
    role, term = desk.role(rate_per_s=200), term_of(desk.world.lead())
    desk.add(100)
    desk.stepper.until(lambda: desk.find().state is BackfillState.DONE, role, term, pass_ms=10)

    assert 400 <= desk.stepper.now_ns / 1e6 <= 600
    assert desk.stepper.asked.count("backfill_step") == 5
