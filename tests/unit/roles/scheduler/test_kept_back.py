"""What a leader fires before its configuration is in place, and what it keeps back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core.effects import RunScript, Watch
from supervisor.core.errors import StoreRefusedError
from supervisor.store.schedules.definitions import Begin, BeginCode
from supervisor.store.wire.fire import FireCode
from tests.unit.roles.scheduler.scheduler_stepper import START_MS, TICK, SchedulerStepper

OTHER = replace(TICK, id="other")
OWED = START_MS - 10_000


@pytest.mark.parametrize("code", [BeginCode.APPLIED, BeginCode.OLDER])
def test_a_set_that_is_in_place_or_gives_way_costs_one_question_before_the_first_fire(code: BeginCode) -> None:
    """What is stored rules then, whatever this replica's file says."""
    bench = SchedulerStepper(TICK)
    assert bench.script == "declare_begin"
    assert bench.step.call.args[:2] == (8, "a" * 32)  # type: ignore[union-attr]  # it is an Ask
    bench.answer(Begin(code, 1, START_MS))
    bench.found((TICK, OWED), (OTHER, OWED))
    bench.defined((TICK, OWED), (OTHER, OWED))

    assert sorted(name for name, _, _ in bench.items()) == ["other", "tick"]


def test_what_another_configuration_changes_or_removes_is_kept_back_and_the_rest_is_fired() -> None:
    """The others must not wait for a configuration of 100,000 schedules to be brought in."""
    edited = replace(OTHER, max_catchup=7)
    bench = SchedulerStepper(TICK, edited)
    bench.answer(Begin(BeginCode.NEEDED, 2, START_MS))
    stored = [(each, OWED) for each in (TICK, OTHER, replace(TICK, id="removed"))]
    bench.found(*stored)
    bench.defined(*stored)

    assert bench.items() == [("tick", START_MS, "0")]
    bench.fired((FireCode.FIRED, START_MS))
    assert bench.script == "schedule_browse"


def test_a_question_about_the_set_that_is_not_answered_stops_no_unchanged_schedule() -> None:
    """Redis may refuse what is asked of one key and serve all others."""
    bench = SchedulerStepper(TICK)
    bench.raise_(StoreRefusedError("schedule:sets is no hash"))
    bench.found((TICK, OWED), (OTHER, OWED))
    bench.defined((TICK, OWED), (OTHER, OWED))

    assert bench.items() == [("tick", START_MS, "0")]


def test_hundreds_that_are_kept_back_do_not_keep_the_configuration_from_being_brought_in() -> None:
    """A page of late ones that cannot move is not read again and again."""
    gone = [(replace(TICK, id=f"gone{number:03}", every_ms=3_600_000), START_MS - 7_200_000) for number in range(50)]
    bench = SchedulerStepper(TICK)
    bench.answer(Begin(BeginCode.NEEDED, 2, START_MS))
    bench.found(*gone, is_late_full=True)
    bench.defined(*gone)

    assert bench.script == "schedule_browse"


def test_a_configuration_without_schedules_is_brought_in_once() -> None:
    """Under the same term: what the former one kept back is read, and then the leader waits for what is due."""
    bench = SchedulerStepper(replace(TICK, max_catchup=7))
    bench.answer(Begin(BeginCode.NEEDED, 2, START_MS))
    bench.found((TICK, OWED))
    bench.defined((TICK, OWED))
    assert bench.script == "schedule_browse"
    bench.scheduler.redeclare(())
    bench.raise_(StoreRefusedError("no answer"))
    bench.found((TICK, OWED))
    bench.defined((TICK, OWED))
    assert bench.items() == [("tick", START_MS, "0")]
    bench.fired((FireCode.FIRED, START_MS))

    assert bench.script == "declare_end"  # of the former one: what it kept away may come
    bench.answer(START_MS)
    asked = 0
    while isinstance(bench.step, RunScript):
        bench.found()
        asked += 1
        assert asked <= 3
    assert isinstance(bench.step, Watch)
