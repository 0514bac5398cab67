"""Differences between the wanted and the stored definition of a schedule, and their effect on its watermark.

A change of timing counts from now. Two exceptions: owed runs stay owed where old and new timing
name the same times since the watermark, as after another spelling (``0 * * * *`` to ``@hourly``); and a
nominal time that has passed but still waits for its jitter, and that the new timing has too, is fired
once (temporalio/temporal#4866: a run was lost whenever an edit fell between the two).

The phase of schedules whose grid begins when the cluster first sees them (``anchor: first_seen``) is kept in the
definition that Redis holds, as ``start_at_ms``: a restart or another leader finds it there and moves nothing. A change
of the interval begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.core.calendars.search_limit import limit_search
from supervisor.core.cron.zones import zone
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef, scheduled_run_id
from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.core.schedules.triggers import trigger_of

UNLISTED_MIN, UNLISTED_AGE_MS = 100, 30 * 86_400_000
OWED_MAX = 1000
"""More nominal times since the watermark are not compared: the new timing then counts from now."""


FIRST_SEEN = "first_seen"
FIRST_SEEN_HOUR = "first_seen_hour"  # from the full hour before that
ANCHORS = frozenset({FIRST_SEEN, FIRST_SEEN_HOUR})
_HOUR_MS = 3_600_000
_TIMING = ("anchor", "every_ms", "phase_ms", "when", "timezone")


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
    """Return the ids of the latest runs of ``old`` where nobody would find those that are unfinished; oldest first.

    Under ``overlap: allow`` there is no list. A stricter policy needs one, and so does ``new`` where its own id, times
    and queue would not lead to them, for a stricter one that follows. Which are unfinished, their queue knows.
    """
    if old.overlap != "allow":
        return []
    try:
        trigger = trigger_of(old)
        found_by = (new.id, new.template.queue, trigger_of(new))
        if new.overlap == "allow" and found_by == (old.id, old.template.queue, trigger):
            return []
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


def settled(declared: ScheduleDef, stored: ScheduleDef | None, now_ms: int) -> ScheduleDef:
    """Return ``declared`` with the beginning of its grid: the stored one, else the one that follows from Redis' time.

    ``stored`` is None when it is not there, or cannot be read.
    """
    if declared.anchor not in ANCHORS:
        return declared
    if stored is not None and stored.start_at_ms is not None and _timing(stored) == _timing(declared):
        return msgspec.structs.replace(declared, start_at_ms=stored.start_at_ms)
    return msgspec.structs.replace(declared, start_at_ms=_begin(declared, now_ms))


def _timing(definition: ScheduleDef) -> tuple[object, ...]:
    return tuple(getattr(definition, name) for name in _TIMING)


def _begin(declared: ScheduleDef, now_ms: int) -> int:
    """Return where the grid begins, so that the first due time is one interval after ``now_ms``, or after its hour."""
    every_ms = declared.every_ms or 0
    if declared.anchor == FIRST_SEEN:
        return now_ms + every_ms
    offset_ms = zone(declared.timezone).at(now_ms // 1000).offset * 1000
    return now_ms - (now_ms + offset_ms) % _HOUR_MS + every_ms
