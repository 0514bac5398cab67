"""In which portions the scheduler reads what is due."""

from __future__ import annotations

import msgspec
import pytest

from supervisor.core.effects import RunScript, Watch
from supervisor.core.model import FIRE_BATCH_MAX, Exclusion, ScheduleDef
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.prefetcher import AGAIN_NS
from supervisor.roles.scheduler.window import AHEAD_MS, FIRST_PAGE, FORGOTTEN_MS, PAGE, VAIN_MAX
from supervisor.store.schedules.fire import PlanCode
from supervisor.store.wire.fire import FireCode
from tests.unit.roles.scheduler.scheduler_stepper import START_MS, TICK, SchedulerStepper, Stored, serving


def _many(count: int, *, mark_ms: int, phase_ms: int, exclude: tuple[Exclusion, ...] = ()) -> list[Stored]:
    tick = ScheduleDef(
        id="", template=TICK.template, every_ms=10_000, phase_ms=phase_ms, overlap="allow", exclude=exclude
    )
    return [(msgspec.structs.replace(tick, id=f"s{i:03}"), mark_ms) for i in range(count)]


def test_a_full_page_is_followed_by_the_next() -> None:
    """Ten thousand at one instant are read in pages, each where the one before ended, and between them what is due fires."""
    many = _many(FIRST_PAGE + PAGE, mark_ms=START_MS - 9000, phase_ms=1000)
    bench = SchedulerStepper()
    bench.found(*many[:FIRST_PAGE], is_full=True)
    bench.defined(*many[:FIRST_PAGE])
    assert bench.step.call.args[:4] == (START_MS + 1000, "s049", START_MS + AHEAD_MS, PAGE)  # type: ignore[union-attr]
    bench.found(*many[FIRST_PAGE:], is_full=True)
    bench.defined(*many[FIRST_PAGE:])

    assert bench.script == "schedule_due"
    assert bench.step.call.args[:2] == (START_MS + 1000, "s299")  # type: ignore[union-attr]  # it is an Ask


def test_what_is_due_when_a_term_begins_is_fired_before_the_rest_is_read() -> None:
    """Reading hundreds ahead takes ten milliseconds, and nothing was fired since the former leader died."""
    due = _many(FIRST_PAGE, mark_ms=START_MS - 10_000, phase_ms=0)
    bench = SchedulerStepper()
    assert bench.step.call.args[3:7:3] == (FIRST_PAGE, FIRST_PAGE)  # type: ignore[union-attr]  # soon, late
    bench.found(*due, is_full=True)
    bench.defined(*due)

    assert [schedule for schedule, _, _ in bench.items()] == [definition.id for definition, _ in due]


def test_between_two_schedules_the_parent_sees_a_sign_of_life() -> None:
    """A page of costly ones takes longer than a process may be silent, though none of them does."""
    exclude = (Exclusion(from_ms=0, until_ms=1),)
    due = _many(FIRST_PAGE, mark_ms=START_MS - 10_000, phase_ms=0, exclude=exclude)
    bench = SchedulerStepper()
    bench.found(*due, is_full=True)
    bench.defined(*due)
    assert bench.script == "fire"
    assert bench.signs >= 3 * FIRST_PAGE  # each is compiled, planned and decided

    before = bench.signs
    bench.fired(*[(FireCode.FIRED, START_MS)] * FIRST_PAGE)
    assert bench.signs >= before + FIRST_PAGE  # each has its next due time worked out


def test_between_two_runs_of_an_outage_the_parent_sees_a_sign_of_life() -> None:
    """A batch of runs whose arguments have hundreds of placeholders took six seconds."""
    every = ScheduleDef(
        id="s", template=TICK.template, every_ms=1000, overlap="allow", missed="all", max_catchup=FIRE_BATCH_MAX
    )
    bench = serving((every, START_MS - 1000 * FIRE_BATCH_MAX))
    assert len(bench.items()) == FIRE_BATCH_MAX
    assert bench.signs >= FIRE_BATCH_MAX


def test_a_plan_that_always_comes_too_late_keeps_nothing_else_waiting() -> None:
    """A record that the script reads otherwise than the leader has no end: it is looked at once a second then."""
    bench = SchedulerStepper()
    bench.found((TICK, START_MS), score=-1)
    bench.defined((TICK, START_MS))
    for _ in range(VAIN_MAX - 1):
        bench.planned(PlanCode.MOVED)
        bench.found((TICK, START_MS), score=-1)
    bench.planned(PlanCode.MOVED)
    assert isinstance(bench.step, Watch)

    bench.pass_ms(AGAIN_NS // MILLISECOND_NS)
    bench.found((TICK, START_MS), score=-1)
    bench.planned(PlanCode.PLANNED)
    assert isinstance(bench.step, Watch)


@pytest.mark.parametrize(("ahead_ms", "looks_ms"), [(-5000, -5000), (500, 500), (501, 0), (60_000, 0)])
def test_a_clock_that_fire_would_refuse_is_not_the_one_that_counts(ahead_ms: int, looks_ms: int) -> None:
    """By it everything soon is late: no more of the plan would be read while that waits for Redis' time."""
    bench = SchedulerStepper()
    bench.clock.wall_offset_ms = bench.board.header.clock_skew_ms = ahead_ms

    bench.found()
    bench.pass_ms(5000)
    assert isinstance(bench.step, RunScript)
    assert bench.step.call.args[2] == START_MS + 5000 + looks_ms - FORGOTTEN_MS
