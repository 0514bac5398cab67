"""Rolling a deploy back: what a newer configuration began, an older one undoes, however far it got."""

from __future__ import annotations

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.config_sync import ConfigSync
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.election.leases import CandidateInfo
from supervisor.store.schedules.definitions import Change, DefineCode, Definitions
from supervisor.store.wire.fire import DuePage, FireCalls
from tests.integration.store.schedules.declaration import OTHER, Declaration
from tests.kit.builders import StoreCalls, schedule
from tests.kit.stepper import term_of

MINUTE_NS = 60_000_000_000


@pytest.fixture
def desk(world: StoreCalls) -> Declaration:
    return Declaration(world)


def holder(desk: Declaration, replica: str, definitions: list[ScheduleDef]) -> None:
    """Let a standby be seen that holds ``definitions``."""
    info = CandidateInfo(replica=replica, schedules_digest=schedules_digest(definitions))
    desk.world.run(desk.world.campaign_call(replica, OTHER, info=info))


def copy_of(desk: Declaration) -> dict[bytes, bytes]:
    """Return everything that Redis has."""
    return {key: desk.world.raw.dump(key) for key in desk.world.raw.scan_iter()}


def restore(desk: Declaration, data: dict[bytes, bytes]) -> None:
    """Let Redis go back to ``data``."""
    desk.world.raw.flushall()
    for key, value in data.items():
        desk.world.raw.restore(key, 0, value)


def read_plan(desk: Declaration, declaring: ConfigSync) -> None:
    """Do with the answer to a reading of the plan as a scheduler does."""
    due = desk.world.run(FireCalls(desk.world.keys).due(DuePage(after_ms=0, until_ms=0, late_ms=0)))
    if declaring.applied not in ("", due.applied):
        declaring.begin()


def replacing(desk: Declaration, steps: int) -> tuple[list[str], ConfigSync, Term, dict[bytes, bytes]]:
    """Replace a set of 300 by another; return its names, its declaration after ``steps``, the term and a copy."""
    former = [schedule(f"f{number:03}") for number in range(300)]
    newer = [schedule(f"s{number:03}") for number in range(300)]
    view = desk.world.lead("a")
    desk.declare(view, *former)
    declaring, term = desk.declaring(*newer), term_of(view)
    for _ in range(steps):
        desk.stepper.once(declaring, term)
    return [each.id for each in newer], declaring, term, copy_of(desk)


@pytest.mark.share(3)
@pytest.mark.parametrize("stops_after", range(1, 7))
def test_a_deploy_that_died_half_way_is_undone_by_the_set_that_was_in_place_before(
    desk: Declaration, stops_after: int
) -> None:
    """What was applied last is not in place any more once another set has begun."""
    former = [schedule(f"s{number:03}") for number in range(300)]
    newer = [schedule(f"s{number:03}", every_ms=5000) for number in range(10, 300)]
    first = desk.world.lead("a")
    desk.declare(first, *former)
    second = desk.world.lead("b", OTHER, mode="expired", observed_epoch=first.epoch)
    declaring = desk.declaring(*newer)
    for _ in range(stops_after):
        desk.stepper.once(declaring, term_of(second))
    third = desk.world.lead("a", "ef" * 16, mode="expired", observed_epoch=second.epoch)
    desk.declare(third, *former)

    assert {name: found.definition for name, found in desk.world.stored().items()} == {each.id: each for each in former}


def test_an_older_set_rules_again_in_the_same_term_once_the_newer_one_is_gone(desk: Declaration) -> None:
    """Whoever leads while the deploy is rolled back elsewhere is not elected again for it."""
    older, newer = [schedule("a")], [schedule("b")]
    view = desk.world.lead("old", info=CandidateInfo(replica="old", schedules_digest=schedules_digest(older)))
    desk.declare(view, *older)
    desk.declare(view, *newer)
    holder(desk, "new", newer)
    declaring, term = desk.declaring(*older), term_of(view)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    assert sorted(desk.world.stored()) == ["b"]
    holder(desk, "new", older)
    desk.stepper.now_ns += MINUTE_NS
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert sorted(desk.world.stored()) == ["a"]


