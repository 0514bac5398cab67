"""Reports of runs that end when they are taken from a worker that is gone."""

from __future__ import annotations

import pytest

from supervisor.core.model import Kind, Outcome, Release, Template
from supervisor.store.queues.runs import EndedRun, Released
from tests.integration.store.queues.control_calls import cancel
from tests.kit.builders import StoreCalls, envelope, schedule

S = "r.1/w-0/1"


def told(world: StoreCalls, *items: tuple[str, Release]) -> Released:
    call = world.queues.release_runs(session=S, items=[("default", run, how) for run, how in items])
    found: Released = world.run(call)
    return found


def test_a_run_that_ends_with_its_worker_is_told_with_its_job(world: StoreCalls) -> None:
    """No worker is left that could report it, so whoever gives it back does: once, however often it asks."""
    world.open(S)
    once = envelope("once", at_most_once=True, job="billing.send")
    world.enqueue(once, envelope("bad", max_crashes=1, job="bad"), envelope("unread", max_crashes=1), envelope("good"))
    assert len(world.fetch(S, want=4)) == 4
    keys = world.keys.queue("default")
    world.raw.hset(keys.att, "unread", "0,2,0")  # the third crash ends a run whose envelope says nothing else
    world.raw.hset(keys.data, "unread", "a1[1,2")
    items = [
        ("once", Release.SUSPECT),
        ("bad", Release.CRASHED),
        ("unread", Release.CRASHED),
        ("good", Release.CRASHED),
    ]

    released = told(world, *items)
    assert released.count == 4
    assert {each.outcome for each in released.ended} == {Outcome.DEAD}
    assert sorted(released.ended, key=lambda each: each.run_id) == [
        EndedRun("default", "bad", "crashed", 1, "bad", ""),
        EndedRun("default", "once", "lost", 1, "billing.send", ""),
        EndedRun("default", "unread", "crashed", 1, "", ""),
    ]
    assert told(world, *items) == Released(0, [])
    assert world.fsck() == []


@pytest.mark.parametrize("job", ['"' + "x" * 50_000 + '"', "7", "null", "[]"])
def test_what_is_told_of_a_run_that_ends_is_short(world: StoreCalls, job: str) -> None:
    """Whoever may write to Redis wrote the name of its job."""
    world.open(S)
    world.enqueue(envelope("a", max_crashes=1, job="j"))
    world.fetch(S)
    keys = world.keys.queue("default")
    world.raw.hset(keys.data, "a", world.raw.hget(keys.data, "a").replace(b'"job":"j"', b'"job":' + job.encode()))

    (ended,) = told(world, ("a", Release.CRASHED)).ended
    assert ended.job == ("x" * 255 if "x" in job else "")


def test_a_cancelled_run_whose_worker_did_not_live_to_obey_is_told_as_cancelled(world: StoreCalls) -> None:
    """It is no failure: nobody is alarmed."""
    world.open(S)
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", template=Template(job="j", kind=Kind.ASYNC))))
    item = world.item("s")
    world.run(world.fire_call(term, item))
    (run_id,) = world.fetch(S)
    cancel(world, run_id)

    (ended,) = told(world, (run_id, Release.CRASHED)).ended
    assert ended == EndedRun("default", run_id, "cancelled", 1, "j", "s")
    assert ended.outcome is Outcome.CANCELLED
