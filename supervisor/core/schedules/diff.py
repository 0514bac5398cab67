"""Differences between the wanted and the stored definition of a schedule, and their effect on its watermark.

A change of timing counts from now. Two exceptions: owed runs stay owed where old and new timing
name the same times since the watermark, as after another spelling (``0 * * * *`` to ``@hourly``); and a
nominal time that has passed but still waits for its jitter, and that the new timing has too, is fired
once (temporalio/temporal#4866: a run was lost whenever an edit fell between the two).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.core.calendars.search_limit import limit_search
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef, scheduled_run_id
from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.core.schedules.triggers import trigger_of

UNLISTED_MIN, UNLISTED_AGE_MS = 100, 30 * 86_400_000
OWED_MAX = 1000
"""More nominal times since the watermark are not compared: the new timing then counts from now."""


class DefinitionDifference(StrEnum):
    """Relation of a wanted definition to the stored one."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. ``None``: it has its default."""

    field: str
    before: Any
    after: Any


@limit_search
def kept_mark_ms(old: ScheduleDef, new: ScheduleDef, *, mark_ms: int, now_ms: int) -> int | None:
    """Return the watermark that keeps runs owed under both timings; None when there is nothing to keep.

    Either all since the watermark, or the one that waits for its jitter. That one only if the new timing has no
    other between it and now: keeping the first would make the second due in retrospect.
    """
    try:
        before, after = trigger_of(old), trigger_of(new)
        nominal = before.next_ms(mark_ms)
        if nominal is None or nominal > now_ms:
            return None
        owed = list(before.nominals(mark_ms, now_ms, OWED_MAX + 1))
        if len(owed) <= OWED_MAX and owed == list(after.nominals(mark_ms, now_ms, OWED_MAX + 1)):
            return mark_ms
        if not old.jitter_ms:
            return None
        is_waiting = fire_at_ms(old, nominal, before.next_ms(nominal)) > now_ms
        is_kept = after.latest_ms(nominal - 1, nominal) == nominal and after.latest_ms(nominal, now_ms) is None
    except TenureError:
        return None  # one of them has no usable timing: nothing waits
    return nominal - 1 if is_waiting and is_kept else None


@limit_search
def unlisted_runs(old: ScheduleDef, new: ScheduleDef, *, mark_ms: int) -> list[str]:
    """Return the ids of the latest runs of ``old`` where ``new`` needs to know which are unfinished; oldest first.

    Under ``overlap: allow`` nobody keeps a list. Which of them are unfinished, their queue knows.
    """
    if old.overlap != "allow" or new.overlap == "allow":
        return []
    try:
        trigger = trigger_of(old)
        count = min(max(UNLISTED_MIN, new.max_running), OWED_MAX)
        nominals = trigger.newest(mark_ms - UNLISTED_AGE_MS, mark_ms, count)
    except TenureError:
        return []
    return [f"{old.id}!initial", *(scheduled_run_id(old.id, nominal) for nominal in nominals)]


def field_changes(old: ScheduleDef, new: ScheduleDef) -> list[FieldChange]:
    """Return every field that differs, those of the job's template as ``template.args.batch``."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    return _differences(before, after, "")


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> list[FieldChange]:
    found: list[FieldChange] = []
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{name}.")
        else:
            found.append(FieldChange(f"{prefix}{name}", old, new))
    return found