def test_an_older_set_that_waits_asks_once_a_minute_and_says_so_once(desk: Declaration) -> None:
    """A rolling deploy may take long."""
    older, newer = [schedule("a")], [schedule("b")]
    view = desk.world.lead("old")
    desk.declare(view, *older)
    desk.declare(view, *newer)
    holder(desk, "new", newer)
    declaring, term = desk.declaring(*older), term_of(view)
    asked, told = len(desk.stepper.asked), len(desk.stepper.told)
    for _ in range(3):
        desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
        holder(desk, "new", newer)
        desk.stepper.now_ns += MINUTE_NS

    assert desk.stepper.asked[asked:] == ["declare_begin"] * 3
    assert [event for event, _ in desk.stepper.told[told:]] == ["schedules_declared"]


@pytest.mark.share(4)
@pytest.mark.parametrize(("kept", "lost"), [(kept, lost) for lost in range(1, 8) for kept in range(lost)])
def test_a_set_is_not_in_place_where_redis_went_back_while_it_was_brought_in(
    desk: Declaration, kept: int, lost: int
) -> None:
    """A page that is not there any more would be missed by nobody: each leader would find the set in place."""
    names, declaring, term, data = replacing(desk, kept)
    for _ in range(lost - kept):
        desk.stepper.once(declaring, term)
    restore(desk, data)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert sorted(desk.world.stored()) == names


@pytest.mark.share(3)
@pytest.mark.parametrize("kept", range(8))
def test_a_set_that_redis_loses_with_its_last_moments_is_brought_in_again(desk: Declaration, kept: int) -> None:
    """A fail-over that loses no renewal of the lease is no loss to the election: the same term goes on."""
    names, declaring, term, data = replacing(desk, kept)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    assert sorted(desk.world.stored()) == names
    restore(desk, data)
    read_plan(desk, declaring)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert sorted(desk.world.stored()) == names


def test_a_part_of_a_former_set_that_comes_late_does_not_stay(desk: Declaration) -> None:
    """The network may hold a question whose repetition was answered long ago; its term is still the newest one."""
    former, newer = [schedule("a"), schedule("b")], [schedule("a", every_ms=5000), schedule("c")]
    view = desk.world.lead("a")
    term = term_of(view)
    desk.declare(view, *former)
    declaring = desk.declaring(*newer)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    calls = Definitions(desk.world.keys)
    late = [Change(definition=each) for each in former]
    desk.world.run(calls.page(term, digest=schedules_digest(former), changes=late, wall_ms=1, part="1 1"))
    desk.world.run(calls.remove(term, ids=["c"], part="1 2"))
    assert sorted(desk.world.stored()) == ["a", "b"]
    read_plan(desk, declaring)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert {name: found.definition for name, found in desk.world.stored().items()} == {each.id: each for each in newer}
    assert len(desk.stepper.events("declaring_unanswered")) == 1


def test_a_question_of_a_former_set_that_comes_late_keeps_no_new_schedule_away(desk: Declaration) -> None:
    """It announces a set that nobody brings in any more: new dynamic schedules would wait for the rest of the term."""
    former, newer = [schedule("a")], [schedule("b")]
    view = desk.world.lead("a")
    term = term_of(view)
    desk.declare(view, *former)
    declaring = desk.declaring(*newer)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    desk.world.run(Definitions(desk.world.keys).begin(term, digest=schedules_digest(former), lease_ms=5000))
    assert desk.upsert(schedule("mine")) == [DefineCode.BUSY]
    read_plan(desk, declaring)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)

    assert desk.upsert(schedule("mine")) == [DefineCode.CREATED]
    read_plan(desk, declaring)
    assert declaring.is_done(term)


def test_a_set_that_is_in_place_asks_nothing_and_says_so_once(desk: Declaration) -> None:
    """A term may last for months."""
    view = desk.world.lead("a")
    declaring, term = desk.declaring(schedule("a")), term_of(view)
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    asked = len(desk.stepper.asked)
    for _ in range(3):
        desk.stepper.now_ns += MINUTE_NS
        read_plan(desk, declaring)
        assert declaring.is_done(term)

    assert desk.stepper.asked[asked:] == []
    assert [event for event, _ in desk.stepper.told] == ["schedules_declared"]
