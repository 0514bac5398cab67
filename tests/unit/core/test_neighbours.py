"""The due times around a nominal time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules.manual_runs import BACKFILL, MANUAL, extra_run
from supervisor.core.schedules.neighbours import ALONE, Neighbours
from supervisor.core.schedules.templating import check, render
from supervisor.core.schedules.triggers import neighbours_of, trigger_of
from supervisor.roles.scheduler.fire_items import DecisionTime, advanced, items, prepare
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.roles.worker.attempt.context import Context
from supervisor.store.wire.envelope import unpack

HOUR_MS = 3_600_000
NOMINAL_MS = 1_792_891_800_000  # 2026-10-25T02:30+01:00 in Berlin, the second 02:30 of that day


def definition(**fields: Any) -> ScheduleDef:
    template = Template(job="j", kind=Kind.SYNC, queue="q", args=fields.pop("args", {}))
    return ScheduleDef(id="s", template=template, **fields)


DEFINITIONS = st.sampled_from(
    [
        definition(every_ms=HOUR_MS),
        definition(every_ms=HOUR_MS, start_at_ms=NOMINAL_MS, end_at_ms=NOMINAL_MS + HOUR_MS),
        definition(every_ms=7 * HOUR_MS, exclude=(Exclusion(cron="* 2-9 * * *"),), timezone="Europe/Berlin"),
        definition(cron="*/20 * * * *", timezone="Europe/Berlin"),
        definition(cron="30 2 * * *", timezone="Europe/Berlin", dst_overlap="both", dst_gap="shift"),
        definition(when=(When(cron="0 * * * *"), When(every_ms=25 * 60_000))),
    ]
)


@given(schedule=DEFINITIONS, at_ms=st.integers(NOMINAL_MS - 9 * 86_400_000, NOMINAL_MS + 9 * 86_400_000))
def test_neighbours_are_each_others_neighbours(schedule: ScheduleDef, at_ms: int) -> None:
    """Intervals of one run after the other leave no gap and do not overlap."""
    trigger = trigger_of(schedule)
    following = trigger.neighbours(at_ms).next_ms
    assert following is not None
    after = trigger.neighbours(following)

    assert after.next_ms is not None
    assert after.previous_ms is not None
    assert after.previous_ms <= at_ms < following < after.next_ms
    assert trigger.neighbours(after.next_ms).previous_ms == following
    assert trigger.neighbours(after.previous_ms).next_ms == following


@given(schedule=DEFINITIONS, count=st.integers(1, 6))
def test_runs_that_are_fired_in_a_row_carry_their_neighbours(schedule: ScheduleDef, count: int) -> None:
    """From the second on the scheduler knows them already; both ways must agree."""
    known = CompiledSchedule(schedule, 1, is_dynamic=False)
    ready = prepare("s", known, NOMINAL_MS - 1)
    for _ in range(count):
        if ready is None:
            break
        (item,) = items(ready, DecisionTime(ready.fire_ms, 10_000), 9)
        run = unpack(item.run.data)
        assert Neighbours(run.previous_ms, run.next_ms) == trigger_of(schedule).neighbours(item.nominal_ms)
        ready = advanced(ready, item.nominal_ms)


@pytest.mark.parametrize("cause", [MANUAL, BACKFILL])
def test_runs_beside_the_plan_carry_their_neighbours_too(cause: str) -> None:
    """For one by hand the interval ends when it was asked for."""
    schedule = definition(every_ms=HOUR_MS, args={"a": "{{ interval_start }}", "b": "{{ next | utc }}"})
    run = extra_run(schedule, run_id="r", nominal_ms=5 * HOUR_MS + 7, cause=cause, wall_ms=1)

    assert (run.previous_ms, run.next_ms) == (5 * HOUR_MS, 6 * HOUR_MS)
    assert run.template.args == {"a": "1970-01-01T05:00:00Z", "b": "1970-01-01T06:00:00Z"}


def test_a_schedule_without_a_calendar_has_no_neighbours() -> None:
    """Nor has one whose time zone this machine does not know: its run by hand starts all the same."""
    assert neighbours_of(definition(at_ms=NOMINAL_MS), NOMINAL_MS) == ALONE
    assert neighbours_of(definition(after_completion_ms=1000), NOMINAL_MS) == ALONE
    assert neighbours_of(definition(cron="0 0 * * *", timezone="Mars/Base"), NOMINAL_MS) == ALONE


def test_templates_move_and_write_neighbours_as_the_nominal_time() -> None:
    """In the schedule's zone, with the same filters; a missing one is null, or nothing in a longer text."""
    args = {
        "whole": "{{ previous }}",
        "text": "from {{ interval_start | strftime:'%H:%M' }} to {{ interval_end | strftime:'%H:%M' }}",
        "moved": '{{ next | start:"day" }}',
    }
    assert check(args) == []
    around = Neighbours(NOMINAL_MS - HOUR_MS, NOMINAL_MS + HOUR_MS)
    zone = {"schedule": "s", "nominal_ms": NOMINAL_MS, "timezone": "Europe/Berlin"}

    assert render(args, around=around, **zone) == {  # type: ignore[arg-type]
        "whole": "2026-10-25T02:30:00+02:00",
        "text": "from 02:30 to 02:30",
        "moved": "2026-10-25T00:00:00+02:00",
    }
    assert render(args, **zone) == {"whole": None, "text": "from  to ", "moved": None}  # type: ignore[arg-type]


def test_a_job_reads_its_interval_from_the_context() -> None:
    """As aware datetimes; None for a run that no schedule made."""
    context = Context(run_id="r", job="j", nominal_ms=2 * HOUR_MS, previous_ms=HOUR_MS, next_ms=3 * HOUR_MS)
    bare = Context(run_id="r", job="j")

    assert [each and each.isoformat() for each in _times(context)] == [
        "1970-01-01T01:00:00+00:00",
        "1970-01-01T03:00:00+00:00",
        "1970-01-01T01:00:00+00:00",
        "1970-01-01T02:00:00+00:00",
    ]
    assert _times(bare) == [None] * 4


def _times(context: Context) -> list[Any]:
    return [context.previous, context.next, context.interval_start, context.interval_end]
