"""Renaming: what has an id of the old name goes on to count, and the old name may be used again."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Outcome, Release
from supervisor.operations import schedule_control
from supervisor.store.election.leases import LeaseView
from supervisor.store.schedules.control import Control, TriggerCode
from supervisor.store.schedules.reads import Inspection, Views
from supervisor.store.wire.fire import DuePage, FireCode
from tests.kit.builders import StoreCalls, schedule

S = "r.1/w-0/1"


@pytest.fixture
def term(world: StoreCalls) -> LeaseView:
    """The current term, with a schedule whose run is being executed."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("old", overlap="buffer_one")))
    world.run(world.fire_call(term, world.item("old")))
    world.open(S)
    assert len(world.fetch(S)) == 1
    return term


def rename(world: StoreCalls, term: LeaseView, old: str, new: str, **fields: object) -> None:
    world.run(world.declare_call(term, schedule(new, overlap="buffer_one", renamed_from=old, **fields)))


def inspect(world: StoreCalls, name: str) -> Inspection:
    [found] = world.run(Views(world.keys).inspect([name]))
    assert isinstance(found, Inspection)
    return found


def running(world: StoreCalls) -> str:
    [run] = world.raw.hkeys(world.keys.queue("default").run)
    return str(run, "ascii") if isinstance(run, bytes) else run


def live(world: StoreCalls, name: str) -> int:
    call = world.schedules.due(DuePage(after_ms=0, until_ms=0, late_ms=0, limit=0), ids=[name])
    return int(world.run(call).seen[0].live)


def is_asked(world: StoreCalls, name: str) -> bool:
    score = world.raw.zscore(world.keys.schedule_next, name)
    return score is not None and score <= 0


@pytest.mark.parametrize("names", [["new"], ["mid", "new"], ["mid", "old"]])
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.DEAD])
def test_a_run_of_the_old_name_frees_the_slot_of_the_new_one(
    world: StoreCalls, term: LeaseView, names: list[str], outcome: Outcome
) -> None:
    """What waits for it starts at its end, also after several renames, and back again."""
    former = "old"
    for name in names:
        rename(world, term, former, name)
        former = name
    assert world.run(world.fire_call(term, world.item(former))).results[0].code is FireCode.BUFFERED
    world.raw.zadd(world.keys.schedule_next, {former: 10**13})
    world.ack(S, running(world), outcome, schedule="old")

    assert is_asked(world, former)
    assert live(world, former) == 0
    assert not world.raw.hexists(world.keys.schedule_live, former)


def test_a_run_of_the_old_name_that_crashes_for_good_frees_the_slot_too(world: StoreCalls, term: LeaseView) -> None:
    """Then nothing but its id tells which schedule it was of."""
    rename(world, term, "old", "new")
    world.run(world.fire_call(term, world.item("new")))
    world.raw.zadd(world.keys.schedule_next, {"new": 10**13})
    run = running(world)
    for crash in range(3):
        if crash:
            if crash > 1:  # the first time it goes on at once
                world.make_due(run)
            assert world.fetch(S, want_suspect=True) == [run]
        world.run(world.queues.release_runs(session=S, items=[("default", run, Release.CRASHED)]))

    assert is_asked(world, "new")
    assert live(world, "new") == 0


def test_a_run_that_is_gone_holds_nothing_up(world: StoreCalls, term: LeaseView) -> None:
    """A cadence that counts from the end of the last run would otherwise wait for ever."""
    assert live(world, "old") == 1
    world.raw.hset(world.keys.schedule_live, "old", "default gone@1\ndefault gone@2")

    assert live(world, "old") == 0
    assert term.nonce


def test_the_old_name_shows_nothing_of_what_it_became(world: StoreCalls, term: LeaseView) -> None:
    """Not even that its runs count elsewhere."""
    rename(world, term, "old", "new")

    assert inspect(world, "old").live == []
    assert [queue for queue, _ in inspect(world, "new").live] == ["default"]


def test_revisions_of_a_name_go_on_after_it_was_given_up(world: StoreCalls, term: LeaseView) -> None:
    """A leader that holds the old definition in its memory must not take a new one for it."""
    before = world.stored()["old"].revision
    rename(world, term, "old", "new")
    world.run(world.declare_call(term, schedule("old", every_ms=7000)))

    assert world.stored()["old"].revision > before
    told = [fields for _, fields in world.raw.xrange(world.keys.schedule_changes) or []]
    assert {b"kind": b"remove", b"schedule": b"old"} in told


def test_a_name_that_was_used_before_goes_on_from_the_higher_revision(world: StoreCalls, term: LeaseView) -> None:
    """Of its own former life and of the schedule that it was called before."""
    for period in (2000, 3000, 4000):
        world.run(world.declare_call(term, schedule("new", every_ms=period)))
    world.run(world.remove_call(term, "new"))
    rename(world, term, "old", "new")

    assert world.stored()["new"].revision == 4


def test_a_name_that_is_remembered_no_more_goes_on_above_all_that_are_forgotten(
    world: StoreCalls, term: LeaseView
) -> None:
    """A leader may still hold its last definition of more than a day ago; the rename began below it."""
    world.raw.hset(world.keys.schedule_sets, "#forgotten", 50)
    rename(world, term, "old", "new")

    assert world.stored()["new"].revision == 51


def test_a_rename_that_is_rolled_back_keeps_the_pause(world: StoreCalls, term: LeaseView) -> None:
    """What somebody stopped must not start because a deploy went forth and back."""
    world.run(Control(world.keys).pause(["old"], reason="bad data", by="kim"))
    rename(world, term, "old", "new")
    world.run(world.remove_call(term, "new"))
    world.run(world.declare_call(term, schedule("old", overlap="buffer_one")))

    record = inspect(world, "old").record
    assert record is not None
    assert record.pause is not None
    assert record.pause.reason == "bad data"


def test_a_trigger_with_a_key_runs_once_whatever_its_schedule_is_called(world: StoreCalls, term: LeaseView) -> None:
    """Whoever repeats it after a deploy knows the new name alone."""

    def trigger(name: str) -> TriggerCode:
        return drive(schedule_control.trigger(world.keys, name, key="k", wall_ms=1), world.run).code

    assert trigger("old") is TriggerCode.TRIGGERED
    rename(world, term, "old", "new")
    assert trigger("new") is TriggerCode.DUPLICATE
    world.run(world.declare_call(term, schedule("other")))
    assert trigger("other") is TriggerCode.TRIGGERED


def test_what_a_name_leaves_behind_is_forgotten_with_it(world: StoreCalls, term: LeaseView) -> None:
    """Its runs were cancelled, so that nobody said that they ended: 90 days later nothing is left of it."""
    rename(world, term, "old", "new")
    world.cancel(running(world))
    aged = world.raw.hget(world.keys.schedule_gone, "old")
    assert isinstance(aged, bytes)
    world.raw.hset(world.keys.schedule_gone, "old", b"1000" + aged[aged.index(b" ") :])
    assert world.raw.hexists(world.keys.schedule_live, "old")
    world.run(world.remove_call(term, "none"))

    assert not world.raw.hexists(world.keys.schedule_live, "old")
    assert not world.raw.hexists(world.keys.schedule_gone, "old")
