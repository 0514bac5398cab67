"""Dynamic schedules: create, change, delete, and what an edit does to watermarks, counters and pauses."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import ScheduleDef
from supervisor.store.schedules.control import Control
from supervisor.store.schedules.definitions import Change, DefineCode, Definitions, DeleteCode
from supervisor.store.schedules.reads import Inspection, Views
from tests.kit.builders import StoreCalls, schedule

STATE = "3 1 0 0 0 0 2 0 0 0 0 1\nF 1 2 3"
DAY_MS = 86_400_000


class Plan:
    """The calls on dynamic schedules, and what is stored."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.definitions = Definitions(world.keys)
        self.control = Control(world.keys)
        self.views = Views(world.keys)

    def upsert_call(self, *definitions: ScheduleDef, **fields: Any) -> Any:
        changes = [Change(definition=each, **fields) for each in definitions]
        return self.definitions.upsert(changes, wall_ms=1_000)

    def upsert(self, *definitions: ScheduleDef, **fields: Any) -> list[tuple[DefineCode, int]]:
        return self.world.run(self.upsert_call(*definitions, **fields)).results

    def delete(self, *ids: str, revision: int | None = None) -> list[DeleteCode]:
        reply = self.world.run(self.definitions.delete([(each, revision) for each in ids]))
        return [code for code, _ in reply.results]

    def show(self, name: str) -> Inspection:
        return self.world.run(self.views.inspect([name]))[0]

    def mark(self, name: str) -> int:
        return int(self.world.raw.hget(self.world.keys.schedule_mark, name) or 0)

    def set_mark(self, name: str, mark_ms: int) -> None:
        self.world.raw.hset(self.world.keys.schedule_mark, name, mark_ms)

    def planned(self, name: str) -> None:
        """Stand in for the leader: it looked, and planned the schedule for some time ahead."""
        self.world.raw.zadd(self.world.keys.schedule_next, {name: 10**13})

    def is_asked(self, name: str) -> bool:
        """Whether the leader was asked to look at the schedule."""
        score = self.world.raw.zscore(self.world.keys.schedule_next, name)
        return score is not None and score <= 0

    def told(self) -> list[tuple[str, str]]:
        """What the leader's listener was told."""
        entries = self.world.raw.xrange(self.world.keys.schedule_changes)
        return [(fields[b"kind"].decode(), fields[b"schedule"].decode()) for _, fields in entries]


@pytest.fixture
def plan(world: StoreCalls) -> Plan:
    return Plan(world)


def test_a_new_schedule_starts_at_the_servers_now_and_the_leader_is_told(plan: Plan) -> None:
    """No catch-up for the time before it was first seen; one write, one wake-up."""
    before = plan.show("a").now_ms
    assert plan.upsert(schedule("a")) == [(DefineCode.CREATED, 1)]

    shown = plan.show("a")
    assert shown.record is not None
    assert shown.record.is_dynamic
    assert shown.record.definition() == schedule("a")
    assert before <= shown.record.mark_ms <= shown.now_ms
    assert plan.is_asked("a")
    assert plan.told() == [("upsert", "a")]


def test_the_same_content_leaves_the_record_as_it_is_byte_for_byte(plan: Plan) -> None:
    """A repeated call, and an apply of the same file each minute, change nothing and wake nobody."""
    call = plan.upsert_call(schedule("a"))
    first, second = plan.world.twice(call)
    plan.planned("a")
    before = plan.world.raw.hgetall(plan.world.keys.schedule_def), plan.mark("a")

    assert [each.results[0] for each in (first, second)] == [(DefineCode.CREATED, 1), (DefineCode.UNCHANGED, 1)]
    assert plan.upsert(schedule("a")) == [(DefineCode.UNCHANGED, 1)]
    assert (plan.world.raw.hgetall(plan.world.keys.schedule_def), plan.mark("a")) == before
    assert not plan.is_asked("a")
    assert len(plan.told()) == 1


