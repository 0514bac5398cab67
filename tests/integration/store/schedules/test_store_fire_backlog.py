"""What a fire does about earlier runs: those that wait give way to newer ones, and a backlog costs nothing."""

from __future__ import annotations

import pytest

from supervisor.core.model import Outcome
from supervisor.store.schedules.reads import ScheduleState
from supervisor.store.wire.fire import DuePage, FireCode, What
from tests.kit.builders import StoreCalls, envelope, schedule

S = "r.1/w-0/1"
BACKLOG = [f"s@{number}" for number in range(1, 2001)]


@pytest.mark.parametrize("overlap", ["cancel_other", "terminate_other"])
def test_a_newer_run_that_need_not_wait_takes_the_place_of_what_waits(world: StoreCalls, overlap: str) -> None:
    """Else the older one would wait on, and in the end have the newer one stopped by force."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap=overlap, cancel_grace_ms=1)))
    world.planned()
    world.open(S)
    first = world.item("s")
    world.run(world.fire_call(term, first))
    world.fetch(S)
    second = world.item("s", overlap="cancel_other")
    assert world.run(world.fire_call(term, second)).results[0].code is FireCode.BUFFERED
    world.ack(S, first.run.run_id, Outcome.REPLACED, schedule="s")
    third = world.item("s")
    assert world.run(world.fire_call(term, third)).results[0].code is FireCode.FIRED

    assert world.fetch(S) == [third.run.run_id]
    for what in (What.START, What.FORCE):
        assert world.run(world.fire_call(term, second._replace(what=what))).results[0].code is FireCode.DUP
    assert world.raw.hexists(world.keys.queue("default").run, third.run.run_id)
    counters = world.run(world.schedules.state("s")).counters
    assert (counters.fired, counters.replaced, counters.waiting, counters.force_ms) == (2, 1, 0, 0)


def test_a_run_that_gives_way_takes_nothing_from_a_long_history(world: StoreCalls) -> None:
    """The leader does not know how much a queue remembers; what was beyond its own number was gone for good."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap="cancel_other")))
    world.planned()
    hist = world.keys.queue("default").hist
    world.raw.rpush(hist, *["an-ended-run"] * 10_200)
    for _ in range(2):
        fired = world.run(world.fire_call(term, world.item("s", overlap="cancel_other")))
        assert fired.results[0].code is FireCode.FIRED

    assert world.run(world.schedules.state("s")).counters.replaced == 1
    assert world.raw.llen(hist) == 10_201


def test_failures_of_runs_that_may_overlap_are_counted_without_a_list_of_them(world: StoreCalls) -> None:
    """However many are unfinished, a fire and the end of a run cost the same; a success begins the count anew."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap="allow", pause_after_failures=2)))
    world.planned()
    world.open(S)
    outcomes = (Outcome.DEAD, Outcome.OK, Outcome.DEAD, Outcome.DEAD)
    for _ in outcomes:
        world.run(world.fire_call(term, world.item("s", wait="F2")))
    assert not world.raw.exists(world.keys.schedule_live)
    failed = []
    for run_id, outcome in zip(world.fetch(S), outcomes, strict=True):
        world.ack(S, run_id, outcome, schedule="s")
        state: ScheduleState = world.run(world.schedules.state("s"))
        failed.append(state.counters.failed)
        is_asked = (world.raw.zscore(world.keys.schedule_next, "s") or 0) <= 0
        assert is_asked is (failed[-1] >= 2)

    assert failed == [1, 0, 1, 2]


def test_a_backlog_of_runs_that_may_overlap_is_neither_checked_nor_kept_whole(world: StoreCalls) -> None:
    """The latest hundred are enough to know when the last one ended; what nobody ends leaves the list in time."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s", overlap="allow")))
    world.planned()
    world.open(S)
    world.raw.hset(world.keys.schedule_live, "s", "\n".join(f"default {run_id}" for run_id in BACKLOG))
    item = world.item("s", wait="c1000")
    world.run(world.fire_call(term, item))
    kept = world.raw.hget(world.keys.schedule_live, "s").decode().split("\n")

    assert kept == [*(f"default {run_id}" for run_id in BACKLOG[-99:]), f"default {item.run.run_id}"]
    world.fetch(S)
    world.ack(S, item.run.run_id, schedule="s")
    assert world.run(world.schedules.state("s")).counters.after_ms > 0
    call = world.schedules.due(DuePage(after_ms=0, until_ms=0, late_ms=0, limit=0), ids=["s"])
    assert world.run(call).seen[0].live == 0


def test_the_end_of_a_run_takes_its_own_line_out_of_thousands(world: StoreCalls) -> None:
    """Other ids begin like its own, or end like it; at the front, in the middle, at the end, and alone."""
    world.run(world.declare_call(world.lead(), schedule("s", max_running=100_000)))
    live, ids = world.keys.schedule_live, [f"s@{n}" for n in (1, 11, 111, 21, 2)]
    world.open("w")
    world.enqueue(*(envelope(run_id) for run_id in ids))
    world.fetch("w")
    crowd = [f"default s@{n}" for n in range(10_000, 30_000)]
    world.raw.hset(live, "s", "\n".join([*(f"default {run_id}" for run_id in ids[:4]), *crowd, "default s@2"]))
    for n, run_id in enumerate(ids, 1):
        world.ack("w", run_id, schedule="s")
        left = [f"default {other}" for other in ids[n:4]] + crowd + ["default s@2"] * (n < 5)
        assert world.raw.hget(live, "s") == "\n".join(left).encode()

    world.enqueue(envelope("s@7"))
    world.fetch("w")
    world.raw.hset(live, "s", "default s@7")
    world.ack("w", "s@7", schedule="s")
    assert not world.raw.hexists(live, "s")
