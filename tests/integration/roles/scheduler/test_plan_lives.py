"""Ids that come again, names that change: nothing of a former life is taken for the present one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.schedules.definitions import Definitions, DeleteCode
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.envelope import unpack
from supervisor.testing.world import EPOCH_MS, S
from tests.integration.roles.scheduler.planned import FOR_HOURS, TEMPLATE, Planned, every, planned
from tests.integration.roles.scheduler.test_plan_following import after

HOUR = 3600
DAY_MS = 86_400_000


def delete(plan: Planned, *ids: str) -> None:
    for start in range(0, len(ids), 250):
        plan.run(Definitions(plan.keys).delete([(name, None) for name in ids[start : start + 250]]))


def pass_a_day(plan: Planned) -> None:
    """Let what is remembered of removed schedules be a day older, and be forgotten by later removals."""
    raw = plan.server.store.raw
    for name, memory in raw.hgetall(plan.keys.schedule_gone).items():
        at, rest = memory.split(b" ", 1)
        raw.hset(plan.keys.schedule_gone, name, b"%d %s" % (int(at) - DAY_MS - 1, rest))
    for _ in range(4):
        delete(plan, *[f"nobody-{n}" for n in range(100)])


def replace(plan: Planned, *definitions: ScheduleDef) -> None:
    """Deploy another configuration."""
    plan.leader.stop()
    plan.advance(1)
    plan.leader.definitions = definitions
    plan.leader.start()


@pytest.mark.long
def test_a_leader_that_heard_of_no_removal_goes_by_the_new_definition() -> None:
    """More are removed than the stream of changes holds; of an id that comes again it fired the job of before."""
    new = Template(job="new.job", kind=Kind.SYNC)
    with planned(every(HOUR, "static")) as plan:
        names = [f"t{n}" for n in range(1100)]
        made = [every(60 if name == "t0" else HOUR, name, overlap="allow") for name in names]
        for start in range(0, len(made), 250):
            plan.upsert(*made[start : start + 250])
        plan.until(70)
        plan.leader.scheduler.pause(1 * S)
        delete(plan, *names)
        plan.world.executed()
        plan.advance(20)
        pass_a_day(plan)
        plan.upsert(every(20, "t0", overlap="allow", template=new))
        begun = plan.world.now_ns // S
        plan.advance(50)
        assert len([at for at in plan.fired("t0") if at > begun]) >= 2
        stored = plan.server.store.raw.hgetall(plan.keys.queue("default").data)
        jobs = {
            unpack(stored[f"t0@{EPOCH_MS + round(at * 1000)}".encode()]).template.job for at in plan.fired("t0")[1:]
        }
    assert jobs == {"new.job"}


def test_a_revision_that_redis_lost_and_gives_again_means_what_is_stored() -> None:
    """A fail-over that loses no renewal goes unnoticed by the election; the leader fired what was lost, for ever."""
    new = Template(job="new.job", kind=Kind.SYNC)
    with planned(every(HOUR, "static"), **FOR_HOURS) as plan:
        plan.until(20)
        copy = plan.server.snapshot()
        plan.upsert(every(10, "t", overlap="allow"))
        plan.server.restore(copy)
        plan.upsert(every(10, "t", overlap="allow", template=new))
        plan.advance(40)
        stored = plan.server.store.raw.hgetall(plan.keys.queue("default").data)
        jobs = {unpack(data).template.job for name, data in stored.items() if name.startswith(b"t@")}
        assert len(plan.server.granted) == 1
    assert jobs == {"new.job"}


@pytest.mark.parametrize("is_at_most_once", [False, True])
def test_what_waited_and_began_before_redis_went_back_says_so_when_it_begins_again(*, is_at_most_once: bool) -> None:
    """No watermark moves as a buffered run begins, so the leader noticed nothing of a fail-over that lost no renewal."""
    template = msgspec.structs.replace(TEMPLATE, at_most_once=is_at_most_once)
    with planned(every(10, overlap="buffer_one", template=template), **FOR_HOURS) as plan:
        plan.until(12)
        runs = plan.fetch()
        plan.until(22)
        assert plan.decided() == [("FIRED", 10), ("BUFFERED", 20)]
        copy = plan.server.snapshot()
        plan.end(*runs)
        assert plan.fired() == [10, 20]
        plan.server.restore(copy)
        plan.seq -= 1  # as Redis has it
        plan.end(*runs)
        plan.advance(1)
        assert plan.fired() == ([10, 20] if is_at_most_once else [10, 20, 20])
        stored = plan.server.store.raw.hget(plan.keys.queue("default").data, "s@1767225620000")
        assert is_at_most_once if stored is None else unpack(stored).maybe_duplicate
        counted = [told.fields["count"] for told in plan.world.history if told.event == "fires_doubtful"]
        assert counted == ([] if is_at_most_once else [1])
        assert len(plan.server.granted) == 1


def test_a_time_that_a_follower_runs_for_again_after_an_edit_costs_others_no_run() -> None:
    """It follows another schedule, which has the same time. The leader thought that Redis went back for all."""
    once = msgspec.structs.replace(TEMPLATE, at_most_once=True)
    others = [every(60, name, overlap="allow") for name in ("first", "second")]
    with planned(*others, every(60, "once", overlap="allow", template=once, jitter_ms=30_000), **FOR_HOURS) as plan:
        plan.upsert(after("first", "b"))
        plan.until(60.5)
        for source in plan.fetch():
            plan.upsert(after(source.split("@")[0], "b"))
            plan.end(source)
        plan.until(119)
        assert plan.fired("b") == [60, 60]
        assert plan.decided("once") == [("FIRED", 60)]


def test_a_configuration_that_redis_lost_is_brought_in_again_in_the_same_term() -> None:
    """A fail-over right after the deploy; no renewal is lost. Its schedules were silent for the rest of the term."""
    with planned(every(10, "former", overlap="allow"), lease_s=60.0) as plan:
        plan.until(20)
        copies: list[Any] = []

        def copy() -> None:
            if len(plan.server.granted) == 2 and not copies:
                copies.append(plan.server.snapshot())

        plan.world.on_executed.append(copy)
        replace(plan, every(10, "newer", overlap="allow"))
        plan.advance(1)
        assert plan.server.store.raw.hkeys(plan.keys.schedule_def) == [b"newer"]
        plan.server.restore(copies[0])
        lost = plan.world.now_ns // S
        plan.advance(40)
        assert plan.server.store.raw.hkeys(plan.keys.schedule_def) == [b"newer"]
        assert len([at for at in plan.fired("newer") if at > lost]) >= 3
        assert [at for at in plan.fired("former") if at > lost + 10] == []
        assert len(plan.server.granted) == 2


@pytest.mark.share(2)
@pytest.mark.parametrize("defined", ["by a configuration", "by a command"])
def test_a_rename_that_moves_drawn_times_fires_nothing_of_the_past(defined: str) -> None:
    """``H`` is drawn from the id: the new name's time of this day has passed, and the old one has run."""
    fields: dict[str, Any] = {"cron": "H H * * *"}
    is_static = defined == "by a configuration"

    def at(name: str) -> float:
        due = trigger_of(ScheduleDef(id=name, template=TEMPLATE, **fields)).next_ms(EPOCH_MS)
        assert due is not None
        return (due - EPOCH_MS) / 1000

    drawn = {name: at(name) for name in (f"n{n}" for n in range(200))}
    old = next(name for name, due in drawn.items() if 0.3 * HOUR < due < 0.9 * HOUR)
    new = next(name for name, due in drawn.items() if 1.1 * HOUR < due < 1.6 * HOUR)
    before = ScheduleDef(id=old, template=TEMPLATE, overlap="allow", **fields)
    renamed = msgspec.structs.replace(before, id=new, renamed_from=old)
    with planned(*([before] if is_static else []), **FOR_HOURS) as plan:
        if not is_static:
            plan.upsert(before)
        plan.until(2 * HOUR)
        assert plan.fired(old) == [drawn[old]]
        if is_static:
            replace(plan, renamed)
        else:
            plan.upsert(renamed)
        plan.advance(30)
        assert plan.fired(new) == []
        tomorrow = plan.server.store.raw.zscore(plan.keys.schedule_next, new)
        assert tomorrow == EPOCH_MS + DAY_MS + 1000 * drawn[new]


