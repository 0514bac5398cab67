"""Declaring under crashes, lost replies, old terms, and people who change schedules meanwhile."""

from __future__ import annotations

import pytest

from supervisor.core.errors import FencedError, StoreUnavailableError
from supervisor.store.schedules.definitions import DefineCode
from tests.integration.store.schedules.declaration import OTHER, Declaration
from tests.kit.builders import StoreCalls, schedule
from tests.kit.stepper import term_of


@pytest.fixture
def desk(world: StoreCalls) -> Declaration:
    return Declaration(world)


def test_a_dynamic_schedule_cannot_slip_in_while_a_set_is_compared(desk: Declaration) -> None:
    """It would take an id of the set after the check; it is told to try again, and may once the set is in."""
    view = desk.world.lead()
    declaring, term = desk.declaring(schedule("a"), schedule("late")), term_of(view)
    desk.upsert(schedule("known"))
    assert desk.stepper.once(declaring, term)
    assert desk.upsert(schedule("late"), schedule("known", description="x")) == [DefineCode.BUSY, DefineCode.CHANGED]
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert desk.upsert(schedule("late"), schedule("other")) == [DefineCode.CLASH, DefineCode.CREATED]


def test_a_leader_that_ended_half_way_keeps_nobody_out(desk: Declaration) -> None:
    """Its mark counts only while its term does."""
    old = desk.world.lead("a")
    desk.stepper.once(desk.declaring(schedule("a")), term_of(old))
    assert desk.upsert(schedule("d")) == [DefineCode.BUSY]
    desk.world.lead("b", OTHER, mode="expired", observed_epoch=old.epoch)

    assert desk.upsert(schedule("d")) == [DefineCode.CREATED]


@pytest.mark.parametrize("following", [["a"], []], ids=["the set of before", "no schedules"])
def test_a_set_that_is_taken_back_half_way_keeps_nobody_out(desk: Declaration, following: list[str]) -> None:
    """The leader goes on under the same term, and would have kept new dynamic schedules away for as long as that lasts."""
    view = desk.world.lead()
    desk.declare(view, schedule("a"))
    desk.stepper.once(desk.declaring(schedule("a"), schedule("b")), term_of(view))
    assert desk.upsert(schedule("d")) == [DefineCode.BUSY]
    desk.stepper.once(desk.declaring(*map(schedule, following)), term_of(view))

    assert desk.upsert(schedule("d")) == [DefineCode.CREATED]


def test_a_leader_that_died_half_way_keeps_nobody_out_after_its_lease(desk: Declaration) -> None:
    """Also when nobody follows it. Should it go on, paused for long, it meets the clash and refuses its set."""
    view = desk.world.lead("a")
    declaring, term = desk.declaring(schedule("a"), schedule("d")), term_of(view)
    for _ in range(2):
        desk.stepper.once(declaring, term)
    desk.world.raw.hset(desk.world.keys.lease, "until", 1000)
    assert desk.upsert(schedule("d")) == [DefineCode.CREATED]
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert desk.world.raw.hget(desk.world.keys.schedule_sets, "#applied") is None
    assert desk.stepper.events("schedules_refused") == [{"clashes": ["d"], "count": 1}]
    assert b"\ndynamic\n" in desk.world.raw.hget(desk.world.keys.schedule_def, "d")


@pytest.mark.share(2)
@pytest.mark.parametrize("stops_after", range(1, 9))
def test_a_crash_between_any_two_steps_is_completed_by_the_next_leader(desk: Declaration, stops_after: int) -> None:
    """All or nothing, as the applied digest sees it: until it is in, every term compares anew."""
    first = desk.world.lead("a")
    before = [schedule(f"s{number:03}") for number in range(300)]
    after = [schedule(f"s{number:03}", description="new") for number in range(100, 500)]
    desk.declare(first, *before)
    declaring, term = desk.declaring(*after), term_of(first)
    for _ in range(stops_after):
        desk.stepper.once(declaring, term)
    second = desk.world.lead("b", OTHER, mode="expired", observed_epoch=first.epoch)
    desk.declare(second, *after)

    assert {name: stored.definition for name, stored in desk.world.stored().items()} == {
        each.id: each for each in after
    }
    assert {stored.revision for stored in desk.world.stored().values()} == {1, 2}


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_lost_reply_changes_nothing_about_the_outcome(desk: Declaration, lost: int) -> None:
    """Every question can be asked again."""
    term = desk.world.lead()
    desk.declare(term, schedule("gone"), schedule("kept"))
    desk.stepper.asked.clear()
    desk.stepper.lose_reply = lambda number: number == lost
    desk.declare(term, *[schedule(f"s{number:03}") for number in range(300)], schedule("kept", description="x"))

    stored = desk.world.stored()
    assert len(stored) == 301
    assert (stored["kept"].revision, stored["s000"].revision) == (2, 1)
    assert desk.stepper.events("declaring_unanswered")


def test_an_old_term_declares_nothing(desk: Declaration) -> None:
    """A stale leader's configuration must not overwrite its successor's, at whatever step it was overtaken."""
    epoch = 0
    for steps in range(4):
        old = desk.world.lead("a", f"{steps}a" * 16, mode="expired" if epoch else "cold", observed_epoch=epoch)
        declaring = desk.declaring(schedule(f"x{steps}"))
        for _ in range(steps):
            desk.stepper.once(declaring, term_of(old))
        epoch = desk.world.lead("b", f"{steps}b" * 16, mode="expired", observed_epoch=old.epoch).epoch
        before = desk.dump()
        with pytest.raises(FencedError):
            desk.stepper.until(lambda: False, declaring, term_of(old))
        assert desk.dump() == before


def test_while_redis_is_away_it_waits_a_second_between_questions(desk: Declaration) -> None:
    """No flood of questions at a server that is coming back."""
    view = desk.world.lead()
    declaring, term = desk.declaring(schedule("a")), term_of(view)

    def away(_script: str) -> None:
        raise StoreUnavailableError("away")

    desk.stepper.before = away
    for _ in range(10):
        assert not desk.stepper.once(declaring, term)
    assert len(desk.stepper.events("declaring_unanswered")) == 1
    assert declaring.wake_ns > desk.stepper.now_ns
