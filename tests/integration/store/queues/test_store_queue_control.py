"""Pausing, purging, moving queues, and changing the turn of single runs."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.queues.control import Moved, Placed, Purged
from supervisor.store.queues.reads import PARTS
from tests.integration.store.queues.control_calls import READY, cancel, control, outcomes, stat
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import on_both

S = "r.1/worker-io-0/1"
LIMITED = {"concurrency": "k", "concurrency_max": 1}


def purge(world: StoreCalls, part: str = READY, **options: Any) -> Purged:
    """Purge one page."""
    return world.run(control(world).purge("default", part, **{"by": "alice"} | options))


def move(world: StoreCalls, part: str = READY, **options: Any) -> Moved:
    """Move one page to the queue ``other``."""
    return world.run(control(world).move("default", "other", part, **options))


def everywhere(world: StoreCalls) -> None:
    """Put a run into each place: ready high, normal and low, sync, later, retrying, suspect, blocked, running, dead."""
    world.open(S)
    world.enqueue(*(envelope(name) for name in ("retrying", "suspect", "dead")))
    world.enqueue(envelope("running", **LIMITED), envelope("blocked", **LIMITED))
    assert len(world.fetch(S)) == 4
    world.ack(S, "retrying", Outcome.RETRY, retry_delay_ms=60_000, error={"reason": "x"})
    world.ack(S, "dead", Outcome.DEAD)
    world.run(world.queues.release_runs(session=S, items=[("default", "suspect", Release.SUSPECT)]))
    world.enqueue(envelope("later"), delays_ms=[60_000])
    world.enqueue(*(envelope(f"ready{priority}", priority=priority) for priority in (0, 1, 2)))
    world.enqueue(envelope("sync", kind=Kind.SYNC))


def parts(world: StoreCalls, queue: str = "default") -> list[str]:
    """Return every place in which runs wait."""
    waiting = world.run(world.queues.blocked(queue)).items
    return [*PARTS, *sorted({f"wait:{key}" for _, key in waiting})]


# Pause ------------------------------------------------------------------------------------------


def test_nothing_is_fetched_from_a_paused_queue(world: StoreCalls) -> None:
    """Reason and name are shown; what is put in waits."""
    world.open(S)
    world.enqueue(envelope("a"))
    assert world.twice(control(world).pause("default", by="alice", reason="it\nmoves")) == (True, False)
    assert world.fetch(S) == []
    counts = world.run(world.queues.counts("default"))
    assert (counts.paused, counts.paused_by) == ("it moves", "alice")
    assert abs((counts.paused_ms or 0) - counts.now_ms) < 60_000

    world.raw.delete(world.keys.queue("default").bell(Kind.ASYNC))
    assert world.run(control(world).resume("default")) is True
    assert world.raw.llen(world.keys.queue("default").bell(Kind.ASYNC)) == 1, "a worker is woken"
    assert world.run(control(world).resume("default")) is False
    assert world.fetch(S) == ["a"]


def test_a_queue_can_be_paused_before_its_first_run(world: StoreCalls) -> None:
    """So it is listed from then on."""
    world.run(control(world).pause("fresh"))
    assert world.run(world.queues.names()) == ["fresh"]
    assert world.run(world.queues.counts("fresh")).paused == ""


# Purge ------------------------------------------------------------------------------------------


@on_both("queue_blocked")
def test_a_purge_ends_all_that_waits_and_nothing_else(world: StoreCalls) -> None:
    """Each run leaves a line; what runs and what is dead stays."""
    everywhere(world)
    before = len(outcomes(world))
    ended = sum(purge(world, part).ended for part in parts(world))

    assert ended == 8
    lines = outcomes(world)[before:]
    assert {run_id for run_id, *_ in lines} == {
        *("blocked", "later", "ready0", "ready1", "ready2", "retrying", "suspect", "sync")
    }
    assert {(outcome, note) for _, outcome, note in lines} == {("purged", "alice")}
    assert stat(world, "purged") == 8
    assert (world.state("running"), world.state("dead")) == ("running", "dead")
    assert world.fsck() == []
    world.ack(S, "running")
    queue = world.keys.queue("default")
    assert world.raw.hkeys(queue.data) == world.raw.zrange(queue.dead, 0, -1) == [b"dead"]
    assert [world.raw.hlen(f"{queue.prefix}{part}") for part in ("att", "limits", "blocked")] == [1, 0, 0]


@pytest.mark.parametrize("part", [READY, "later", "suspect:a", "wait:tests.noop:k"])
def test_a_purge_of_one_job_takes_its_runs_only(world: StoreCalls, part: str) -> None:
    """In pages, from wherever they stand among others."""
    world.open(S)
    limits = LIMITED if part.startswith("wait") else {}
    key = "tests.noop:k"
    runs = [envelope(f"r{n}", job="tests.noop" if n % 2 else "tests.other", **limits) for n in range(10)]
    world.enqueue(*runs, delays_ms=[60_000 if part == "later" else 0] * 10)
    if part == "suspect:a":
        items = [("default", run_id, Release.SUSPECT) for run_id in world.fetch(S)]
        world.run(world.queues.release_runs(session=S, items=items))
    expected = [f"r{n}" for n in range(10) if not n % 2]
    if limits:
        world.fetch(S)
        assert part == f"wait:{key}"
        expected += ["r1"]  # it runs
    position = "0"
    while position:
        page = purge(world, part, job="tests.noop", position=position, count=3)
        assert page.seen <= 10  # a small sorted set is scanned at once
        position = page.position

    assert sorted(run.decode() for run in world.raw.hkeys(world.keys.queue("default").data)) == sorted(expected)
    assert world.fsck() == []


@pytest.mark.parametrize("change", [purge, move])
def test_a_run_that_waits_for_a_key_as_no_version_writes_it_is_purged_and_moved(world: StoreCalls, change: Any) -> None:
    """Whoever may enqueue by Redis can lay one, and what waits behind it is to go, too."""
    world.open(S)
    world.enqueue(envelope("a"))
    queue = world.keys.queue("default")
    world.raw.hset(queue.data, "a", b"a1[c1:two words]" + world.raw.hget(queue.data, "a")[2:])
    world.raw.hset(queue.limits, "a", "[c1:two words]")
    world.raw.sadd(f"{world.keys.prefix}limit:c:two words", "default x")
    world.raw.hset(queue.run, "x", f"{S}|1|1")
    assert world.fetch(S) == []
    assert [change(world, part) for part in parts(world)][-1] in {Purged("", 1, 1), Moved(1, 1, 0)}
    assert world.raw.hlen(queue.data) == world.raw.hlen(queue.blocked) == 0


@on_both("queue_purge")
def test_a_purge_passes_over_what_is_stale(world: StoreCalls) -> None:
    """A cancelled run, and one that is somewhere else by now."""
    world.enqueue(envelope("a"), envelope("b"), envelope("c"))
    cancel(world, "a")
    world.run(control(world).set_priority([("", "b")], 0))

    assert purge(world, count=2) == Purged("0", 2, 0)
    assert purge(world, count=2) == Purged("", 1, 1)
    assert world.state("b") == "queued"
    assert world.fsck() == []


# Move -------------------------------------------------------------------------------------------


def test_a_move_carries_everything_in_its_order(world: StoreCalls) -> None:
    """Priorities, charges, delays and limits go with each run; what runs and what is dead stays."""
    everywhere(world)
    world.enqueue(*(envelope(f"m{n}", unique=f"u{n}") for n in range(5)))
    while any(move(world, part, count=2).seen for part in parts(world)):
        pass

    assert world.fsck() == world.fsck("other") == []
    queue = world.keys.queue("default")
    assert sorted(world.raw.hkeys(queue.data)) == [b"dead", b"running"]
    assert (stat(world, "moved_out"), stat(world, "moved_in", "other")) == (13, 13)
    assert world.enqueue(envelope("x", unique="u3")) == [False], "its unique key is held in the other queue"
    world.raw.zadd(world.keys.queue("other").later, {"retrying": 1}, xx=True)
    fetched = world.turn(S, want=20, queues=["other"]).runs
    assert [run.envelope.id for run in fetched] == [
        *("ready0", "retrying", "ready1", *(f"m{n}" for n in range(5)), "ready2")
    ], "the blocked one waits again: its neighbour still runs"
    assert fetched[1].attempt == 2
    world.ack(S, "running")
    assert world.fetch(S, queues=["other"]) == ["blocked"]
    assert world.fsck("other") == []


def test_the_schedule_knows_where_its_run_is_after_a_move(world: StoreCalls) -> None:
    """Else its next run would not wait for it."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s")))
    item = world.item("s")
    world.run(world.fire_call(term, item))
    move(world)
    assert world.raw.hget(world.keys.schedule_live, "s") == f"other {item.run.run_id}".encode()
    assert cancel(world, item.run.run_id)[0].queue == "other"
    assert not world.raw.exists(world.keys.schedule_live)


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_run_whose_id_the_target_has_stays(world: StoreCalls, delay_ms: int) -> None:
    """An id names one run in a queue."""
    world.enqueue(envelope("a"), envelope("b"), delays_ms=[delay_ms, delay_ms])
    world.enqueue(envelope("a", queue="other"))
    part = "later" if delay_ms else READY
    assert move(world, part) == Moved(2, 1, 1)
    assert move(world, part) == Moved(1, 0, 1)
    assert move(world, part, offset=1) == (Moved(0, 0, 0) if delay_ms else Moved(1, 0, 1))
    assert world.fsck() == world.fsck("other") == []
    assert world.state("a") != "unknown"