def test_a_revision_guards_against_somebody_elses_edit(plan: Plan) -> None:
    """Compare-and-set: the second of two editors of revision 1 learns that it lost."""
    plan.upsert(schedule("a"))
    mine = plan.upsert_call(schedule("a", description="mine"), expected_revision=1)
    theirs = plan.upsert_call(schedule("a", description="theirs"), expected_revision=1)

    assert plan.world.run(mine).results == [(DefineCode.CHANGED, 2)]
    assert plan.world.run(theirs).results == [(DefineCode.CONFLICT, 2)]
    assert plan.world.run(mine).results == [(DefineCode.UNCHANGED, 2)]  # its first reply was lost
    assert plan.upsert(schedule("b", description="new"), expected_revision=3) == [(DefineCode.CONFLICT, 0)]
    assert plan.upsert(schedule("a", description="again"), expected_revision=0) == [(DefineCode.CONFLICT, 2)]
    assert plan.upsert(schedule("b"), expected_revision=0) == [(DefineCode.CREATED, 1)]


def test_a_batch_of_250_is_decided_one_by_one(plan: Plan) -> None:
    """A mistake in one does not hide what became of the others."""
    plan.upsert(schedule("s007"))
    many = [schedule(f"s{number:03}", description="x" if number == 7 else "") for number in range(250)]
    results = plan.upsert(*many)

    assert [code for code, _ in results].count(DefineCode.CREATED) == 249
    assert results[7] == (DefineCode.CHANGED, 2)
    assert len(plan.world.stored()) == 250


def test_an_edit_that_leaves_the_timing_keeps_the_watermark(plan: Plan) -> None:
    """Editing arguments or policies must not restart the clock of a schedule."""
    plan.upsert(schedule("a"))
    plan.set_mark("a", 5)
    plan.upsert(schedule("a", description="x", overlap="allow", missed="all", jitter_ms=500))

    assert plan.mark("a") == 5


def test_a_watermark_that_a_leader_restored_after_a_loss_of_data_stays(plan: Plan) -> None:
    """The definition comes back later than its watermark; what was due in between is owed, not forgotten."""
    plan.set_mark("a", 5)
    assert plan.upsert(schedule("a")) == [(DefineCode.CREATED, 1)]

    assert plan.mark("a") == 5


@pytest.mark.parametrize(
    "timing", [{"every_ms": 2000}, {"phase_ms": 7}, {"timezone": "Asia/Tokyo"}, {"end_at_ms": 10**13}]
)
def test_an_edit_of_the_timing_is_never_retroactive(plan: Plan, timing: dict[str, Any]) -> None:
    """The new due times count from now, and never from before a watermark that is ahead."""
    plan.upsert(schedule("a"), schedule("b"))
    now_ms = plan.show("a").now_ms
    plan.set_mark("a", 5)
    plan.set_mark("b", now_ms + DAY_MS)
    assert plan.upsert(schedule("a", **timing), schedule("b", **timing)) == [(DefineCode.CHANGED, 2)] * 2

    assert plan.mark("a") >= now_ms
    assert plan.mark("b") == now_ms + DAY_MS
    assert plan.is_asked("a")


def test_an_edit_of_the_timing_may_keep_the_nominal_time_that_waits_for_its_jitter(plan: Plan) -> None:
    """Temporal #4866: a due time whose offset has not passed must not be lost by an edit; under the seen revision only."""
    plan.upsert(schedule("a"), schedule("b"))
    now_ms = plan.show("a").now_ms
    plan.set_mark("a", 5)
    plan.set_mark("b", 5)
    plan.upsert(schedule("a", every_ms=2000), seen_revision=1, kept_mark_ms=now_ms - 400)
    plan.upsert(schedule("b", every_ms=2000), seen_revision=9, kept_mark_ms=now_ms - 400)

    assert plan.mark("a") == now_ms - 400
    assert plan.mark("b") >= now_ms


def test_a_kept_nominal_time_never_moves_a_watermark_back_or_ahead_of_now(plan: Plan) -> None:
    """The exception lets one due time through, and nothing else."""
    plan.upsert(schedule("a"), schedule("b"))
    now_ms = plan.show("a").now_ms
    plan.set_mark("a", now_ms - 100)
    plan.upsert(schedule("a", every_ms=2000), seen_revision=1, kept_mark_ms=now_ms - 400)
    plan.set_mark("b", 5)
    plan.upsert(schedule("b", every_ms=2000), seen_revision=1, kept_mark_ms=now_ms + DAY_MS)

    assert plan.mark("a") == now_ms - 100
    assert plan.mark("b") < now_ms + DAY_MS


