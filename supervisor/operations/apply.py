"""Operations that apply a set of dynamic schedules: compare with the stored ones, write the differences.

Guarantees
    Equal schedules are not written. Each write names the revision that was compared, so that
    somebody else's edit in between is a conflict, not lost. Applied again, after an
    interruption, it goes on where it was: schedules done by then are equal.

Does not guarantee
    That all of it happens at once: validate first, so that refusals come before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.core.errors import ConfigError, Problem
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.diff import DefinitionDifference, FieldChange, field_changes
from supervisor.core.schedules.triggers import loop_of
from supervisor.operations import Delay, Operation, Tell, one, slices, untold
from supervisor.operations.schedule_control import delete, drop_buffered
from supervisor.operations.schedules import browse, has_labels
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import (
    BATCH_MAX,
    Change,
    DefineCode,
    Definitions,
    DeleteCode,
    page_of,
    with_followers,
)
from supervisor.store.schedules.reads import Record, Views, addition_of, change_of
from supervisor.store.wire.definition import pack_definition
from supervisor.telemetry.masking import mask_entry

TRIES = 50
CHAIN_MAX = 100  # schedules that follow each other: more are not looked at
BUSY_S = 0.2  # between two attempts while a leader brings in its configuration


@dataclass(frozen=True, slots=True)
class Compared:
    """One wanted schedule beside the stored one."""

    difference: DefinitionDifference
    id: str
    change: Change | None = None  # how to bring it in; None when nothing has to be
    fields: tuple[FieldChange, ...] = ()
    is_clash: bool = False  # a static schedule has the id
    revision: int = 0  # of what is stored
    renames: str = ""  # the stored schedule that it takes over


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Everything that an apply would do."""

    compared: list[Compared]
    surplus: list[Record]  # to be deleted

    def rows(self) -> list[dict[str, str]]:
        """Return schedule, difference and changed fields of each."""
        rows = [
            {"schedule": each.id, "difference": each.difference.value, "fields": ", ".join(map(_words, each.fields))}
            for each in self.compared
        ]
        deleted = DefinitionDifference.DELETED.value
        return rows + [{"schedule": each.id, "difference": deleted, "fields": ""} for each in self.surplus]