@pytest.mark.share(2)
@pytest.mark.parametrize("renamed_from", ["f7", ""])
def test_one_of_a_hundred_followers_is_renamed_or_exchanged_at_once(renamed_from: str) -> None:
    """The new one was refused as the 101st, while the old one was removed all the same; ends of a minute were lost."""
    followers = [after(name=f"f{n}") for n in range(100)]
    with planned(every(10, overlap="allow"), *followers) as plan:
        plan.until(15)
        kept = [each for each in followers if each.id != "f7"]
        replace(plan, every(10, overlap="allow"), *kept, after(name="g7", renamed_from=renamed_from))
        plan.advance(4)
        assert sorted(plan.server.store.raw.hkeys(plan.keys.schedule_def)) == sorted(
            [b"s", b"g7", *(each.id.encode() for each in kept)]
        )
        plan.finish()
        plan.finish(*[run for run in plan.fetch() if run.startswith("s@")])
        plan.advance(2)
        assert plan.fired("g7") == plan.fired("f8") != []


def test_a_run_that_outlives_the_memory_of_its_former_name_ends_under_the_new_one() -> None:
    """It went on for more than a day after the rename, and what waited for its end waited for ever."""
    with planned(**FOR_HOURS) as plan:
        hourly = every(HOUR, "a", overlap="buffer_one")
        plan.upsert(hourly)
        plan.until(HOUR + 100)
        runs = plan.fetch()
        plan.upsert(msgspec.structs.replace(hourly, id="b", renamed_from="a"))
        plan.until(2 * HOUR + 100)
        assert plan.decided("b") == [("BUFFERED", 2.0 * HOUR)]
        pass_a_day(plan)
        plan.end(*runs)
        plan.advance(5)
        assert plan.fired("b") == [2.0 * HOUR]
        delete(plan, *[f"nobody-{n}" for n in range(100)])
        raw = plan.server.store.raw
        assert raw.hkeys(plan.keys.schedule_gone) == [b"a"]  # runs of it that nobody lists may go on
        assert (raw.hget(plan.keys.schedule_gone, "a") or b"").endswith(b" 0\n")
        assert plan.run(Views(plan.keys).inspect(["a"]))[0].removed_ms is None
        assert plan.run(Definitions(plan.keys).delete([("a", None)])).results[0][0] is DeleteCode.UNKNOWN
        for _ in range(90):
            pass_a_day(plan)
        assert raw.hkeys(plan.keys.schedule_gone) == []
        assert plan.server.store.raw.hexists(plan.keys.schedule_live, "a") == 0