def test_a_change_of_timing_runs_at_once_where_that_is_wanted(plan: Plan) -> None:
    """``on_change: run_now``: once for each change, never when it is created or its arguments change."""
    plan.upsert(schedule("a", on_change="run_now"))
    plan.upsert(schedule("a", on_change="run_now", description="x"))
    assert plan.world.raw.hlen(plan.world.keys.queue("default").data) == 0
    call = plan.upsert_call(schedule("a", on_change="run_now", every_ms=60_000))
    plan.world.twice(call)

    runs = plan.world.raw.hkeys(plan.world.keys.queue("default").data)
    assert len(runs) == 1
    assert runs[0].startswith(b"a!changed!")


def test_a_static_schedule_is_never_replaced_by_a_dynamic_one_nor_deleted(plan: Plan) -> None:
    """A clash is an error, not a silent change of owner."""
    plan.world.raw.hset(plan.world.keys.schedule_def, "a", b"4\nab\nsomedigest\n{}")
    plan.upsert(schedule("other"))

    assert plan.upsert(schedule("a")) == [(DefineCode.CLASH, 4)]
    assert plan.delete("a") == [DeleteCode.CLASH]
    assert plan.world.raw.hget(plan.world.keys.schedule_def, "a") == b"4\nab\nsomedigest\n{}"


def test_a_deleted_schedule_fires_no_more_and_its_buffer_is_dropped(plan: Plan) -> None:
    """Its unfinished runs go on, so what they hold up is kept."""
    plan.upsert(schedule("a"))
    plan.world.raw.rpush(plan.world.keys.schedule_buffer("a"), 7, 8)
    plan.world.raw.hset(plan.world.keys.schedule_wait, "a", "x")
    plan.world.raw.hset(plan.world.keys.schedule_live, "a", "default a@1")

    assert plan.delete("a", "a", "nobody") == [DeleteCode.DELETED, DeleteCode.GONE, DeleteCode.UNKNOWN]
    shown = plan.show("a")
    assert (shown.record, shown.buffered, shown.live) == (None, 0, [("default", "a@1")])
    assert shown.removed_ms is not None
    assert plan.world.raw.zscore(plan.world.keys.schedule_next, "a") is None
    assert plan.world.raw.hget(plan.world.keys.schedule_wait, "a") is None
    assert plan.told()[-1] == ("delete", "a")


def test_a_deletion_may_name_the_revision_it_means(plan: Plan) -> None:
    """Whoever deletes what somebody else just changed is told."""
    plan.upsert(schedule("a"))
    plan.upsert(schedule("a", description="x"))

    assert plan.delete("a", revision=1) == [DeleteCode.CONFLICT]
    assert plan.delete("a", revision=2) == [DeleteCode.DELETED]


def test_adding_it_again_within_a_day_restores_counters_and_pause(plan: Plan) -> None:
    """What was due while it was absent is not missed and not run, and no revision comes twice."""
    plan.upsert(schedule("a"))
    plan.world.raw.hset(plan.world.keys.schedule_state, "a", STATE)
    plan.world.run(plan.control.pause(["a"], reason="moving", by="kim"))
    plan.set_mark("a", 5)
    plan.delete("a")
    now_ms = plan.show("a").now_ms
    assert plan.upsert(schedule("a", description="back")) == [(DefineCode.CREATED, 2)]

    shown = plan.show("a")
    assert shown.record is not None
    assert shown.record.pause is not None
    assert (shown.state, shown.record.pause.reason, shown.removed_ms) == (STATE.encode(), "moving", None)
    assert shown.record.mark_ms >= now_ms
    assert not plan.is_asked("a")


def test_after_a_day_it_is_a_new_schedule_but_its_revisions_go_on(plan: Plan) -> None:
    """A leader that still holds the old revision must not take the new content for it."""
    plan.upsert(schedule("a"))
    plan.upsert(schedule("a", description="x"))
    plan.world.raw.hset(plan.world.keys.schedule_state, "a", STATE)
    plan.delete("a")
    gone = plan.world.raw.hget(plan.world.keys.schedule_gone, "a")
    at, _, rest = gone.partition(b" ")
    plan.world.raw.hset(plan.world.keys.schedule_gone, "a", str(int(at) - DAY_MS - 1).encode() + b" " + rest)

    assert plan.upsert(schedule("a")) == [(DefineCode.CREATED, 3)]
    assert plan.show("a").state == b""


