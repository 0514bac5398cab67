"""Operations that read schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.operations import PAGES_MAX, InvalidRequestError, Operation, one, pages
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules
from supervisor.store.schedules.reads import PAGE, Inspection, Record, RecordPage, Views
from supervisor.store.schedules.reads import Pause as Pause  # noqa: PLC0414 - of a record
from supervisor.store.schedules.reads import ScheduleState as ScheduleState  # noqa: PLC0414 - of an inspection
from supervisor.store.schedules.reads import Stretch as Stretch  # noqa: PLC0414
from supervisor.store.wire.fire import DuePage
from supervisor.telemetry.masking import mask


def free_texts(definition: ScheduleDef) -> dict[str, Any]:
    """Return what people wrote into ``definition``, as it may be shown: a secret may stand in any of it."""
    texts = {"labels": definition.labels, "owner": definition.owner, "description": definition.description}
    return {name: mask(text) for name, text in texts.items()}


class UnknownScheduleError(TenureError):
    """No schedule has the id; ``removed_ms`` is when one was removed, if Redis still knows."""

    http_status = 404

    def __init__(self, schedule: str, *, removed_ms: int | None = None, message: str = "") -> None:
        super().__init__(message or f"there is no schedule {schedule[:200]!r}")
        self.schedule = schedule
        self.removed_ms = removed_ms


class NewerScheduleError(TenureError):
    """The stored definition is in a format that this version cannot read."""

    http_status = 409


def page(keys: Keys, cursor: str, *, count: int) -> Operation[RecordPage]:
    """Read some of the schedules; begin with "0", end when the answer's cursor is "0"."""
    return one(Views(keys).browse(cursor, count=count))


def browse(keys: Keys, keep: Callable[[Record], bool] | None = None) -> Operation[list[Record]]:
    """Read every schedule that ``keep`` takes, each once, in the order of their ids."""
    found: list[Record] = yield from pages(Views(keys).browse, keep=keep)
    by_id = {record.id: record for record in found}
    return [by_id[name] for name in sorted(by_id)]


def read(keys: Keys, schedule: str) -> Operation[Inspection]:
    """Read one schedule; its ``record`` is never None.

    Raises:
        UnknownScheduleError: there is none.
    """
    (found,) = yield from one(Views(keys).inspect([schedule]))
    if found.record is None:
        raise UnknownScheduleError(schedule, removed_ms=found.removed_ms)
    return found


def inspect(keys: Keys, schedule: str) -> Operation[tuple[Inspection, ScheduleDef]]:
    """Read one schedule and its definition.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
    """
    found = yield from read(keys, schedule)
    assert found.record is not None
    try:
        return found, found.record.definition()
    except msgspec.DecodeError as error:
        raise NewerScheduleError(f"a newer version wrote schedule {schedule[:200]!r}; update this one") from error


def now_ms(keys: Keys) -> Operation[int]:
    """Read Redis' time."""
    return (yield from page(keys, "0", count=1)).now_ms


def has_labels(record: Record, labels: Mapping[str, str]) -> bool:
    """Return whether the definition in ``record`` has all of ``labels``."""
    if not labels:
        return True
    try:
        own = record.definition().labels
    except msgspec.DecodeError:
        return False
    return all(own.get(name) == value for name, value in labels.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """Selection of schedules: by id, those that have all of some labels, or every one.

    Raises:
        InvalidRequestError: none of these, or two.
    """

    ids: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    everything: bool = False

    def __post_init__(self) -> None:
        """Refuse what would select more or less than was meant."""
        if bool(self.ids) + bool(self.labels) + self.everything != 1:
            raise InvalidRequestError("schedules", "are selected by id, by label, or all of them: give one of these")


def selected(
    keys: Keys, which: ScheduleFilter, *, cursor: str = "0", count: int = PAGE, pages_max: int = PAGES_MAX
) -> Operation[tuple[list[str], str]]:
    """Return the ids of ``which`` in the pages from ``cursor`` on, and the cursor of the next page, "0" for none.

    Ids that were given are returned as they are, each once.
    """
    if which.ids:
        return list(dict.fromkeys(which.ids)), "0"
    found: set[str] = set()
    for _ in range(pages_max):
        part = yield Views(keys).browse(cursor, count=count)
        found.update(record.id for record in part.items if has_labels(record, which.labels))
        cursor = part.cursor
        if cursor == "0":
            break
    return sorted(found), cursor


def due_together(keys: Keys, due_ms: int, *, limit: int) -> Operation[list[str]]:
    """Read at most ``limit`` schedules that are due in the same second as ``due_ms``."""
    second_ms = due_ms // 1000 * 1000
    call = Schedules(keys).due(DuePage(after_ms=second_ms - 1, until_ms=second_ms + 999, late_ms=0, limit=limit))
    return [seen.schedule for seen in (yield from one(call)).seen]