# One run ----------------------------------------------------------------------------------------


def test_a_delayed_run_starts_now(world: StoreCalls) -> None:
    """A retry goes to the head, as when its time had come."""
    everywhere(world)
    ids = ["later", "retrying", "running", "dead", "blocked", "suspect", "ready1", "none"]
    found = world.run(control(world).hasten([("", run_id) for run_id in ids]))
    assert [each.place for each in found] == [*("later", "later", "running", "dead", "blocked", "suspect", "ready", "")]
    assert world.fsck() == []
    assert world.fetch(S, want=20) == ["ready0", "retrying", "ready1", "later", "ready2"]
    again = world.run(control(world).hasten([("default", "later")]))
    assert again == [Placed("default", "running")]


def test_a_run_that_asked_to_run_again_starts_now_behind_those_that_wait(world: StoreCalls) -> None:
    """As when its time had come: it may wait for one of them."""
    world.open(S)
    world.enqueue(envelope("asks"))
    assert world.fetch(S) == ["asks"]
    world.ack(S, "asks", Outcome.AGAIN, retry_delay_ms=60_000)
    world.enqueue(envelope("awaited"))
    assert world.run(control(world).hasten([("", "asks")])) == [Placed("default", "later")]
    assert world.fetch(S) == ["awaited", "asks"]
    assert world.fsck() == []


