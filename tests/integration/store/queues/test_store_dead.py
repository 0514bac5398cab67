"""Dead runs: read in pages, run again, forgotten."""

from __future__ import annotations

import pytest

from supervisor.core.model import Outcome, Release
from supervisor.store.queues.control import CancelCode, RequeueCode, Requeued
from tests.integration.store.queues.control_calls import control, outcomes, stat
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S = "r.1/worker-io-0/1"


def kill(world: StoreCalls, *run_ids: str, **template: object) -> None:
    """Let runs be given up at their first attempt."""
    world.open(S)
    world.enqueue(*(envelope(run_id, **template) for run_id in run_ids))
    world.fetch(S, want=200)
    for run_id in run_ids:
        world.ack(S, run_id, Outcome.DEAD, error={"type": "ValueError", "message": run_id})


def requeue(world: StoreCalls, *run_ids: str, delay_ms: int = 0) -> list[Requeued]:
    """Let them run again."""
    return world.run(control(world).requeue("default", run_ids, delay_ms=delay_ms, by="alice"))


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_every_dead_run_comes_in_pages(world: StoreCalls, *, is_newest_first: bool) -> None:
    """However many there are."""
    ids = [f"r{n}" for n in range(25)]
    kill(world, *ids)
    found, position, pages = [], "0", 0
    while position != "0" or not pages:
        page = world.run(world.queues.dead_page("default", position, count=10, is_newest_first=is_newest_first))
        found += [each.run_id for each in page.items]
        position, pages = page.cursor, pages + 1
    assert sorted(found) == sorted(ids)
    if is_newest_first:
        assert pages == 3


def test_a_dead_run_runs_again_from_the_tail_with_all_its_attempts(world: StoreCalls) -> None:
    """What it was charged counts as interruptions now, so that the fence that its code sees still grows."""
    kill(world, "a")
    world.enqueue(envelope("b"))

    assert requeue(world, "a", "a", "b", "none") == [
        Requeued(RequeueCode.REQUEUED, ""),
        *[Requeued(RequeueCode.ABSENT, "")] * 3,
    ]

    assert world.fsck() == []
    assert outcomes(world)[-1] == ("a", "requeued", "alice")
    assert stat(world, "requeued") == 1
    assert world.run(world.queues.show("a")).error["message"] == "a", "why it died is kept until it ends"
    first, again = world.turn(S, want=5).runs
    assert (first.envelope.id, again.envelope.id) == ("b", "a")
    assert (again.attempt, again.crashes, again.interrupts) == (1, 0, 1)
    world.ack(S, "a")
    assert world.fsck() == []


@pytest.mark.parametrize("how", [Release.INTERRUPTED, Release.VANISHED, Release.CRASHED, Release.SUSPECT])
def test_a_lost_run_that_runs_again_has_begun_before(world: StoreCalls, how: Release) -> None:
    """So no deadline of its start ends it, its fence grows, and its hooks undo what they may hold."""
    world.open(S)
    world.enqueue(envelope("a", at_most_once=True))
    for earlier in range(3):
        (run,) = world.turn(S, want=1).runs
        assert (run.attempt, run.crashes, run.interrupts) == (1, 0, earlier)
        world.run(world.queues.release_runs(session=S, items=[("default", "a", how)]))
        assert requeue(world, "a") == [Requeued(RequeueCode.REQUEUED, "")]
    assert world.fsck() == []


def test_a_dead_run_can_be_delayed(world: StoreCalls) -> None:
    """To wait for what it needs."""
    kill(world, "a")
    requeue(world, "a", delay_ms=60_000)
    assert world.state("a") == "later"
    assert world.fsck() == []


def test_a_dead_run_does_not_take_a_unique_key_from_its_holder(world: StoreCalls) -> None:
    """Being dead it had let go of it, and somebody else may have come."""
    kill(world, "a", unique="k")
    assert world.enqueue(envelope("b", unique="k")) == [True]
    assert requeue(world, "a") == [Requeued(RequeueCode.DUPLICATE, "default b")]
    assert world.state("a") == "dead"
    assert world.fetch(S) == ["b"]
    world.ack(S, "b")
    assert requeue(world, "a") == [Requeued(RequeueCode.REQUEUED, "")]
    assert world.enqueue(envelope("c", unique="k")) == [False]
    assert world.fsck() == []


def test_a_dead_run_without_data_cannot_run(world: StoreCalls) -> None:
    """It is told, not hidden."""
    kill(world, "a")
    world.raw.hdel(world.keys.queue("default").data, "a")
    assert requeue(world, "a") == [Requeued(RequeueCode.BROKEN, "")]
    assert world.state("a") == "finished"


def test_a_dropped_run_leaves_a_line(world: StoreCalls) -> None:
    """And nothing else; doing it twice finds it done."""
    kill(world, "a", "b")
    call = control(world).drop("default", ["a", "none"], by="alice", reason="obsolete")
    assert world.twice(call) == ([True, False], [False, False])

    assert outcomes(world)[-1] == ("a", "dropped", "alice: obsolete")
    assert stat(world, "dropped") == 1
    queue = world.keys.queue("default")
    assert [world.raw.hlen(key) for key in (queue.data, queue.att, queue.err)] == [1, 1, 1]
    assert world.fsck() == []


@on_both("queue_cancel", "queue_dead_drop", "queue_dead_requeue", "queue_hasten", "queue_priority")
def test_a_change_that_was_permitted_for_a_job_reaches_no_run_of_another(world: StoreCalls) -> None:
    """An id can be another run's by then: an idempotent producer gives the same one again."""
    kill(world, "d", job="theirs")
    world.enqueue(envelope("a", job="theirs"))
    before = world.run(world.queues.show("a")), world.run(world.queues.show("d"))
    ours, calls = [("default", "a", "ours")], control(world)
    assert [each.code for each in world.run(calls.cancel(ours))] == [CancelCode.UNKNOWN]
    assert [each.queue for each in world.run(calls.set_priority(ours, 0))] == [""]
    assert [each.queue for each in world.run(calls.hasten(ours))] == [""]
    assert [each.code for each in world.run(calls.requeue("default", ["d"], job="ours"))] == [RequeueCode.ABSENT]
    assert world.run(calls.drop("default", ["d"], job="ours")) == [False]
    assert (world.run(world.queues.show("a")), world.run(world.queues.show("d"))) == before

    assert [each.code for each in world.run(calls.cancel([("default", "a", "theirs")]))] == [CancelCode.CANCELLED]
    assert world.run(calls.drop("default", ["d"], job="theirs")) == [True]
