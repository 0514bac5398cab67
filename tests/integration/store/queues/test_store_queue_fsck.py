"""Each invariant of a queue, broken by hand: found, mended without loss, and clean afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.effects import Call, drive
from supervisor.core.model import Kind, Outcome, Release
from supervisor.operations.queues import verify
from supervisor.store.queues import fsck
from supervisor.store.queues.fsck import FsckFinding
from tests.integration.store.queues.control_calls import READY, cancel
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import on_both

S = "r.1/worker-io-0/1"
LIMITED = {"concurrency": "k", "concurrency_max": 1}
KEY = "tests.noop:k"


class Queue:
    """One queue with a run in each place, and a hand in it."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.keys = world.keys.queue("default")
        self.raw = world.raw
        world.open(S)
        world.enqueue(*(envelope(name) for name in ("retrying", "suspect", "dead")))
        world.enqueue(envelope("running", **LIMITED), envelope("blocked", **LIMITED))
        world.fetch(S)
        world.ack(S, "retrying", Outcome.RETRY, retry_delay_ms=60_000, error={"reason": "x"})
        world.ack(S, "dead", Outcome.DEAD)
        world.run(world.queues.release_runs(session=S, items=[("default", "suspect", Release.SUSPECT)]))
        world.enqueue(
            envelope("unique", unique="u"), envelope("gone"), envelope("ready"), envelope("once", at_most_once=True)
        )
        cancel(world, "gone")

    def part(self, name: str) -> str:
        """Return a key of the queue."""
        return f"{self.keys.prefix}{name}"

    def check(self, *, is_mending: bool = False) -> list[FsckFinding]:
        """Verify everything."""
        return drive(verify(self.world.keys, ["default"], is_mending=is_mending), self.world.run)


@pytest.fixture
def queue(world: StoreCalls) -> Queue:
    """A queue in which nothing is wrong."""
    queue = Queue(world)
    assert queue.check() == []
    assert world.fsck() == []
    return queue


def lose(queue: Queue) -> None:
    """Take a run out of its list."""
    queue.raw.lrem(queue.part(READY), 0, "ready")


def lose_once(queue: Queue) -> None:
    """The same of one that must not run twice."""
    queue.raw.lrem(queue.part(READY), 0, "once")


def double(queue: Queue) -> None:
    """Put a run into its list twice more."""
    queue.raw.rpush(queue.part(READY), "ready", "ready")


def misplace(queue: Queue) -> None:
    """Put a run into the list of another priority and kind."""
    lose(queue)
    queue.raw.rpush(queue.part("ready:s:2"), "ready")


def scatter(queue: Queue) -> None:
    """Put a running run into every other place too."""
    queue.raw.rpush(queue.part(READY), "running")
    queue.raw.zadd(queue.keys.later, {"running": 5})
    queue.raw.zadd(queue.keys.dead, {"running": 5})
    queue.raw.rpush(queue.part("suspect:a"), "running")


def revive(queue: Queue) -> None:
    """Let a dead run wait as well."""
    queue.raw.lpush(queue.part(READY), "dead")


def forget_session(queue: Queue) -> None:
    """Let a session vanish that holds runs."""
    queue.raw.hdel(queue.world.keys.sessions, S)


def garble_fence(queue: Queue) -> None:
    """Write a fence that nobody can read."""
    queue.raw.hset(queue.keys.run, "running", "?")


def garble_charges(queue: Queue) -> None:
    """Write charges that nobody can read."""
    queue.raw.hset(queue.keys.att, "ready", "many")


def garble_data(queue: Queue) -> None:
    """Write data that nobody can route."""
    queue.raw.hset(queue.keys.data, "ready", "?!")


def drop_data(queue: Queue) -> None:
    """Take the data of a dead run."""
    queue.raw.hdel(queue.keys.data, "dead")


def leave_remains(queue: Queue) -> None:
    """Leave charges, an error and limits of runs that are over."""
    queue.raw.hset(queue.keys.att, "over", "1,0,0")
    queue.raw.hset(queue.keys.err, "over", "{}")
    queue.raw.hset(queue.part("limits"), "over", "[uz]")
    queue.raw.hset(queue.part("blocked"), "over", KEY)


def overcount(queue: Queue) -> None:
    """Count entries as stale that are not there: the run would be skipped for ever."""
    queue.raw.hset(queue.part("stale"), f"{READY} ready", 2)
    queue.raw.hset(queue.part("stale"), "ready:s:0 ready", 1)


def spoil_counter(queue: Queue) -> None:
    """Write a counter that is no number."""
    queue.raw.hset(queue.keys.stat, "in", "many")


def leak_slot(queue: Queue) -> None:
    """Let a slot be held by a run that does not run."""
    queue.raw.sadd(f"{queue.world.keys.prefix}limit:c:{KEY}", "default ready", "elsewhere x")