def test_what_is_remembered_of_removed_ones_goes_after_a_day(plan: Plan) -> None:
    """Each removal clears as much as it adds. Revisions of new ones begin above those that are forgotten."""
    for batch in range(4):
        plan.upsert(*[schedule(f"s{batch}-{number}") for number in range(250)])
        plan.delete(*[f"s{batch}-{number}" for number in range(250)])
    gone = plan.world.raw.hgetall(plan.world.keys.schedule_gone)
    assert len(gone) == 1000
    aged = {name: b"1000 7" + value[value.index(b" ", value.index(b" ") + 1) :] for name, value in gone.items()}
    plan.world.raw.hset(plan.world.keys.schedule_gone, mapping=aged)
    for number in range(6):
        plan.upsert(schedule(f"more-{number}"))
        plan.delete(f"more-{number}")

    assert plan.world.raw.hlen(plan.world.keys.schedule_gone) <= 6
    assert plan.upsert(schedule("s0-1")) == [(DefineCode.CREATED, 8)]


def test_a_renamed_schedule_takes_its_state_with_it(plan: Plan) -> None:
    """Watermark, counters, pause, buffer and unfinished runs: nothing is missed or doubled by a rename."""
    plan.upsert(schedule("old"))
    plan.set_mark("old", 5)
    plan.world.raw.hset(plan.world.keys.schedule_state, "old", STATE)
    plan.world.raw.rpush(plan.world.keys.schedule_buffer("old"), 7, 8)
    plan.world.raw.hset(plan.world.keys.schedule_live, "old", "default old@1")
    plan.upsert(schedule("new", renamed_from="old"))

    shown = plan.show("new")
    assert shown.record is not None
    assert (shown.record.mark_ms, shown.first_buffered_ms, shown.live) == (5, [7, 8], [("default", "old@1")])
    assert shown.state.startswith(b"3 1 0 0 0 0 2 2 ")
    assert plan.show("old").record is None
    assert plan.upsert(schedule("new", renamed_from="old")) == [(DefineCode.UNCHANGED, 2)]


def test_a_rename_with_another_timing_starts_from_now(plan: Plan) -> None:
    """The state goes along, the past does not."""
    plan.upsert(schedule("old"))
    plan.set_mark("old", 5)
    now_ms = plan.show("old").now_ms
    plan.upsert(schedule("new", renamed_from="old", every_ms=60_000))

    assert plan.mark("new") >= now_ms


def test_a_definition_may_start_paused_and_an_operator_has_the_last_word(plan: Plan) -> None:
    """It pauses when it begins to say so; whoever resumes it is not overruled by the next edit of a description."""
    plan.upsert(schedule("a", paused=True, pause_reason="not yet"))
    shown = plan.show("a").record
    assert shown is not None
    assert shown.pause is not None
    assert (shown.pause.reason, shown.pause.by, shown.next_ms) == ("not yet", "definition", None)
    plan.world.run(plan.control.resume(["a"]))
    plan.upsert(schedule("a", paused=True, pause_reason="not yet", description="x"))
    assert plan.show("a").record.pause is None  # type: ignore[union-attr]  # it is there

    plan.upsert(schedule("a"))
    plan.upsert(schedule("a", paused=True))
    assert plan.show("a").record.pause is not None  # type: ignore[union-attr]  # it is there
    plan.upsert(schedule("a"))
    assert plan.show("a").record.pause is None  # type: ignore[union-attr]  # it is there
    assert plan.is_asked("a")


def test_an_item_of_a_wrong_form_changes_nothing_at_all(plan: Plan) -> None:
    """Every argument is looked at before the first write."""
    good = plan.upsert_call(schedule("a"))
    for position, wrong in ((0, ""), (1, "no hex"), (2, "x"), (4, "7"), (7, "zz{}"), (8, "")):
        args = list(good.args) * 2
        args[len(good.args) + position] = wrong
        with pytest.raises(StoreRefusedError, match="BADARG"):
            plan.world.run(type(good)(good.script, good.keys, tuple(args), good.parse))
    assert plan.world.stored() == {}
