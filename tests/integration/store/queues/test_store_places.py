"""A run has one place, and a slot that is free is found: what a randomised attack on the queues brought to light."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from supervisor.core.effects import drive
from supervisor.core.errors import TenureError
from supervisor.core.model import Kind, Outcome, Release
from supervisor.operations.queues import verify
from supervisor.store.wire.poll import Ack, fence_parts
from tests.integration.store.limits.limit_checks import limited
from tests.integration.store.queues.control_calls import READY, cancel, control, wanted
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import Server, on_both
from tests.kit.waiting import wait_until


@pytest.fixture
def world(server: Server) -> StoreCalls:
    world = StoreCalls(server)
    world.open("s1", "s2")
    return world


def cancel_suspect(world: StoreCalls, run_id: str) -> None:
    """Leave an entry that no longer counts in the list of suspects."""
    world.enqueue(envelope(run_id))
    world.fetch("s1")
    world.run(world.sessions.condemn("s1", None))
    world.run(world.queues.release_runs(session="s1", items=[("default", run_id, Release.SUSPECT)]))
    cancel(world, run_id)


def test_a_run_whose_namesake_was_a_cancelled_suspect_is_purged(world: StoreCalls) -> None:
    """The entry that the namesake left does not count; taken for the place, the run was dropped from its list and stayed."""
    cancel_suspect(world, "r1")
    world.enqueue(envelope("r1"))
    assert world.run(control(world).purge("default", READY)).ended == 1
    assert (world.fsck(), world.state("r1")) == ([], "finished")


@on_both("queue_move")
def test_a_run_whose_namesake_was_a_cancelled_suspect_is_moved(world: StoreCalls) -> None:
    """As with a purge: it would be in neither queue."""
    cancel_suspect(world, "r1")
    world.enqueue(envelope("r1"))
    assert world.run(control(world).move("default", "other", READY)).moved == 1
    assert world.fetch("s2", queues=["other"]) == ["r1"]


def test_a_run_whose_namesake_was_a_cancelled_suspect_is_cancelled_where_it_is(world: StoreCalls) -> None:
    """Else its own entry goes on counting, and the next run of this id is given to two workers at once."""
    cancel_suspect(world, "r1")
    world.enqueue(envelope("r1"))
    cancel(world, "r1")
    world.enqueue(envelope("r1"))
    assert world.fsck() == []
    assert world.fetch("s2") == ["r1"]


def test_a_run_that_is_too_early_leaves_its_slot_to_those_behind_it(world: StoreCalls) -> None:
    """It was brought back for a slot, and its rate sends it away: nobody else would ever hear of that slot."""
    slow: dict[str, Any] = {"rate": "{tenant}", "rate_count": 1, "rate_per_ms": 60_000}
    world.enqueue(
        envelope("spent", **slow, args={"tenant": 1}),
        limited("holder"),
        limited("early", **slow, args={"tenant": 1}),
        limited("waiting", **slow, args={"tenant": 2}),
    )
    assert world.fetch("s1") == ["spent", "holder"]
    world.ack("s1", "holder")
    assert world.fetch("s1") == []
    assert world.state("early") == "later"
    assert world.fetch("s1") == ["waiting"]


def test_a_run_that_is_moved_away_leaves_its_slot_to_those_that_stay(world: StoreCalls) -> None:
    """It was brought back for a slot, and nobody may take it where it is now."""
    world.enqueue(*(limited(run_id, kind=Kind.SYNC) for run_id in ("holder", "moved", "waiting")))
    assert world.fetch("s2", kind=Kind.SYNC) == ["holder"]
    world.ack("s2", "holder", kind=Kind.SYNC)
    assert world.fetch("s1") == []  # of another kind: it brings one back, and takes none
    assert world.run(control(world).move("default", "other", "ready:s:1")).moved == 1
    assert world.fetch("s2", kind=Kind.SYNC) == ["waiting"]


@on_both("queue_pause", "queue_resume")
def test_the_end_of_a_pause_wakes_somebody_for_those_whose_slot_came_free(world: StoreCalls) -> None:
    """They are in no list, so that a count of the lists says nobody waits."""
    world.enqueue(limited("holder"), limited("waiting"))
    world.fetch("s1")
    world.run(control(world).pause("default"))
    world.ack("s1", "holder")
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    world.raw.delete(bell)  # who heard it meanwhile could take nothing
    world.run(control(world).resume("default"))
    assert world.raw.llen(bell) == 1


def test_a_run_that_gave_way_and_is_enqueued_again_is_given_once(world: StoreCalls) -> None:
    """Its entry in the list must not count beside the new one: both lead to the data of the new run."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap="terminate_other")))
    first = world.item("s")
    world.run(world.fire_call(term, first))
    world.run(world.fire_call(term, world.item("s")))
    world.enqueue(envelope(first.run.run_id))
    assert world.fsck() == []
    assert world.fetch("s1").count(first.run.run_id) == 1


