"""Operations on backfills: the runs of due times in a schedule's past.

Guarantees
    What is planned is what the leader would enqueue: due times that are known to have run, and those that a backfill of
    the last seven days enqueued, are left out unless they are forced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef, scheduled_run_id
from supervisor.core.schedules.backfill import Chunk, SchedulePast
from supervisor.operations import Operation, one, slices
from supervisor.operations.schedules import UnknownScheduleError, inspect
from supervisor.store.keys import Keys
from supervisor.store.schedules.backfills import OVERLAPS as OVERLAPS  # noqa: PLC0414 - of a request
from supervisor.store.schedules.backfills import (
    REMEMBERED_MAX,
    AddCode,
    Backfill,
    BackfillCalls,
    BackfillCancelCode,
    Request,
    known_of,
)
from supervisor.store.schedules.backfills import BackfillState as BackfillState  # noqa: PLC0414

_REMEMBERED_BATCH = 500


class UnknownBackfillError(TenureError):
    """No backfill of the last seven days has the id."""

    http_status = 404


class BackfillLimitError(TenureError):
    """Too many backfills, or backfilled runs of one schedule, would have to be remembered."""

    http_status = 409


class BackfillRun(NamedTuple):
    """One due time of a backfill."""

    nominal_ms: int
    is_again: bool  # it ran or may have run: under an id of its own
    has_run: bool  # a backfill enqueued it within seven days


def past(keys: Keys, schedule: str) -> Operation[tuple[ScheduleDef, SchedulePast]]:
    """Read a schedule's definition and its remembered past.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
    """
    found, definition = yield from inspect(keys, schedule)
    return definition, known_of(found)


def planned_runs(
    keys: Keys, definition: ScheduleDef, planned: Sequence[Chunk], *, is_forced: bool
) -> Operation[list[BackfillRun]]:
    """Return every due time of ``planned``, with those that a backfill enqueued already."""
    nominals = [(nominal, nominal in chunk.again) for chunk in planned for nominal in chunk.run]
    ran: list[bool] = []
    for batch in slices(nominals, _REMEMBERED_BATCH):
        ran += yield BackfillCalls(keys).ran([scheduled_run_id(definition.id, nominal) for nominal, _ in batch])
    return [
        BackfillRun(nominal, is_again or (is_forced and has_run), has_run)
        for (nominal, is_again), has_run in zip(nominals, ran, strict=True)
    ]


def add(keys: Keys, schedule: str, request: Request, *, limit: int, is_forced: bool) -> Operation[str]:
    """Ask the leader for the runs of the past of ``schedule`` and return the id of the backfill.

    Args:
        keys: of the cluster.
        schedule: its id.
        request: from when to when, by whom, and how runs may overlap.
        limit: at most so many runs, the oldest.
        is_forced: also what has run, or is too long ago to know.

    Raises:
        UnknownScheduleError: there is no such schedule.
        BackfillLimitError: too much would have to be remembered.
    """
    name = os.urandom(4).hex()
    code = yield BackfillCalls(keys).add(name, schedule, request, limit=limit, is_forced=is_forced)
    if code is AddCode.UNKNOWN:
        raise UnknownScheduleError(schedule)
    if code is AddCode.FULL:
        remedy = "cancel one, or wait"
        raise BackfillLimitError(f"100 backfills are under way, or 1000 were asked for within seven days; {remedy}")
    if code is AddCode.CAPPED:
        remedy = "would have to be remembered for seven days; ask for fewer, or wait"
        raise BackfillLimitError(f"more than {REMEMBERED_MAX} backfilled runs of {schedule} {remedy}")
    return name


def remembered(keys: Keys, schedule: str | None = None) -> Operation[list[Backfill]]:
    """Read the backfills of the last seven days, newest last: all, or those of one schedule."""
    found = yield from one(BackfillCalls(keys).all())
    return [each for each in found if schedule in {None, each.schedule}]


def show(keys: Keys, backfill: str) -> Operation[Backfill]:
    """Read one backfill.

    Raises:
        UnknownBackfillError: none of the last seven days has the id.
    """
    found = [each for each in (yield from remembered(keys)) if each.id == backfill]
    if not found:
        raise UnknownBackfillError(
            f"no backfill is called {backfill[:200]!r}; `tenure schedule backfill --list` shows all"
        )
    return found[0]


def cancel(keys: Keys, backfill: str) -> Operation[Backfill]:
    """Stop a backfill, whose enqueued runs stay, and return it; one that had ended is as it was.

    Raises:
        UnknownBackfillError: none of the last seven days has the id.
    """
    code, stopped = yield from one(BackfillCalls(keys).cancel(backfill))
    if code is BackfillCancelCode.UNKNOWN or stopped is None:
        return (yield from show(keys, backfill))
    return stopped