def lose_slot(queue: Queue) -> None:
    """Take the slot of a run that runs."""
    queue.raw.delete(f"{queue.world.keys.prefix}limit:c:{KEY}")


def leak_unique(queue: Queue) -> None:
    """Let unique keys be held by nobody, and by somebody else."""
    queue.raw.hset(f"{queue.world.keys.prefix}limit:u", mapping={"tests.noop:z": "default over", "y": "?"})


def lose_unique(queue: Queue) -> None:
    """Take the unique key of a run, and what is written down of it."""
    queue.raw.delete(f"{queue.world.keys.prefix}limit:u", queue.part("limits"))
    queue.raw.srem(f"{queue.world.keys.prefix}limit:c:{KEY}", "default running")


def lose_waiter(queue: Queue) -> None:
    """Take a blocked run out of the list of those that wait."""
    queue.raw.delete(queue.part(f"wait:{KEY}"))


def lose_block(queue: Queue) -> None:
    """Take what says that a run is blocked."""
    queue.raw.hdel(queue.part("blocked"), "blocked")


def haunt_schedule(queue: Queue) -> None:
    """Let a schedule wait for a run that is over."""
    queue.raw.hset(queue.world.keys.schedule_live, "s", "default s@1")


BROKEN: list[tuple[Callable[[Queue], None], set[str]]] = [
    (lose, {"ready: in no place: it would never run"}),
    (lose_once, {"once: in no place: it would never run"}),
    (double, {"ready: in several places: ready:a:1 3 times"}),
    (misplace, {"ready: in ready:s:2, but its data says ready:a:1"}),
    (scatter, {"running: in several places: dead and later and ready:a:1 and running and suspect:a"}),
    (revive, {"dead: in several places: dead and ready:a:1"}),
    (forget_session, {f"running: runs in session {S}, which is neither open nor dying"}),
    (garble_fence, {"running: its fence cannot be read"}),
    (garble_charges, {"ready: its charges cannot be read"}),
    (garble_data, {"ready: its data cannot be read"}),
    (drop_data, {"dead: dead without data", "dead: charged without data"}),
    (
        leave_remains,
        {f"over: {what} without data" for what in ("blocked", "charged", "an error", "limits")},
    ),
    (
        overcount,
        {
            "ready: counted as stale in ready:a:1 1 times too often",
            "ready: counted as stale in ready:s:0 1 times too often",
            "ready: in no place: it would never run",
        },
    ),
    (spoil_counter, {"counter in: is no number"}),
    (
        leak_slot,
        {
            f"concurrency key {KEY}: a slot is held by default ready, which does not run",
            f"concurrency key {KEY}: a slot is held by elsewhere x, which does not run",
        },
    ),
    (lose_slot, {f"running: runs without a slot of {KEY}"}),
    (
        leak_unique,
        {
            "unique key tests.noop:z: held by default over, which is over",
            "unique key y: held by ?, which is over",
        },
    ),
    (
        lose_unique,
        {
            *(f"{run_id}: its limits are not written down" for run_id in ("unique", "running", "blocked")),
            f"running: runs without a slot of {KEY}",
        },
    ),
    (lose_waiter, {f"blocked: blocked, and in no list of those that wait for {KEY}"}),
    (lose_block, {"blocked: in no place: it would never run"}),
    (haunt_schedule, {"schedule s: waits for default s@1, which is over"}),
]


@pytest.mark.parametrize(("breaking", "expected"), BROKEN, ids=[breaking.__name__ for breaking, _ in BROKEN])
def test_what_is_broken_is_found_and_mended(
    queue: Queue, breaking: Callable[[Queue], None], expected: set[str]
) -> None:
    """Looking changes nothing; mending leaves nothing to find, and no run lost."""
    data = queue.raw.hgetall(queue.keys.data)
    breaking(queue)
    before = {key: queue.raw.dump(key) for key in queue.raw.keys(f"{queue.world.keys.prefix}*")}

    found = queue.check()
    assert {f"{fault.what}: {fault.problem}" for fault in found} == expected
    assert all(not fault.remedy for fault in found)
    assert {key: queue.raw.dump(key) for key in queue.raw.keys(f"{queue.world.keys.prefix}*")} == before

    mended = queue.check(is_mending=True)
    assert {f"{fault.what}: {fault.problem}" for fault in mended} >= expected
    assert all(fault.remedy for fault in mended), mended
    assert queue.check() == []
    assert queue.world.fsck() == []
    lost = set(data) - set(queue.raw.hgetall(queue.keys.data)) - ({b"dead"} if breaking is drop_data else set())
    assert lost == set()