@dataclass(slots=True)
class ApplyResult:
    """Result of an apply."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)  # (id, why)
    dropped: int = 0  # due times that waited in buffers

    def record(self) -> dict[str, Any]:
        """Return the result for programs."""
        counts = {name: getattr(self, name) for name in ("created", "changed", "unchanged", "deleted")}
        return counts | {"refused": [{"schedule": name, "why": why} for name, why in self.refused]}


def plan(
    keys: Keys, wanted: Sequence[ScheduleDef], *, labels: Mapping[str, str] | None = None, tell: Tell = untold
) -> Operation[ApplyPlan]:
    """Return the difference between ``wanted``, valid definitions, and the stored schedules.

    Dynamic schedules with all of ``labels`` that are not ``wanted`` are to be deleted; None: none is.

    Raises:
        ConfigError: one follows a schedule that it cannot follow, or has the id of a static one.
    """
    found = yield from compare(keys, wanted, tell=tell)
    remedy = "change it there, or choose another id"
    what = "a configuration defines a schedule of this id"
    problems = [Problem(each.id, "", what, remedy) for each in found if each.is_clash]
    if problems:
        raise ConfigError(problems)
    ids = {each.id for each in wanted}
    gone = [] if labels is None else (yield from surplus(keys, ids, labels))
    leaving = {each.id for each in gone} | {each.renames for each in found}
    faults = yield from _unfollowable(keys, wanted, leaving - ids)
    remedy = "name one that is there, with times of its own or after others"
    problems = [Problem(name, "after", why, remedy) for name, why in faults]
    if problems:
        raise ConfigError(problems)
    return ApplyPlan(found, gone)


def _unfollowable(
    keys: Keys, wanted: Sequence[ScheduleDef], leaving: Collection[str]
) -> Operation[list[tuple[str, str]]]:
    """Return which of ``wanted`` follow a schedule that is not there, or themselves by way of others, and why.

    Those ``leaving`` are renamed or deleted when ``wanted`` is written.
    """
    followed = {each.id: None if each.after is None else each.after.schedule for each in wanted}
    absent = set()
    for _ in range(CHAIN_MAX):
        others = sorted({name for name in followed.values() if name is not None} - followed.keys())
        if not others:
            break
        for batch in slices(others, BATCH_MAX):
            for found in (yield from one(Views(keys).inspect(batch))):
                if found.record is None:
                    absent.add(found.id)
                followed[found.id] = _followed(found.record)
    faults = []
    for each in wanted:
        name = followed[each.id]
        if name in absent:
            faults.append((each.id, f"follows {name!r}, which is no schedule of this cluster"))
        elif name in leaving:
            faults.append((each.id, f"follows {name!r}, which this call renames or deletes"))
        elif loop := loop_of(each.id, followed.get):
            faults.append((each.id, f"follows itself: {' after '.join(loop)}, so none of them is ever due"))
    return faults


def _followed(record: Record | None) -> str | None:
    try:
        after = None if record is None else record.definition().after
    except msgspec.DecodeError:
        return None
    return None if after is None else after.schedule


def carry_out(
    keys: Keys, planned: ApplyPlan, *, wall_ms: int, drops_buffered: bool = False, tell: Tell = untold
) -> Operation[ApplyResult]:
    """Write and delete as ``planned``; with ``drops_buffered`` drop the waiting due times of what changes.

    A schedule that was to be renamed goes on where its new name is refused.
    """
    result, count = ApplyResult(), len(planned.compared)
    yield from write(keys, planned.compared, result, wall_ms=wall_ms, tell=tell)
    refused = {name for name, _ in result.refused}
    kept = {each.change.definition.renamed_from for each in planned.compared if each.change and each.id in refused}
    gone = [each for each in planned.surplus if each.id not in kept]
    yield from remove(keys, gone, result, tell=lambda done: tell(count + done))
    if drops_buffered:
        changed = [each.id for each in planned.compared if each.difference is DefinitionDifference.CHANGED]
        result.dropped = yield from drop_buffered(keys, changed)
    return result


def compare(keys: Keys, wanted: Sequence[ScheduleDef], *, tell: Tell = untold) -> Operation[list[Compared]]:
    """Return each of ``wanted`` beside the stored one, in their order."""
    found: list[Compared] = []
    for batch in slices(wanted, BATCH_MAX):
        stored = yield from one(Views(keys).inspect([each.id for each in batch]))
        renamed = {each.renamed_from for each in batch} - {""}
        formers = (yield from one(Views(keys).inspect(sorted(renamed)))) if renamed else []
        former = {each.id: each.record for each in formers}
        found += [
            compared(each, now.record, now.now_ms, former=former.get(each.renamed_from))
            for each, now in zip(batch, stored, strict=True)
        ]
        tell(len(found))
    return found


def surplus(keys: Keys, wanted: Collection[str], labels: Mapping[str, str]) -> Operation[list[Record]]:
    """Read the dynamic schedules with all of ``labels`` that are not ``wanted``."""
    return browse(keys, lambda each: each.is_dynamic and each.id not in wanted and has_labels(each, labels))


def write(
    keys: Keys, found: Sequence[Compared], result: ApplyResult, *, wall_ms: int, tell: Tell = untold
) -> Operation[None]:
    """Write the differences that ``compare`` found; ``wall_ms`` is now, for jobs that a change of timing starts.

    ``result`` takes what becomes of each, also when the operation ends in between.
    """
    changes = [each.change for each in found if each.change is not None]
    result.unchanged += len(found) - len(changes)
    done = len(found) - len(changes)
    tell(done)
    left: Sequence[Change] = with_followers(changes)
    while batch := page_of(left, BATCH_MAX):
        yield from _define(keys, batch, result, wall_ms)
        left = left[len(batch) :]
        done += len(batch)
        tell(done)


def _define(keys: Keys, changes: Sequence[Change], result: ApplyResult, wall_ms: int) -> Operation[None]:
    """Write one batch; what came while a leader was busy is tried again."""
    for tries_left in reversed(range(TRIES)):
        reply = yield from one(Definitions(keys).upsert(changes, wall_ms=wall_ms))
        busy = []
        for change, (code, revision) in zip(changes, reply.results, strict=True):
            if code is DefineCode.BUSY and tries_left:
                busy.append(change)
            else:
                _count(result, change.definition.id, code, revision)
        if not busy:
            return
        changes = busy
        yield Delay(BUSY_S)


def remove(keys: Keys, records: Sequence[Record], result: ApplyResult, *, tell: Tell = untold) -> Operation[None]:
    """Delete ``records`` if they are still as they were read; for the rest see ``write``."""
    for each in (yield from delete(keys, [(record.id, record.revision) for record in records], tell=tell)):
        if each.is_gone:
            result.deleted += 1
        elif each.code is not DeleteCode.UNKNOWN:
            result.refused.append((each.schedule, each.why))


def compared(definition: ScheduleDef, record: Record | None, now_ms: int, *, former: Record | None = None) -> Compared:
    """Return how ``definition`` relates to ``record``, stored under its id, and ``former``, under that of before."""
    if record is None:
        former = former if former is not None and former.is_dynamic else None
        change = addition_of(definition, former=former, expected_revision=0)
        renames = "" if former is None else former.id
        return Compared(DefinitionDifference.CREATED, definition.id, change, renames=renames)
    if record.body == pack_definition(definition) and record.is_dynamic:
        return Compared(DefinitionDifference.UNCHANGED, definition.id, revision=record.revision)
    change, old = change_of(record, definition, now_ms=now_ms, expected_revision=record.revision)
    return Compared(
        DefinitionDifference.CHANGED,
        definition.id,
        change if record.is_dynamic else None,
        tuple(field_changes(old, definition)) if old else (),
        is_clash=not record.is_dynamic,
        revision=record.revision,
    )


def _words(change: FieldChange) -> str:
    """Return a change; of an argument only that it changes, since any value may be a secret."""
    if f"{change.field}.".startswith("template.args."):
        verb = "added" if change.before is None else "removed" if change.after is None else "changed"
        return f"{change.field}: {verb}"
    before, after = (mask_entry(change.field.rpartition(".")[2], each) for each in (change.before, change.after))
    return f"{change.field}: {before!r} → {after!r}"


_REFUSALS = {
    DefineCode.CONFLICT: "somebody else changed it: it is at revision {revision} now; look at it, and try again",
    DefineCode.CLASH: "a configuration defines a schedule of this id; change it there, or choose another id",
    DefineCode.BUSY: "the leader is just bringing in its configuration; try again in a moment",
}


def _count(result: ApplyResult, name: str, code: DefineCode, revision: int) -> None:
    if code in _REFUSALS:
        result.refused.append((name, _REFUSALS[code].format(revision=revision)))
    else:
        field_name = code.value.lower()
        setattr(result, field_name, getattr(result, field_name) + 1)
