"""Unique keys of runs that schedules owe: a conflict ends the run at once, and stops neither its schedule nor others."""

from __future__ import annotations

import pytest

from supervisor.core.model import Kind, Template
from supervisor.core.schedules.manual_runs import MANUAL, extra_run
from supervisor.store.election.leases import LeaseView
from supervisor.store.schedules.control import Control, TriggerCode
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import FireCode
from tests.integration.store.limits.limit_checks import unique
from tests.integration.store.schedules.backfill_fixture import BackfilledSchedule
from tests.kit.builders import StoreCalls, schedule

S = "r.1/w-0/1"
TEMPLATE = Template(job="tests.noop", kind=Kind.ASYNC, unique="k")


@pytest.fixture
def term(world: StoreCalls) -> LeaseView:
    """The current term, with two schedules whose runs share a unique key."""
    term = world.lead()
    two = (schedule("s", template=TEMPLATE), schedule("t", template=TEMPLATE, overlap="allow"))
    world.run(world.declare_call(term, *two))
    world.planned()
    return term


def ends(world: StoreCalls) -> list[tuple[str, str]]:
    return [(entry.outcome, entry.note) for entry in world.run(world.queues.recent("default"))]


def test_the_first_of_one_batch_holds_the_key_and_the_second_ends(world: StoreCalls, term: LeaseView) -> None:
    """Both watermarks advance: the due time was decided, and nothing owes it any more."""
    first, second = world.item("s"), world.item("t")
    reply = world.run(world.fire_call(term, first, second))
    assert [result.code for result in reply.results] == [FireCode.FIRED] * 2
    assert [result.mark_ms for result in reply.results] == [first.new_mark_ms, second.new_mark_ms]
    assert ends(world) == [("duplicate", f"its unique key is held by {first.run.run_id}")]
    assert world.state(second.run.run_id) == "finished"
    world.open(S)
    assert world.fetch(S) == [first.run.run_id]


def test_a_run_that_ended_so_holds_no_later_one_up(world: StoreCalls, term: LeaseView) -> None:
    """Its schedule skips while a run of it is unfinished: this one never was."""
    world.enqueue(unique("a"))
    world.run(world.fire_call(term, world.item("s")))
    assert world.raw.hget(world.keys.schedule_live, "s") is None
    world.open(S)
    assert world.fetch(S) == ["a"]
    world.ack(S, "a")
    item = world.item("s")
    assert world.run(world.fire_call(term, item)).results[0].code is FireCode.FIRED
    assert world.fetch(S) == [item.run.run_id]


def test_a_schedule_that_waits_for_the_end_of_its_run_goes_on(world: StoreCalls, term: LeaseView) -> None:
    """Every so long after completion: the end at once is an end."""
    world.enqueue(unique("a"))
    item = world.item("s", wait="c1000")
    assert world.run(world.fire_call(term, item)).results[0].code is FireCode.FIRED
    score = world.raw.zscore(world.keys.schedule_next, "s")
    assert score is not None
    assert score <= 0


def test_a_trigger_and_a_backfill_record_what_they_could_not_start(world: StoreCalls, term: LeaseView) -> None:
    """Nobody waits for a run that never was, and nothing is left of it."""
    world.enqueue(unique("a"))
    run = extra_run(schedule("s", template=TEMPLATE), run_id="s!manual!x", nominal_ms=7, cause=MANUAL, wall_ms=7)
    revision = world.stored()["s"].revision
    assert world.run(Control(world.keys).trigger(run, revision=revision, heeds_overlap=True)) is TriggerCode.TRIGGERED
    assert world.raw.hget(world.keys.schedule_live, "s") is None
    desk = BackfilledSchedule(world)
    desk.define(template=TEMPLATE)
    desk.add(3)
    done = desk.finish(term)
    assert (done.enqueued, done.skipped) == (0, 3)
    assert ends(world) == [("duplicate", "its unique key is held by a")] * 4
    assert world.raw.hkeys(world.keys.queue("default").data) == [b"a"]
    assert pack(run).data.startswith(b"a1[u")