def test_a_delayed_run_that_gave_way_is_nowhere(world: StoreCalls) -> None:
    """What is left of it would start the next run of this id before its time."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap="terminate_other")))
    first = world.item("s")
    world.run(world.fire_call(term, first))
    world.fetch("s1")
    world.ack("s1", first.run.run_id, Outcome.RETRY, retry_delay_ms=60_000)
    world.run(world.fire_call(term, world.item("s")))
    assert world.raw.zcard(world.keys.queue("default").later) == 0


def test_a_foreign_key_in_one_list_puts_no_run_twice_into_another(world: StoreCalls) -> None:
    """Two retries are due, and one cannot be put into its list: then both wait, at each attempt."""
    queue = world.keys.queue("default")
    world.enqueue(*(envelope(f"r{n}", priority=n) for n in range(3)))
    world.fetch("s1")
    acks = [
        Ack(run_id=f"r{n}", queue="default", attempt=1, outcome=Outcome.RETRY, retry_delay_ms=60_000) for n in range(3)
    ]
    world.turn("s1", acks=acks)
    for n in range(3):
        world.make_due(f"r{n}")
    for n in range(3):
        world.raw.set(queue.ready(Kind.ASYNC, n), "foreign")
        assert world.turn("s2").failed.startswith(f"{queue.ready(Kind.ASYNC, n)}: WRONGTYPE")
        world.raw.delete(queue.ready(Kind.ASYNC, n))
        assert [world.raw.exists(queue.ready(Kind.ASYNC, other)) for other in range(3)] == [0, 0, 0]


def test_a_crashed_run_that_is_hastened_goes_on_alone(world: StoreCalls) -> None:
    """It takes no neighbours with it, as when its time comes by itself."""
    world.enqueue(envelope("r1"))
    world.fetch("s1")
    world.run(world.sessions.condemn("s1", None))
    world.run(world.queues.release_runs(session="s1", items=[("default", "r1", Release.CRASHED)]))
    world.run(control(world).hasten([("", "r1")]))
    assert world.fetch("s2") == []
    assert world.fetch("s2", want_suspect=True) == ["r1"]


def test_a_request_to_kill_hits_no_later_run_of_the_same_id(world: StoreCalls) -> None:
    """The request stands for a minute after Redis let go of the run; the id may be used again, by the same process."""
    world.enqueue(envelope("r1"))
    world.fetch("s1")
    cancel(world, "r1", kill_ms=1)
    wait_until(lambda: [run.is_killed for run in wanted(world, "s1")] == [True], what="Redis to let go of it")
    world.enqueue(envelope("r1"))
    assert [run.is_killed for run in wanted(world, "s1")] == [True]
    assert world.fetch("s1") == ["r1"]
    token = world.raw.hget(world.keys.queue("default").run, "r1")
    assert token is not None
    assert all(run.fetched_ms != fence_parts(token)[2] for run in wanted(world, "s1"))


def test_what_ended_a_process_may_be_said_in_any_language(world: StoreCalls) -> None:
    """It is cut to so many bytes; half of a character would make the whole list of dead runs unreadable."""
    world.enqueue(envelope("r1", max_crashes=1))
    world.fetch("s1")
    world.run(world.sessions.condemn("s1", None))
    items = [("default", "r1", Release.CRASHED)]
    world.run(world.queues.release_runs(session="s1", items=items, detail="x" + "é" * 150))
    assert world.run(world.queues.dead("default"))[0].error["detail"] == "x" + "é" * 99


def test_an_envelope_that_is_no_text_comes_as_broken_beside_the_others(world: StoreCalls) -> None:
    """The caller must be able to give it up; an error here would end the worker process, and the next one."""
    world.enqueue(envelope("r1"), envelope("r2"))
    world.raw.hset(world.keys.queue("default").data, "r1", b'a1{"id":"r1","template":{"job":"\xff"}}')
    reply = world.turn("s1", want=2)
    assert ([run.run_id for run in reply.broken], [run.envelope.id for run in reply.runs]) == (["r1"], ["r2"])


@pytest.mark.parametrize("part", ["dead", "suspect:a", "stale", "cancel"])
def test_a_foreign_key_where_a_run_gives_way_leaves_no_run_without_a_place(world: StoreCalls, part: str) -> None:
    """One schedule's run was made and another's cannot be looked for: then neither is made."""
    term = world.lead()
    world.run(world.declare_call(term, *(schedule(each, overlap="terminate_other") for each in ("s", "t"))))
    world.run(world.fire_call(term, world.item("t")))
    world.raw.set(f"{world.keys.queue('default').prefix}{part}", "foreign")
    with pytest.raises((TenureError, redis.ResponseError)):
        world.run(world.fire_call(term, world.item("s"), world.item("t")))
    assert world.raw.hlen(world.keys.queue("default").data) == 1


@pytest.mark.parametrize("count", ["-100000000000000", "x", "9" * 30])
def test_a_count_of_stale_entries_that_nobody_wrote_holds_nobody_up(world: StoreCalls, count: str) -> None:
    """It says nothing of how many entries there are: the run is kept once, and its list is clean."""
    world.enqueue(envelope("a"))
    queue = world.keys.queue("default")
    world.raw.hset(f"{queue.prefix}stale", f"{READY} a", count)
    world.raw.rpush(f"{queue.prefix}{READY}", "a")
    drive(verify(world.keys, ["default"], is_mending=True), world.run)
    assert drive(verify(world.keys, ["default"]), world.run) == []
    assert world.fetch("s1").count("a") <= 1
