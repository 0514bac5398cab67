"""Reading and writing the plan: pages, requests, and plans that are compared with what they were made from."""

from __future__ import annotations

import pytest

from supervisor.core.errors import FencedError
from supervisor.store.election.leases import LeaseView
from supervisor.store.schedules.definitions import Definitions
from supervisor.store.schedules.fire import PlanCode, PlanItem, Seed
from supervisor.store.schedules.reads import ScheduleState
from supervisor.store.wire.fire import Counters, DuePage, FireCode, Seen, What
from tests.kit.builders import StoreCalls, schedule
from tests.kit.servers import on_both

OTHER = "cd" * 16
S = "r.1/w-0/1"


@pytest.fixture
def term(world: StoreCalls) -> LeaseView:
    """The current term, with three schedules that were never looked at."""
    term = world.lead()
    names = ("a", "b", "c")
    world.run(world.declare_call(term, *(schedule(name, overlap="buffer_all") for name in names)))
    return term


def see(world: StoreCalls, *ids: str) -> list[Seen]:
    call = world.schedules.due(DuePage(after_ms=0, until_ms=0, late_ms=0, limit=0), ids=ids)
    return list(world.run(call).seen)


def plan(world: StoreCalls, term: LeaseView, *items: PlanItem) -> list[PlanCode]:
    return list(world.run(world.schedules.plan(term, items=items)))


def score(world: StoreCalls, name: str) -> float | None:
    return world.raw.zscore(world.keys.schedule_next, name)


def test_what_is_on_time_comes_first_then_requests_then_late_ones(world: StoreCalls, term: LeaseView) -> None:
    """Late ones oldest first; what is due later tells when to look again."""
    world.raw.zadd(world.keys.schedule_next, {"a": 0, "b": 500, "c": 5000, "old": 400, "far": 90_000})
    reply = world.run(
        world.schedules.due(DuePage(after_ms=1000, until_ms=6000, late_ms=1000, asked=9, late=9, overdue_ms=450))
    )

    assert [seen.schedule for seen in reply.seen] == ["c", "a", "old", "b"]
    assert (reply.next_ms, reply.overdue, reply.defined, reply.planned) == (90_000, 1, 3, 5)
    assert reply.seen[2].revision is None
    assert reply.seen[0].revision == 1
    assert term.nonce


def test_neither_a_pause_nor_a_schedule_ends_before_its_time_by_the_servers_clock(
    world: StoreCalls, term: LeaseView
) -> None:
    """The caller's may be hours ahead."""
    now_ms = world.run(world.leases.view()).now_ms
    world.raw.hset(world.keys.schedule_paused, "a", f'{{"until_ms":{now_ms + 60_000}}}')
    world.raw.hset(world.keys.schedule_paused, "b", f'{{"until_ms":{now_ms}}}')
    a, b, c = see(world, "a", "b", "c")
    ended = [PlanItem(each, now_ms, new_mark_ms=now_ms, set_pause="-") for each in (a, b)]
    kept = PlanItem(c, now_ms + 60_000, completed="-")

    assert plan(world, term, *ended, kept) == [PlanCode.SKEWED, PlanCode.PLANNED, PlanCode.SKEWED]
    assert world.raw.hkeys(world.keys.schedule_paused) == [b"a"]
    assert set(world.stored()) == {"a", "b", "c"}
    assert plan(world, term, kept._replace(next_ms=now_ms)) == [PlanCode.PLANNED]
    assert set(world.stored()) == {"a", "b"}


def test_pages_of_one_instant_neither_repeat_nor_leave_out(world: StoreCalls, term: LeaseView) -> None:
    """Ten thousand may be due at the same millisecond."""
    names = [f"n{i:02}" for i in range(25)]
    world.raw.zadd(world.keys.schedule_next, dict.fromkeys(names, 7000) | {"later": 7001})
    found: list[str] = []
    after = ("6999", "")
    while True:
        call = world.schedules.due(
            DuePage(after_ms=int(after[0]), after_id=after[1], until_ms=7000, late_ms=0, limit=10)
        )
        reply = world.run(call)
        found += [seen.schedule for seen in reply.seen]
        if not reply.is_full:
            break
        after = ("7000", found[-1])

    assert found == names
    assert reply.next_ms == 7001
    assert term.nonce


