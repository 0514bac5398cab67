"""Operations on backfills: the runs of due times in a schedule's past.

Guarantees
    What is planned is what the leader would enqueue: due times that are known to have run, and those that a backfill of
    the last seven days enqueued, are left out unless they are forced.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef, scheduled_run_id
from supervisor.core.schedules.backfill import Chunk, SchedulePast, chunks
from supervisor.core.schedules.triggers import trigger_of
from supervisor.operations import Computing, Operation, one, slices
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


class UndecidedPauseError(TenureError):
    """A pause of the schedule has ended, and the leader has yet to decide what was due before it."""

    http_status = 409
    is_retryable = True

    def __init__(self, schedule: str) -> None:
        remedy = "try again in a moment, or, where none leads (`tenure status`), once one does"
        super().__init__(f"the pause of {schedule!r} has ended, which the leader has not yet dealt with; {remedy}")


class BackfillRun(NamedTuple):
    """One due time of a backfill."""

    schedule: str
    nominal_ms: int
    is_again: bool  # it ran or may have run: under an id of its own
    has_run: bool  # a backfill enqueued it within seven days

    @property
    def run_id(self) -> str:
        """Its id, as far as it is known before."""
        return f"{scheduled_run_id(self.schedule, self.nominal_ms)}{'#n' if self.is_again else ''}"

    @property
    def is_left_out(self) -> bool:
        """True if it is not run again."""
        return self.has_run and not self.is_again

    @property
    def effect(self) -> str:
        """The effect of the backfill on it, for people."""
        return "run again" if self.is_again else "already enqueued: left out" if self.is_left_out else "run"


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """Everything that a backfill would do."""

    definition: ScheduleDef
    known: SchedulePast
    last: Chunk
    runs: list[BackfillRun]
    skipped: int  # due times that it leaves out, beside those of ``runs``
    unknown: int  # of these: too long ago to know whether they ran

    @property
    def count(self) -> int:
        """The number of runs that it would enqueue."""
        return sum(not each.is_left_out for each in self.runs)


def plan(
    keys: Keys, schedule: str, *, from_ms: int, until_ms: int, limit: int, is_forced: bool
) -> Operation[BackfillPlan]:
    """Return the due times that a backfill of ``schedule`` would run; the arguments as of ``add`` and its request.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
        UndecidedPauseError: the due times of a pause would be left out.
    """
    found, definition = yield from inspect(keys, schedule)
    known = known_of(found)
    assert found.record is not None
    if found.is_pause_over and not found.record.invalid and until_ms > known.mark_ms:
        raise UndecidedPauseError(schedule)
    planned: list[Chunk] = yield Computing(
        chunks(trigger_of(definition), known, from_ms=from_ms, until_ms=until_ms, limit=limit, is_forced=is_forced)
    )
    nominals = [(nominal, nominal in chunk.again) for chunk in planned for nominal in chunk.run]
    ran: list[bool] = []
    for batch in slices(nominals, _REMEMBERED_BATCH):
        ran += yield BackfillCalls(keys).ran([scheduled_run_id(schedule, nominal) for nominal, _ in batch])
    runs = [
        BackfillRun(schedule, nominal, is_again or (is_forced and has_run), has_run)
        for (nominal, is_again), has_run in zip(nominals, ran, strict=True)
    ]
    skipped, unknown = sum(chunk.skipped for chunk in planned), sum(chunk.unknown for chunk in planned)
    return BackfillPlan(definition, known, planned[-1], runs, skipped, unknown)


def add(keys: Keys, schedule: str, request: Request, *, limit: int, is_forced: bool) -> Operation[str]:
    """Ask the leader for the runs of the past of ``schedule`` and return the id of the backfill.

    At most ``limit`` of them, the oldest. ``is_forced``: also what has run, or is too long ago to know.

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
