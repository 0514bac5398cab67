"""Runs of a schedule that its plan did not ask for: by hand, for its past, or because its timing changed.

Guarantees
    One request gives one run id, however often it is repeated. A run for a nominal time of the
    past has the id that the plan would have given it, so that it cannot run twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from supervisor.core.errors import TenureError
from supervisor.core.model import Envelope, ScheduleDef, scheduled_run_id
from supervisor.core.schedules import templating
from supervisor.core.schedules.triggers import neighbours_of

MANUAL, BACKFILL, CHANGED = "manual", "backfill", "changed"
KEY_MAX = 40
_KEY = re.compile(rf"[A-Za-z0-9._:-]{{1,{KEY_MAX}}}", re.ASCII)


class TriggerKeyError(TenureError):
    """A key that cannot be part of a run id."""

    http_status = 400


def manual_run_id(schedule: str, key: str) -> str:
    """Return the id of the run that ``trigger`` with ``key`` makes: the same key, the same run.

    Raises:
        TriggerKeyError: the key is empty, too long, or holds characters that an id cannot.
    """
    if not _KEY.fullmatch(key):
        raise TriggerKeyError(f"key {key[:60]!r} must be 1 to {KEY_MAX} of letters, digits and . _ : -")
    return f"{schedule}!{MANUAL}!{key}"


def forced_run_id(schedule: str, nominal_ms: int, number: int) -> str:
    """Return the id of a run for a nominal time that may have run before, by the ``number`` of the request."""
    return f"{scheduled_run_id(schedule, nominal_ms)}#{number}"


def changed_run_id(schedule: str, timing: str) -> str:
    """Return the id of the run that a change of timing to the digest ``timing`` causes (``on_change: run_now``)."""
    return f"{schedule}!{CHANGED}!{timing}"


def extra_run(
    definition: ScheduleDef,
    *,
    run_id: str,
    nominal_ms: int,
    cause: str,
    wall_ms: int,
    args: Mapping[str, Any] | None = None,
) -> Envelope:
    """Return a run of ``definition``, its placeholders filled in from ``nominal_ms``.

    Args:
        definition: of the schedule.
        run_id: its identity.
        nominal_ms: the time passed to the job; for a run by hand, when it was asked for.
        cause: manual, backfill or changed.
        wall_ms: now, for people.
        args: replace those of the definition, by name.
    """
    template = definition.template
    around = neighbours_of(definition, nominal_ms)
    given = {**template.args, **(args or {})}
    if templating.needs_rendering(given):
        zone = definition.timezone or "UTC"
        given = templating.render(
            given, schedule=definition.id, nominal_ms=nominal_ms, timezone=zone, run=run_id, around=around
        )
    return Envelope(
        id=run_id,
        template=msgspec.structs.replace(template, args=given),
        enqueued_ms=wall_ms,
        schedule=definition.id,
        nominal_ms=nominal_ms,
        cause=cause,
        previous_ms=around.previous_ms,
        next_ms=around.next_ms,
    )
