"""Declaring the schedules of a configuration: the rules of a reload."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.core.schedules.triggers import trigger_of
from supervisor.roles.scheduler.config_sync import REFUSED_NS
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.election.leases import CandidateInfo
from supervisor.store.schedules.definitions import Definitions
from tests.integration.store.schedules.declaration import HOUR_MS, OTHER, Declaration
from tests.kit.builders import StoreCalls, schedule
from tests.kit.servers import on_both
from tests.kit.stepper import term_of


@pytest.fixture
def desk(world: StoreCalls) -> Declaration:
    return Declaration(world)


def test_a_set_that_is_in_place_costs_one_question_and_changes_nothing(desk: Declaration) -> None:
    """Each new term declares; unchanged means byte for byte the same record, revision and watermark."""
    term = desk.world.lead()
    assert desk.declare(term, schedule("a"), schedule("b"))["added"] == ["a", "b"]
    desk.set_mark("a", 5)
    before, asked = desk.dump(), len(desk.stepper.asked)
    told = desk.declare(term, schedule("b"), schedule("a"))

    assert desk.stepper.asked[asked:] == ["declare_begin"]
    assert (told["applied"], told["added"], told["changed"], told["removed"]) == (True, [], [], [])
    assert desk.dump() == before


@on_both("declare_begin", "declare_end", "declare_page", "lease_campaign", "lease_view", "schedule_browse")
def test_added_schedules_start_at_the_servers_now(desk: Declaration) -> None:
    """No catch-up before first sight, by whatever clock the leader has."""
    term = desk.world.lead()
    before_ms = desk.world.run(desk.world.leases.view()).now_ms
    desk.declare(term, schedule("a"))

    assert desk.mark("a") >= before_ms
    assert desk.world.raw.zscore(desk.world.keys.schedule_next, "a") <= 0


def test_an_edit_touches_only_what_was_edited(desk: Declaration) -> None:
    """Of a thousand schedules one line changed: the records of the others are not even written anew."""
    term = desk.world.lead()
    many = [schedule(f"s{number:03}") for number in range(1000)]
    desk.declare(term, *many)
    before = desk.world.raw.hgetall(desk.world.keys.schedule_def)
    desk.set_mark("s500", 5)
    many[500] = schedule("s500", description="edited")
    told = desk.declare(term, *many)

    after = desk.world.raw.hgetall(desk.world.keys.schedule_def)
    assert told["changed"] == ["s500"]
    assert [name for name in after if after[name] != before[name]] == [b"s500"]
    assert after[b"s500"].startswith(b"2\n")
    assert desk.mark("s500") == 5


@pytest.mark.parametrize(
    "timing", [{"every_ms": 2000}, {"phase_ms": 7}, {"cron": "* * * * *", "every_ms": None}, {"timezone": "Asia/Tokyo"}]
)
def test_an_edit_of_the_timing_is_never_retroactive(desk: Declaration, timing: dict[str, Any]) -> None:
    """The new due times count from now, and never from before a watermark that is ahead."""
    term = desk.world.lead()
    desk.declare(term, schedule("a"), schedule("b"))
    now_ms = desk.world.run(desk.world.leases.view()).now_ms
    desk.set_mark("a", 5)
    desk.set_mark("b", now_ms + HOUR_MS)
    desk.declare(term, schedule("a", **timing), schedule("b", **timing))

    assert desk.mark("a") >= now_ms
    assert desk.mark("b") == now_ms + HOUR_MS


def test_an_edit_between_a_due_time_and_its_jittered_fire_loses_nothing(desk: Declaration) -> None:
    """Temporal #4866: the due time is in both timings, so it still fires once."""
    term = desk.world.lead()
    now_ms = desk.world.run(desk.world.leases.view()).now_ms
    nominal = now_ms - HOUR_MS // 2
    definition = _jittered(nominal, until_ms=now_ms)
    desk.declare(term, definition)
    desk.set_mark(definition.id, nominal - HOUR_MS)
    desk.declare(term, _edit(definition, end_at_ms=now_ms + 10**9))

    assert nominal - HOUR_MS <= desk.mark(definition.id) < nominal


def test_removed_schedules_are_remembered_and_come_back_with_their_counters(desk: Declaration) -> None:
    """A roll-back of a mistaken deploy within a day restores pause and counters, and runs nothing of the time between."""
    term = desk.world.lead()
    desk.declare(term, schedule("a"), schedule("b"))
    desk.world.raw.hset(desk.world.keys.schedule_state, "b", "7 0 0 0 0 0 0 0 0 0 0 1")
    desk.set_mark("b", 5)
    assert desk.declare(term, schedule("a"))["removed"] == ["b"]
    assert sorted(desk.world.stored()) == ["a"]
    now_ms = desk.world.run(desk.world.leases.view()).now_ms
    assert desk.declare(term, schedule("a"), schedule("b"))["added"] == ["b"]

    assert desk.world.raw.hget(desk.world.keys.schedule_state, "b") == b"7 0 0 0 0 0 0 0 0 0 0 1"
    assert desk.mark("b") >= now_ms
    assert desk.world.stored()["b"].revision == 2


def test_a_renamed_schedule_takes_its_progress_along(desk: Declaration) -> None:
    """Nothing is missed by a rename, and the old one is not removed twice."""
    term = desk.world.lead()
    desk.declare(term, schedule("old"), schedule("z"))
    desk.set_mark("old", 5)
    told = desk.declare(term, schedule("new", renamed_from="old"), schedule("z"))

    assert (told["added"], told["removed"]) == (["new"], [])
    assert (sorted(desk.world.stored()), desk.mark("new")) == (["new", "z"], 5)


