"""Applying a set of dynamic schedules: compare with the stored ones, then write the differences, batch by batch.

Guarantees
    Equal schedules are not written. Each write names the revision that was compared, so that
    somebody else's edit in between is a conflict, not lost. Applied again, after an
    interruption, it goes on where it was: schedules done by then are equal.

Does not guarantee
    That all of it happens at once: validate first, so that refusals come before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.diff import DefinitionDifference, FieldChange, field_changes
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import BATCH_MAX, Change, DefineCode, Definitions, DeleteCode
from supervisor.store.schedules.reads import Inspection, Record, Views, change_of
from supervisor.store.scripts import Call
from supervisor.store.wire.definition import pack_definition

PAGES_MAX = 10_000
TRIES = 50
Run = Callable[[Call[Any]], Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """One wanted schedule beside the stored one."""

    difference: DefinitionDifference
    id: str
    change: Change | None = None  # how to bring it in; None when nothing has to be
    fields: tuple[FieldChange, ...] = ()
    is_clash: bool = False  # a static schedule has the id
    revision: int = 0  # of what is stored


@dataclass(slots=True)
class ApplyResult:
    """Result of an apply."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)  # (id, why)


class Applying:
    """Compares and writes, through whatever runs calls."""

    def __init__(self, keys: Keys, run: Run, *, wall_ms: Callable[[], int], pause: Callable[[], None]) -> None:
        """Take the collaborators.

        Args:
            keys: of the cluster.
            run: runs a call; a call may be run again when its reply was lost.
            wall_ms: the caller's clock.
            pause: waits a moment, while a leader brings in its configuration.
        """
        self._views = Views(keys)
        self._definitions = Definitions(keys)
        self._run = run
        self._wall_ms = wall_ms
        self._pause = pause

    def compare(self, wanted: Sequence[ScheduleDef]) -> Iterator[Compared]:
        """Yield each of ``wanted`` beside the stored one, in their order."""
        for start in range(0, len(wanted), BATCH_MAX):
            batch = wanted[start : start + BATCH_MAX]
            stored: list[Inspection] = self._run(self._views.inspect([each.id for each in batch]))
            for definition, found in zip(batch, stored, strict=True):
                yield compared(definition, found.record, found.now_ms)

    def surplus(self, wanted: Mapping[str, Any] | set[str], labels: Mapping[str, str]) -> list[Record]:
        """Return the dynamic schedules with all of ``labels`` that are not ``wanted``."""
        found: dict[str, Record] = {}
        for record in self.browse():
            if record.is_dynamic and record.id not in wanted and has_labels(record, labels):
                found[record.id] = record
        return [found[name] for name in sorted(found)]

    def browse(self) -> Iterator[Record]:
        """Yield every stored schedule; one may come twice."""
        cursor = "0"
        for _ in range(PAGES_MAX):
            page = self._run(self._views.browse(cursor))
            yield from page.items
            cursor = page.cursor
            if cursor == "0":
                return

    def write(self, found: Sequence[Compared], outcome: ApplyResult) -> Iterator[int]:
        """Write the differences; yield how many of ``found`` are done after each batch."""
        pending = [each for each in found if each.change is not None]
        outcome.unchanged += len(found) - len(pending)
        done = len(found) - len(pending)
        yield done
        for start in range(0, len(pending), BATCH_MAX):
            batch = pending[start : start + BATCH_MAX]
            for name, code, revision in self._define([each.change for each in batch if each.change is not None]):
                _count(outcome, name, code, revision)
            done += len(batch)
            yield done

    def _define(self, changes: Sequence[Change]) -> Iterator[tuple[str, DefineCode, int]]:
        """Yield the result of each change; one that came while a leader was busy is tried again."""
        left = list(changes)
        for tries_left in reversed(range(TRIES)):
            reply = self._run(self._definitions.upsert(left, wall_ms=self._wall_ms()))
            busy = []
            for change, (code, revision) in zip(left, reply.results, strict=True):
                if code is DefineCode.BUSY and tries_left:
                    busy.append(change)
                else:
                    yield change.definition.id, code, revision
            left = busy
            if not left:
                return
            self._pause()

    def delete(self, records: Sequence[Record], outcome: ApplyResult) -> Iterator[int]:
        """Delete ``records`` if they are still as they were read; yield how many are done after each batch."""
        for start in range(0, len(records), BATCH_MAX):
            batch = records[start : start + BATCH_MAX]
            reply = self._run(self._definitions.delete([(each.id, each.revision) for each in batch]))
            for record, (code, revision) in zip(batch, reply.results, strict=True):
                if code in {DeleteCode.DELETED, DeleteCode.GONE}:
                    outcome.deleted += 1
                elif code is not DeleteCode.UNKNOWN:
                    outcome.refused.append((record.id, why_not_deleted(code, revision)))
            yield start + len(batch)


def compared(definition: ScheduleDef, record: Record | None, now_ms: int) -> Compared:
    """Return how ``definition`` relates to ``record``, which is stored under its id."""
    if record is None:
        return Compared(DefinitionDifference.CREATED, definition.id, Change(definition=definition, expected_revision=0))
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


def has_labels(record: Record, labels: Mapping[str, str]) -> bool:
    """Return whether the definition in ``record`` has all of ``labels``."""
    if not labels:
        return True
    try:
        own = record.definition().labels
    except msgspec.DecodeError:
        return False
    return all(own.get(name) == value for name, value in labels.items())


def why_not_defined(code: DefineCode, revision: int) -> str:
    """Return why a definition was refused, for people."""
    return {
        DefineCode.CONFLICT: f"somebody else changed it: it is at revision {revision} now; look at it, and try again",
        DefineCode.CLASH: "a configuration defines a schedule of this id; change it there, or choose another id",
        DefineCode.BUSY: "the leader is just bringing in its configuration; try again in a moment",
    }[code]


def why_not_deleted(code: DeleteCode, revision: int) -> str:
    """Return why a deletion was refused, for people."""
    return {
        DeleteCode.CONFLICT: f"somebody else changed it: it is at revision {revision} now; look at it, and try again",
        DeleteCode.CLASH: "a configuration defines it: remove it there, or pause it",
        DeleteCode.UNKNOWN: "there is no such schedule",
    }[code]


def _count(outcome: ApplyResult, name: str, code: DefineCode, revision: int) -> None:
    if code is DefineCode.CREATED:
        outcome.created += 1
    elif code is DefineCode.CHANGED:
        outcome.changed += 1
    elif code is DefineCode.UNCHANGED:
        outcome.unchanged += 1
    else:
        outcome.refused.append((name, why_not_defined(code, revision)))
