"""Runs beside the plan: their identity, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template, scheduled_run_id
from supervisor.core.schedules.manual_runs import (
    BACKFILL,
    KEY_MAX,
    MANUAL,
    TriggerKeyError,
    changed_run_id,
    extra_run,
    forced_run_id,
    manual_run_id,
)

NOMINAL = 1_767_225_600_000  # 2026-01-01T00:00Z


def definition(**args: Any) -> ScheduleDef:
    template = Template(job="j", kind=Kind.SYNC, queue="q", args=args)
    return ScheduleDef(id="s", template=template, every_ms=1000, timezone="Asia/Tokyo", start_deadline_ms=5)


def test_a_backfilled_run_has_the_id_of_the_plan_and_is_told_its_nominal_time() -> None:
    """In the schedule's zone. It has no start deadline: that of the plan has passed long ago."""
    run_id = scheduled_run_id("s", NOMINAL)
    run = extra_run(
        definition(at="{{ date }} {{ hour }}"), run_id=run_id, nominal_ms=NOMINAL, cause=BACKFILL, wall_ms=7
    )

    assert (run.id, run.schedule, run.nominal_ms, run.cause) == (run_id, "s", NOMINAL, "backfill")
    assert run.template.args == {"at": "2026-01-01 9"}
    assert (run.template.queue, run.enqueued_ms, run.not_after_ms) == ("q", 7, None)


def test_arguments_given_by_hand_replace_those_of_the_schedule_by_name() -> None:
    """The others stay, placeholders in both are filled in."""
    given = {"b": "{{ run }}"}
    run_id = manual_run_id("s", "k")
    run = extra_run(definition(a=1, b=2), run_id=run_id, nominal_ms=NOMINAL, cause=MANUAL, wall_ms=7, args=given)

    assert run.template.args == {"a": 1, "b": "s!manual!k"}


def test_ids_of_runs_beside_the_plan_never_meet_those_of_the_plan() -> None:
    """Else a run by hand could take the place of a scheduled one."""
    ids = {
        scheduled_run_id("s", NOMINAL),
        forced_run_id("s", NOMINAL, 1),
        forced_run_id("s", NOMINAL, 2),
        manual_run_id("s", str(NOMINAL)),
        changed_run_id("s", "ab"),
    }
    assert len(ids) == 5


def test_the_longest_schedule_with_the_longest_key_still_is_a_run_id() -> None:
    """255 characters is what the queue carries."""
    assert len(manual_run_id("s" * 200, "k" * KEY_MAX)) <= 255
    with pytest.raises(TriggerKeyError, match="1 to 40"):
        manual_run_id("s", "k" * (KEY_MAX + 1))
