"""Schedules as rows, and the facts about one in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.cli.output import distance, moment
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import after_completion_ms, trigger_of
from supervisor.operations.backfills import Backfill
from supervisor.operations.schedules import Inspection, Pause, Record, ScheduleState, Stretch, free_texts
from supervisor.telemetry.masking import mask_text

COLUMNS = ("schedule", "job", "trigger", "overlap", "next", "in", "status", "description")
_COUNTERS = ("fired", "skipped", "missed", "buffered", "dropped", "replaced")


def record_row(record: Record, now_ms: int) -> dict[str, Any]:
    """Return one schedule as ``list`` shows it."""
    try:
        definition = record.definition()
    except msgspec.DecodeError:
        return {"schedule": record.id, "revision": record.revision, "status": "written by another version"}
    is_idle = record.pause is not None or bool(record.completed_ms) or bool(record.invalid)
    is_planned = record.next_ms is not None and record.next_ms > 0 and not is_idle
    awaited = _awaited(record, definition) if is_planned else ""
    next_ms = record.next_ms if is_planned and not awaited else None
    return {
        "schedule": definition.id,
        "job": definition.template.job,
        "trigger": trigger_words(definition),
        "overlap": definition.overlap,
        "missed": definition.missed,
        "queue": definition.template.queue,
        "kind": "dynamic" if record.is_dynamic else "static",
        "declared_by": definition.declared_by,
        "revision": record.revision,
        "next": moment(next_ms),
        "next_ms": next_ms,
        "in": awaited or distance(next_ms, now_ms),
        "last": moment(record.mark_ms),
        "status": status_words(record, now_ms),
        "paused": pause_row(record.pause),
        **free_texts(definition),
    }


def _awaited(record: Record, definition: ScheduleDef) -> str:
    """Return the only end that makes it due, if there is no time: the plan then has that of the next look."""
    if definition.after is not None:
        return f"after {definition.after.schedule}"
    if not record.is_live or after_completion_ms(definition) is None:
        return ""
    try:
        return "after its run" if trigger_of(definition).next_ms(record.mark_ms) is None else ""
    except TenureError:
        return ""


def trigger_words(definition: ScheduleDef) -> str:
    """Return when ``definition`` is due, as people write it."""
    try:
        return trigger_of(definition).describe()
    except TenureError as error:
        return f"invalid: {error}"


def status_words(record: Record, now_ms: int) -> str:
    """Return in a few words whether the schedule fires."""
    if record.pause is not None:
        until = distance(record.pause.until_ms, now_ms)
        verb = "ends" if (record.pause.until_ms or 0) > now_ms else "ended"
        about = [part for part in (mask_text(record.pause.reason), f"{verb} {until}" if until else "") if part]
        return f"paused: {', '.join(about)}" if about else "paused"
    if record.completed_ms:
        return "completed"
    if record.invalid:
        return f"invalid: {record.invalid}"
    if late := record.lateness(now_ms):
        return f"late: {late}"
    if record.next_ms is None:
        return "nothing is due any more"
    return "as soon as the leader looks" if record.next_ms <= 0 else "active"


def pause_row(pause: Pause | None) -> dict[str, Any] | None:
    """Return a pause for scripts; None when there is none."""
    if pause is None:
        return None
    return {
        "reason": mask_text(pause.reason),
        "by": mask_text(pause.by),
        "at": moment(pause.at_ms),
        "until": moment(pause.until_ms),
    }


def inspection_value(found: Inspection, backfills: Iterable[Backfill], next_ms: Iterable[int]) -> dict[str, Any]:
    """Return everything about one schedule, without empty fields."""
    assert found.record is not None
    record, state = found.record, ScheduleState.parse(found.state)
    row = record_row(record, found.now_ms)
    value = {
        **{name: row.get(name) for name in ("schedule", "kind", "revision", "status", "trigger", "paused")},
        "next": [moment(at) for at in next_ms],
        "watermark": moment(record.mark_ms),
        "counters": {name: count for name in _COUNTERS if (count := getattr(state.counters, name))},
        "failed_in_a_row": state.counters.failed,
        "expectations": _expectations(record, found.now_ms),
        "completed": moment(state.counters.completed_ms),
        "live_runs": [run for _, run in found.live],
        "buffered": [moment(at) for at in found.first_buffered_ms],
        "buffered_count": found.buffered,
        "decisions": [stretch_words(stretch) for stretch in state.stretches],
        "backfills": [backfill_row(each, found.now_ms) for each in backfills],
        "definition": _definition(record),
    }
    return {name: item for name, item in value.items() if item not in (None, "", 0, {}, [])}


def _expectations(record: Record, now_ms: int) -> dict[str, Any]:
    """Return what it expects of its runs; without a success, that counts from its definition or the end of a pause."""
    if record.expected is None:
        return {}
    every, since, ok, _, late = record.expected
    value = {
        "last_success": moment(ok or None),
        "success_expected_by": moment(since + every) if every else None,
        "counted_from": moment(since) if every and since != ok else None,
        "late_run": f"{record.id}@{late}" if late else None,
        "late": record.lateness(now_ms),
    }
    return {name: item for name, item in value.items() if item}


def _definition(record: Record) -> dict[str, Any]:
    """Return the definition with the names of arguments only: any value may be a secret that was read for it."""
    try:
        definition = record.definition()
    except msgspec.DecodeError:
        return {}
    shown: dict[str, Any] = msgspec.to_builtins(definition)
    texts = free_texts(definition) | {"pause_reason": mask_text(definition.pause_reason)}
    shown |= {name: text for name, text in texts.items() if name in shown}
    template = shown["template"]
    if "args" in template:
        shown["template"] = {**template, "args": sorted(template["args"])}
    return shown


_WORDS = {
    "F": "fired",
    "U": "started from the buffer",
    "I": "fired, as the schedule was new,",
    "S": "skipped",
    "B": "buffered",
    "D": "dropped",
    "R": "replaced",
    "M": "missed",
}
_BECAUSE = {
    "S": " because an earlier one was running",
    "B": " because an earlier one was running",
    "D": " because the buffer was full, the run too old when its turn came, or a check of its profile against it",
    "R": " by a newer due time while waiting",
}
_MISSED = {
    "policy": "several were due at once, and the missed policy runs fewer",
    "window": "they were older than catchup_window",
    "cap": "there were more than max_catchup",
    "data_loss": "they may have run before Redis lost that",
}


def stretch_words(stretch: Stretch) -> str:
    """Return the decision about a stretch of nominal times, as a sentence."""
    if stretch.code == "M" and not stretch.from_ms:  # of all that was before; see lib/define.lua
        return f"not known until {moment(stretch.to_ms)}: Redis lost its data (found {moment(stretch.at_ms)})"
    count = f"{stretch.count} run" + ("" if stretch.count == 1 else "s")
    span = f"from {moment(stretch.from_ms)} to {moment(stretch.to_ms)}"
    if stretch.from_ms == stretch.to_ms:
        span = f"of {moment(stretch.to_ms)}"
    elif stretch.code == "M":
        span = f"after {moment(stretch.from_ms)} until {moment(stretch.to_ms)}"
    because = _BECAUSE.get(stretch.code, "")
    if stretch.code == "M":
        because = f": {' and '.join(_MISSED.get(reason, reason) for reason in stretch.reasons)}"
        because = "" if because == ": " else because
    return f"{_WORDS.get(stretch.code, stretch.code)} {count} {span}{because} (decided {moment(stretch.at_ms)})"


def backfill_row(backfill: Backfill, now_ms: int) -> dict[str, Any]:
    """Return one backfill."""
    return {
        "backfill": backfill.id,
        "schedule": backfill.schedule,
        "state": backfill.state.value,
        "from": moment(backfill.request.from_ms),
        "to": moment(backfill.request.until_ms),
        "cursor": moment(backfill.cursor_ms),
        "enqueued": backfill.enqueued,
        "of": backfill.limit,
        "skipped": backfill.skipped,
        "forced": backfill.is_forced,
        "overlap": backfill.request.overlap,
        "updated": distance(backfill.updated_ms, now_ms),
        "by": backfill.request.by,
        "note": backfill.note,
    }