@on_both("queue_fsck_stat")
def test_a_mended_queue_runs_each_of_its_runs_once(queue: Queue) -> None:
    """All that was broken at once, short of what makes runs unreadable."""
    world = queue.world
    for breaking in (double, scatter, revive, leave_remains, overcount, leak_slot, leak_unique, lose_waiter):
        breaking(queue)
    spoil_counter(queue)
    queue.check(is_mending=True)
    assert queue.check() == []
    world.make_due("retrying")
    fetched = world.fetch(S, want=50)
    fetched += world.fetch(S, want_suspect=True, want=1)
    assert sorted(fetched) == ["dead", "once", "ready", "retrying", "suspect", "unique"]
    world.ack(S, "running")
    assert world.fetch(S) == ["blocked"]


def test_what_must_not_run_twice_is_given_up_when_it_was_lost(queue: Queue) -> None:
    """Nobody knows whether it began."""
    lose_once(queue)
    queue.check(is_mending=True)
    assert queue.world.state("once") == "dead"
    assert queue.world.run(queue.world.queues.show("once")).error["reason"] == "lost"


@pytest.mark.parametrize("is_long", [False, True])
def test_what_comes_and_goes_while_the_pages_are_read_is_no_fault(
    world: StoreCalls, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    """Between any two pages runs are fetched, end, fail, come and are cancelled. Long lists are read more than once."""
    monkeypatch.setattr(fsck, "PAGE", 5)
    if is_long:
        monkeypatch.setattr(fsck, "SHORT_ENTRIES", 0)
        monkeypatch.setattr(fsck, "SUSPECTS_MAX", 0)
    world.open(S)
    world.enqueue(*(envelope(f"first{n}", priority=n % 3) for n in range(40)))
    number = 0

    def meanwhile(call: Call[Any]) -> Any:
        nonlocal number
        number += 1
        if number > 35:  # else it would never see the end of what comes
            return world.run(call)
        world.enqueue(envelope(f"n{number}"), envelope(f"l{number}", **LIMITED), envelope(f"c{number}"))
        world.enqueue(envelope(f"d{number}"), delays_ms=[number % 2])
        cancel(world, f"c{number}")
        for n, run_id in enumerate(world.fetch(S, want=3)):
            attempt = world.run(world.queues.show(run_id)).attempts + 1
            retries = n == 0 and attempt < 3
            world.ack(S, run_id, Outcome.RETRY if retries else Outcome.OK, attempt=attempt, retry_delay_ms=1)
        return world.run(call)

    assert drive(verify(world.keys, ["default"]), meanwhile) == []
    assert number > 30
    assert world.fsck() == []


def test_a_long_list_is_compared_within_bounds(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks through whole lists for each run that looks wrong, so few are asked for at once."""
    monkeypatch.setattr(fsck, "SCAN_ENTRIES_MAX", 1)
    queue.world.enqueue(*(envelope(f"x{n}", kind=Kind.SYNC) for n in range(20)))
    queue.raw.delete(queue.part("ready:s:1"))
    sizes = []

    def counted(call: Call[Any]) -> Any:
        sizes.append(len(call.args) - 4 if call.script == "queue_fsck_run" and call.args[3] == "all" else 0)
        return queue.world.run(call)

    assert len(drive(verify(queue.world.keys, ["default"]), counted)) == 20
    assert max(sizes) == 1


@on_both("fire", "queue_fsck_page", "queue_fsck_shared")
def test_a_schedule_that_waits_for_a_living_run_is_left_alone(world: StoreCalls) -> None:
    """The list of unfinished runs is what overlap goes by."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s")))
    world.run(world.fire_call(term, world.item("s")))
    assert drive(verify(world.keys, ["default"], is_mending=True), world.run) == []
    assert world.raw.hexists(world.keys.schedule_live, "s")


@on_both("queue_fsck_run")
def test_an_argument_that_is_called_at_most_once_loses_no_run(world: StoreCalls) -> None:
    """Only its job says whether a run that was in no place may run again."""
    world.enqueue(envelope("a", args={"at_most_once": True}), envelope("b", at_most_once=True))
    world.raw.delete(world.keys.queue("default").ready(Kind.ASYNC, 1))
    drive(verify(world.keys, ["default"], is_mending=True), world.run)
    assert [world.state(run_id) for run_id in ("a", "b")] == ["queued", "dead"]


def test_a_slot_is_checked_where_no_run_waits_for_it(world: StoreCalls) -> None:
    """Its key is then known from the runs that hold one alone."""
    world.open(S)
    world.enqueue(envelope("running", **LIMITED))
    world.fetch(S)
    world.raw.sadd(f"{world.keys.prefix}limit:c:{KEY}", "default lost")

    found = drive(verify(world.keys, ["default"]), world.run)
    assert [fault.problem for fault in found] == ["a slot is held by default lost, which does not run"]