def test_a_page_goes_on_although_its_last_schedule_has_moved(world: StoreCalls, term: LeaseView) -> None:
    """It was fired meanwhile; the others at its time are read again rather than left out."""
    world.raw.zadd(world.keys.schedule_next, {"x": 7000, "y": 7000, "z": 9000})
    reply = world.run(world.schedules.due(DuePage(after_ms=7000, after_id="gone", until_ms=9000, late_ms=0)))

    assert {seen.schedule for seen in reply.seen} >= {"x", "y", "z"}
    assert term.nonce


@on_both("schedule_plan")
def test_a_plan_is_written_where_nothing_changed(world: StoreCalls, term: LeaseView) -> None:
    """Twice is as good as once: the second finds what the first wrote."""
    (seen,) = see(world, "a")
    item = PlanItem(seen, 99_000, wait="f2")
    assert plan(world, term, item) == [PlanCode.PLANNED]

    assert score(world, "a") == 99_000
    assert world.raw.hget(world.keys.schedule_wait, "a") == b"f2"
    assert plan(world, term, item) == [PlanCode.MOVED]


@pytest.mark.parametrize(
    ("change", "code"),
    [("request", "MOVED"), ("mark", "DUP"), ("pause", "STALE"), ("edit", "STALE"), ("delete", "GONE")],
)
def test_a_plan_made_from_what_has_changed_writes_nothing(
    world: StoreCalls, term: LeaseView, change: str, code: str
) -> None:
    """Whoever changed it asked to look again, and that request must stay."""
    (seen,) = see(world, "a")
    if change == "request":
        world.raw.zadd(world.keys.schedule_next, {"a": -5})
    elif change == "mark":
        world.raw.hset(world.keys.schedule_mark, "a", seen.mark_ms + 1)
    elif change == "pause":
        world.raw.hset(world.keys.schedule_paused, "a", "{}")
    elif change == "edit":
        world.raw.hset(world.keys.schedule_def, "a", "2\nab\nd1\n{}")
    else:
        world.raw.hdel(world.keys.schedule_def, "a")
    before = score(world, "a")

    assert plan(world, term, PlanItem(seen, 99_000)) == [PlanCode(code)]
    assert score(world, "a") == (None if change == "delete" else before)


def test_only_the_current_term_plans_and_seeds(world: StoreCalls, term: LeaseView) -> None:
    """A stale leader's plan must not undo its successor's."""
    (seen,) = see(world, "a")
    world.lead("b", OTHER, mode="expired", observed_epoch=term.epoch)

    with pytest.raises(FencedError):
        plan(world, term, PlanItem(seen, 99_000))
    with pytest.raises(FencedError):
        world.run(world.schedules.seed(term, seeds=[Seed("x", 5, 0)]))
    assert see(world, "a") == [seen]


def test_a_watermark_is_never_planned_into_the_future(world: StoreCalls, term: LeaseView) -> None:
    """The caller's clock may be ahead; the server's decides."""
    (seen,) = see(world, "a")
    plan(world, term, PlanItem(seen, 1, new_mark_ms=seen.mark_ms + 10**9))

    assert see(world, "a")[0].mark_ms < seen.mark_ms + 10**6


def test_nothing_is_seeded_once_a_leader_has_declared_schedules(world: StoreCalls, term: LeaseView) -> None:
    """What has no watermark then is new, and owes nothing for the time before."""
    world.run(Definitions(world.keys).begin(term, digest="other", lease_ms=5000))
    seeded = world.run(world.schedules.seed(term, seeds=[Seed("new", 7, 2)]))

    assert seeded == (0, 0, True)
    assert world.raw.hget(world.keys.schedule_mark, "new") is None