def test_a_priority_is_changed_back_and_forth_and_the_run_runs_once(world: StoreCalls) -> None:
    """Each change leaves a stale entry behind; none may be taken for the run."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    for priority, former in ((0, 1), (1, 0), (0, 1), (2, 0), (2, 2)):
        assert world.run(control(world).set_priority([("", "a")], priority)) == [Placed("default", "ready", former)]
        assert world.fsck() == []
    assert world.run(world.queues.counts("default")).ready_total == 2
    assert world.fetch(S) == ["b", "a"]
    assert world.fetch(S) == []
    assert world.turn(S).runs == []
    assert world.raw.exists(f"{world.keys.queue('default').prefix}stale") == 0
    assert world.fsck() == []


def test_a_priority_holds_from_the_next_time_the_run_is_ready(world: StoreCalls) -> None:
    """It may be delayed, run, wait for a slot, or be dead."""
    everywhere(world)
    ids = ["later", "retrying", "running", "blocked", "dead", "suspect"]
    found = world.run(control(world).set_priority([("", run_id) for run_id in ids], 0))
    assert [each.place for each in found] == ["later", "later", "running", "blocked", "dead", "suspect"]
    for run_id in ids:
        assert world.run(world.queues.show(run_id)).envelope.template.priority == 0
    assert world.fsck() == []


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("queue_purge", ["default", "data", "", "0", "5", "10", ""]),
        ("queue_purge", ["default", READY, "", "-1", "5", "10", ""]),
        ("queue_purge", ["default", READY, "", "0", "101", "10", ""]),
        ("queue_move", ["default", "default", READY, "5", "0"]),
        ("queue_move", ["default", "other", "run", "5", "0"]),
        ("queue_priority", ["3", "", "a", ""]),
        ("queue_hasten", ["default"]),
        ("queue_cancel", ["10", "0", "", "ab", "default"]),
        ("queue_cancel", ["10", "0", "", "no nonce", "default", "a", ""]),
        ("queue_dead_requeue", ["default", "-1", "10", "", "", "a"]),
        ("queue_dead_drop", ["default", "x", "", "", "a"]),
        ("queue_fsck_run", ["default", "2", "10", "all", "a"]),
        ("queue_fsck_page", ["default", "data", "0", "0"]),
        ("queue_fsck_shared", ["none", "", "0", "0"]),
    ],
)
def test_wrong_arguments_change_nothing(world: StoreCalls, script: str, wrong: list[str]) -> None:
    """They are refused before the first write."""
    world.enqueue(envelope("a"))
    before = {key: world.raw.dump(key) for key in world.raw.keys("*q:default*")}
    with pytest.raises(StoreRefusedError, match="BADARG"):
        world.run(Call(script, (world.keys.prefix,), tuple(wrong), lambda reply: reply))
    assert {key: world.raw.dump(key) for key in world.raw.keys("*q:default*")} == before