def test_a_clash_with_a_dynamic_schedule_refuses_the_whole_set(desk: Declaration) -> None:
    """Nothing changed: what was declared before keeps running, and somebody is told."""
    term = desk.world.lead()
    desk.declare(term, schedule("a"), schedule("b"))
    desk.upsert(schedule("mine"))
    before = desk.dump()
    told = desk.declare(term, schedule("a", description="x"), schedule("mine"), schedule("new"))

    assert (told["applied"], desk.dump()) == (False, before)
    assert desk.stepper.events("schedules_refused") == [{"clashes": ["mine"], "count": 1}]
    assert "declare_page" not in desk.stepper.asked[-4:]
    desk.upsert(schedule("free"))


def test_after_a_clash_was_cleared_the_set_is_brought_in_within_a_minute(desk: Declaration) -> None:
    """No restart is needed; while it lasts it is told once."""
    view = desk.world.lead()
    desk.upsert(schedule("mine"))
    declaring, term = desk.declaring(schedule("a"), schedule("mine")), term_of(view)
    for _ in range(3):
        desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
        desk.stepper.now_ns += REFUSED_NS
    assert len(desk.stepper.events("schedules_refused")) == 1
    desk.world.run(Definitions(desk.world.keys).delete([("mine", None)]))
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)
    desk.stepper.now_ns += REFUSED_NS

    assert sorted(desk.world.stored()) == ["a", "mine"]
    assert declaring.is_done(term)
    assert [told["is_refused"] for told in desk.stepper.events("schedules_declared")] == [True, False]


def test_an_older_set_changes_nothing_while_a_newer_one_is_held(desk: Declaration) -> None:
    """During a rolling update an old replica that leads must not undo what a new one declared."""
    older, newer = [schedule("a")], [schedule("b")]
    term = desk.world.lead("old", info=CandidateInfo(replica="old", schedules_digest=schedules_digest(older)))
    info = CandidateInfo(replica="new", schedules_digest=schedules_digest(newer))
    desk.world.run(desk.world.campaign_call("new", OTHER, info=info))
    calls = Definitions(desk.world.keys)
    assert desk.world.run(calls.applied()) == ""
    desk.declare(term, *older)
    desk.declare(term, *newer)
    told = desk.declare(term, *older)
    assert desk.world.run(calls.applied()) == schedules_digest(newer)  # which is what the older replica compares

    assert told["applied"] is False
    assert sorted(desk.world.stored()) == ["b"]
    seen = desk.world.raw.hget(desk.world.keys.candidates, "new").split(b" ", 1)[1]
    desk.world.raw.hset(desk.world.keys.candidates, "new", b"1000 " + seen)
    assert desk.declare(term, *older)["removed"] == ["b"]


@on_both("declare_remove")
def test_an_empty_configuration_removes_nothing_unless_that_is_allowed(desk: Declaration) -> None:
    """A pod with an empty file won an election once, and silenced everything (tuist #10679)."""
    term = desk.world.lead()
    desk.declare(term, schedule("a"))
    asked = len(desk.stepper.asked)
    assert desk.declaring().is_done(term_of(term))
    assert len(desk.stepper.asked) == asked
    assert desk.declare(term, allow_empty=True)["removed"] == ["a"]


def test_dynamic_schedules_are_left_alone(desk: Declaration) -> None:
    """A configuration owns what it named, and nothing else."""
    term = desk.world.lead()
    desk.upsert(schedule("mine"))
    desk.declare(term, schedule("a"))
    desk.declare(term, schedule("b"))

    assert sorted(desk.world.stored()) == ["b", "mine"]


def test_the_memory_of_sets_does_not_grow_for_ever(desk: Declaration) -> None:
    """Each deploy adds one; only those of live replicas matter."""
    term = desk.world.lead()
    for number in range(300):
        desk.world.raw.hset(desk.world.keys.schedule_sets, f"digest{number}", number + 1)
    desk.world.raw.hset(desk.world.keys.schedule_sets, "#revision", 300)
    desk.declare(term, schedule("a"))

    assert desk.world.raw.hlen(desk.world.keys.schedule_sets) < 80


def test_candidates_of_other_formats_do_not_stop_a_declaration(desk: Declaration) -> None:
    """What cannot be read holds no set."""
    term = desk.world.lead()
    desk.world.raw.hset(
        desk.world.keys.candidates, mapping={"x": "garbage", "y": "99999999999999 [1]", "z": "99999999999999 {"}
    )
    assert desk.declare(term, schedule("a"))["applied"]


def _jittered(nominal: int, *, until_ms: int) -> ScheduleDef:
    """Return an hourly schedule with the due time ``nominal``, whose fire lies far behind ``until_ms``."""
    for number in range(10_000):
        candidate = schedule(f"j{number}", every_ms=HOUR_MS, phase_ms=nominal % HOUR_MS, jitter_ms=HOUR_MS)
        if fire_at_ms(candidate, nominal, trigger_of(candidate).next_ms(nominal)) > until_ms + HOUR_MS // 4:
            return candidate
    raise AssertionError("none of so many ids is drawn a late fire")


def _edit(definition: ScheduleDef, **fields: Any) -> ScheduleDef:
    same = {name: getattr(definition, name) for name in ("every_ms", "phase_ms", "jitter_ms")}
    return schedule(definition.id, **same, **fields)