@on_both("schedule_due", "schedule_log", "schedule_seed")
def test_seeds_are_written_only_where_there_is_nothing(world: StoreCalls, term: LeaseView) -> None:
    """After a partial roll-back the server's watermark decides."""
    (seen,) = see(world, "a")
    seeds = [Seed("a", 5, 3), Seed("new", 7, 2), Seed("ahead", 10**14, 0)]
    seeded = world.run(world.schedules.seed(term, seeds=seeds))

    assert seeded == (2, 2, False)
    assert see(world, "a")[0].mark_ms == seen.mark_ms
    assert world.raw.hget(world.keys.schedule_mark, "new") == b"7"
    assert int(world.raw.hget(world.keys.schedule_mark, "ahead") or 0) < 10**14, "never later than the server's now"
    (lost,) = [entry for entry in world.run(world.schedules.log(10)) if entry.code is FireCode.MISSED]
    assert (lost.schedule, lost.nominal_ms, lost.missed) == ("new", 7, 2)


@on_both("schedule_audit")
def test_schedules_in_no_plan_are_found(world: StoreCalls, term: LeaseView) -> None:
    """Unless they are paused or completed."""
    world.raw.delete(world.keys.schedule_next)
    world.raw.hset(world.keys.schedule_paused, "b", "{}")
    world.raw.hset(world.keys.schedule_state, "c", "0 0 0 0 0 0 0 0 0 0 77 0")

    assert world.run(world.schedules.audit()) == ("0", ["a"])
    assert term.nonce


def test_the_end_of_a_run_asks_to_look_where_something_waits(world: StoreCalls, term: LeaseView) -> None:
    """And tells the listener; a fire in between does not silence it."""
    world.open(S)
    first, second = world.item("a"), None
    world.run(world.fire_call(term, first))
    second = world.item("a")
    assert world.run(world.fire_call(term, second)).results[0].code is FireCode.BUFFERED
    (seen,) = see(world, "a")
    assert seen.waiting == (second.nominal_ms,)
    world.fetch(S)
    world.ack(S, first.run.run_id, schedule="a")

    asked = score(world, "a")
    assert asked is not None
    assert asked < 0
    assert world.raw.xlen(world.keys.schedule_changes) > 0
    start = second._replace(what=What.START)
    assert world.run(world.fire_call(term, start)).results[0].code is FireCode.FIRED
    assert score(world, "a") == asked
    assert world.run(world.fire_call(term, start)).results[0].code is FireCode.DUP
    assert world.fsck() == []


def test_decisions_are_kept_as_stretches(world: StoreCalls, term: LeaseView) -> None:
    """Like ones become one; only what is different costs a line, and twenty are kept."""
    for _ in range(3):
        world.run(world.fire_call(term, world.item("a", overlap="allow")))
    item = world.item("a", overlap="allow", missed=4, why="p")
    world.run(world.fire_call(term, item))
    state: ScheduleState = world.run(world.schedules.state("a"))

    assert [(each.code, each.count, each.reasons) for each in state.stretches] == [
        ("F", 1, ()),
        ("M", 4, ("policy",)),
        ("F", 3, ()),
    ]
    assert (state.counters.fired, state.counters.missed) == (4, 4)
    assert state.enqueued(item.nominal_ms)
    assert not state.enqueued(item.nominal_ms + 1)
    for number in range(60):
        world.run(world.fire_call(term, world.item("a", overlap="allow", missed=number % 2, why="c")))
    assert len(world.run(world.schedules.state("a")).stretches) == 20


@pytest.mark.parametrize("what", ["unfinished", "waiting"])
def test_a_completed_schedule_is_not_deleted_while_a_run_of_it_is_left(
    world: StoreCalls, term: LeaseView, what: str
) -> None:
    """However long that takes: what waits would be lost, and its overlap forgotten. Its revisions go on afterwards."""
    if what == "waiting":
        world.raw.rpush(world.keys.schedule_buffer("a"), 7)
    else:
        world.run(world.fire_call(term, world.item("a")))
    [seen] = see(world, "a")
    assert plan(world, term, PlanItem(seen, None, completed="-")) == [PlanCode.PLANNED]
    assert see(world, "a")[0].revision == 1
    world.raw.delete(world.keys.schedule_buffer("a"), world.keys.queue("default").data)
    [seen] = see(world, "a")
    assert seen.score is not None
    assert seen.score > 0
    assert plan(world, term, PlanItem(seen, None, completed="-")) == [PlanCode.PLANNED]
    assert see(world, "a")[0].revision is None
    assert not world.raw.hexists(world.keys.schedule_live, "a")
    world.run(world.declare_call(term, schedule("a")))

    assert (see(world, "a")[0].revision, see(world, "a")[0].state) == (2, b"")


@pytest.mark.parametrize("packed", [b"", b"x", b"1 2", b"1 2 3 4 5 6 7 8 9 10 11 x\nQ"])
def test_a_state_that_cannot_be_read_is_no_state(packed: bytes) -> None:
    """Another version may have written it."""
    assert ScheduleState.parse(packed) == ScheduleState(Counters(), ())


def test_a_counter_that_no_version_writes_is_put_right(world: StoreCalls, term: LeaseView) -> None:
    """The leader reads no counters there, and has the initial run decided: it must learn that there was one."""
    world.raw.hset(world.keys.schedule_state, "a", "9999999999999999 0 0 0 0 0 0 0 0 0 0 1")
    (seen,) = see(world, "a")
    assert seen.counters.initial == 0
    initial = world.item("a", what=What.INITIAL)
    assert world.run(world.fire_call(term, initial)).results[0].code is FireCode.DUP

    (seen,) = see(world, "a")
    assert seen.counters == Counters(initial=1)


def test_a_paused_schedule_is_not_fired(world: StoreCalls, term: LeaseView) -> None:
    """However its due time came into the window."""
    item = world.item("a")
    world.raw.hset(world.keys.schedule_paused, "a", "{}")

    assert world.run(world.fire_call(term, item)).results[0].code is FireCode.PAUSED
    assert see(world, "a")[0].mark_ms == item.mark_ms


@on_both("schedule_read")
def test_a_schedule_with_all_its_runs_is_completed_and_leaves_the_plan(world: StoreCalls, term: LeaseView) -> None:
    """With the last of them, in the same step."""
    world.raw.zadd(world.keys.schedule_next, {"a": 5000})
    world.run(world.fire_call(term, world.item("a", max_runs=1)))
    assert score(world, "a") is None
    assert world.run(world.schedules.state("a")).counters.completed_ms > 0
    again = world.run(world.fire_call(term, world.item("a", max_runs=1)))

    assert again.results[0].code is FireCode.COMPLETED
    assert world.run(world.queues.counts("default")).stats["in"] == 1


@pytest.mark.parametrize("foreign", [0.5, -0.5, 1_769_900_000_000.5, 1e300, -1e300])
def test_a_place_that_no_leader_writes_is_planned_anew(world: StoreCalls, term: LeaseView, foreign: float) -> None:
    """The leader reads whole milliseconds of the years that calendars have, and what it read so has not moved."""
    world.raw.zadd(world.keys.schedule_next, {"a": foreign})
    (seen,) = see(world, "a")
    assert plan(world, term, PlanItem(seen, 1000), PlanItem(seen, 2000)) == [PlanCode.PLANNED, PlanCode.MOVED]
    assert score(world, "a") == 1000


def test_numbers_with_zeros_in_front_are_planned_and_fired(world: StoreCalls, term: LeaseView) -> None:
    """Whoever reads them takes them for numbers: refused as others, they would be read and planned without end."""
    keys, raw = world.keys, world.raw
    for key in (keys.schedule_mark, keys.schedule_def):
        raw.hset(key, "a", b"00" + raw.hget(key, "a"))
    (seen,) = see(world, "a")
    assert plan(world, term, PlanItem(seen, 1)) == [PlanCode.PLANNED]
    due = world.item("a", overlap="allow")
    assert world.run(world.fire_call(term, due)).results[0].code is FireCode.FIRED

    raw.rpush(keys.schedule_buffer("a"), f"00{due.nominal_ms + 1}")
    waiting = world.item("a", overlap="allow", nominal_ms=due.nominal_ms + 1, what=What.START)
    assert world.run(world.fire_call(term, waiting)).results[0].code is FireCode.FIRED
    assert raw.llen(keys.schedule_buffer("a")) == 0
