"""Operations that change schedules that are there: trigger, pause, resume, delete.

Guarantees
    A change that ``permit`` or ``check`` allowed is one of the definition that they have seen: its revision goes with
    the change, and with another one Redis refuses. A trigger makes its run from that definition.
    A pause has its reason whole, or is refused.

Does not guarantee
    That a schedule which changes all the time is triggered: after ``TRIES`` changes the caller hears so.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from supervisor.core.effects import Call
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.manual_runs import MANUAL, extra_run, manual_run_id
from supervisor.operations import InvalidRequestError, Operation, Tell, checked_reason, one, slices, untold
from supervisor.operations.schedules import UnknownScheduleError, inspect
from supervisor.store.keys import Keys
from supervisor.store.schedules.control import (
    BATCH_MAX,
    KEYED_MAX,
    REASON_MAX,
    Control,
    PauseCode,
    ResumeCode,
    TriggerCode,
)
from supervisor.store.schedules.definitions import Definitions
from supervisor.store.schedules.definitions import DeleteCode as DeleteCode  # noqa: PLC0414 - of a deletion

TRIES = 10
FOR_DAYS_MAX = 36_600
"""Longest pause that ends by itself, a hundred years."""

C = TypeVar("C", bound=StrEnum)
P = TypeVar("P")
Permit = Callable[[ScheduleDef], None]
Check = Callable[[str, Mapping[str, Any]], None]


class TriggerLimitError(TenureError):
    """``KEYED_MAX`` triggers of the schedule with a key are remembered for a day, or a program took its id."""

    http_status = 409


class ScheduleChangesError(TenureError):
    """The definition changed during each of ``TRIES`` attempts."""

    http_status = 503
    is_retryable = True

    def __init__(self, schedule: str) -> None:
        super().__init__(f"schedule {schedule[:200]!r} changes all the time; try again")


@dataclass(frozen=True, slots=True)
class PauseTerms:
    """Reason and end of a pause, checked when it is made: at most one of ``for_s`` and ``until_ms`` ends it.

    Raises:
        InvalidRequestError: a reason that is too long, two ends, or a duration that is not above 0 seconds and at most
            ``FOR_DAYS_MAX``.
    """

    by: str
    reason: str = ""
    for_s: float | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that Redis would cut or misread."""
        if self.for_s is not None and self.until_ms is not None:
            raise InvalidRequestError("for", "and until exclude each other: give one")
        if self.for_s is not None and self.for_s <= 0:
            raise InvalidRequestError("for", "must be above 0")
        if self.for_s is not None and self.for_s > FOR_DAYS_MAX * 86_400:
            raise InvalidRequestError("for", f"must be at most {FOR_DAYS_MAX}d; without it the pause has no end")
        checked_reason(self.reason, REASON_MAX)


@dataclass(frozen=True, slots=True)
class PausedSchedule:
    """The result of a pause for one schedule; ``until_ms`` None: until somebody resumes it."""

    schedule: str
    code: PauseCode
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Triggered:
    """The result of a trigger: TRIGGERED, DUPLICATE (of a run enqueued before) or SKIPPED, and the id of the run."""

    code: TriggerCode
    run_id: str


@dataclass(frozen=True, slots=True)
class DeletedSchedule:
    """The result of a deletion for one schedule; ``revision`` is of what is stored now."""

    schedule: str
    code: DeleteCode
    revision: int

    @property
    def is_gone(self) -> bool:
        """True if it was deleted now, or within the last day."""
        return self.code in {DeleteCode.DELETED, DeleteCode.GONE}

    @property
    def why(self) -> str:
        """Reason of a refusal, for people."""
        revision = f"it is at revision {self.revision} now"
        return {
            DeleteCode.CONFLICT: f"somebody else changed it: {revision}; look at it, and try again",
            DeleteCode.CLASH: "a configuration defines it: remove it there, or pause it",
            DeleteCode.UNKNOWN: "there is no such schedule",
        }[self.code]


def delete(
    keys: Keys, schedules: Sequence[tuple[str, int | None]], *, tell: Tell = untold
) -> Operation[list[DeletedSchedule]]:
    """Delete dynamic schedules, each only at its revision where one is given; answer for each in their order."""
    results: list[DeletedSchedule] = []
    for batch in slices(schedules, BATCH_MAX):
        done = yield from one(Definitions(keys).delete(batch))
        results += [DeletedSchedule(name, *result) for (name, _), result in zip(batch, done.results, strict=True)]
        tell(len(results))
    return results


def drop_buffered(keys: Keys, schedules: Sequence[str]) -> Operation[int]:
    """Drop the due times that wait in the buffers of ``schedules``, and return how many."""
    dropped = 0
    for batch in slices(schedules, BATCH_MAX):
        dropped += sum((yield from one(Control(keys).drop_buffered(batch))))
    return dropped


def trigger(
    keys: Keys,
    schedule: str,
    *,
    key: str | None = None,
    args: Mapping[str, Any] | None = None,
    heeds_overlap: bool = False,
    permit: Permit | None = None,
    check: Check | None = None,
    wall_ms: int,
) -> Operation[Triggered]:
    """Enqueue a run of ``schedule`` now, beside its plan.

    The same ``key`` within a day is the same run; without one the run is a new one. ``args`` replace those of the
    definition, by name. ``heeds_overlap``: not while as many runs as the schedule may have are unfinished. ``permit``
    is called with the definition, ``check`` with the job's name and the run's arguments; both raise to refuse.

    Raises:
        TriggerKeyError: no run can have an id with ``key``.
        UnknownScheduleError: there is no such schedule.
        NewerScheduleError: another version wrote it.
        TriggerLimitError: too many keys within a day, or a program took the id.
        ScheduleChangesError: its definition changes all the time.
    """
    run_id = manual_run_id(schedule, key or os.urandom(8).hex())
    for _ in range(TRIES):
        found, definition = yield from inspect(keys, schedule)
        assert found.record is not None
        if permit is not None:
            permit(definition)
        envelope = extra_run(
            definition, run_id=run_id, nominal_ms=found.now_ms, cause=MANUAL, wall_ms=wall_ms, args=args
        )
        if check is not None:
            check(definition.template.job, envelope.template.args)
        code = yield Control(keys).trigger(
            envelope,
            revision=found.record.revision,
            heeds_overlap=heeds_overlap,
            max_running=definition.max_running,
            is_keyed=bool(key),
        )
        if code is TriggerCode.UNKNOWN:
            raise UnknownScheduleError(schedule)
        if code is TriggerCode.TAKEN:
            raise TriggerLimitError(
                f"run {run_id} was made by a program, not by schedule {schedule!r}: cancel it, or choose another key"
            )
        if code is TriggerCode.CAPPED:
            raise TriggerLimitError(
                f"schedule {schedule!r} was triggered with {KEYED_MAX} keys within a day; leave the key out"
            )
        if code is not TriggerCode.STALE:  # else somebody changed it in between
            return Triggered(code, run_id)
    raise ScheduleChangesError(schedule)


def pause(
    keys: Keys, schedules: Sequence[str], terms: PauseTerms, *, is_selected: bool = False, permit: Permit | None = None
) -> Operation[list[PausedSchedule]]:
    """Stop the scheduled starts of ``schedules``, any number of them; answer for each in their order.

    Where they were selected, not named, a pause that lasts longer is KEPT.

    Raises:
        UnknownScheduleError: with ``permit`` only, which is called with each definition and raises to refuse.
    """
    for_ms = None if terms.for_s is None else max(1, round(terms.for_s * 1000))
    change = functools.partial(
        Control(keys).pause, reason=terms.reason, by=terms.by, until_ms=terms.until_ms, for_ms=for_ms,
        is_selected=is_selected,
    )  # fmt: skip
    done = yield from _changed(keys, schedules, change, permit, lambda page: page.results)
    return [PausedSchedule(name, code, until_ms) for name, (code, until_ms) in done]


def resume(
    keys: Keys, schedules: Sequence[str], *, permit: Permit | None = None
) -> Operation[list[tuple[str, ResumeCode]]]:
    """End the pause of ``schedules``, any number of them; answer for each in their order.

    Raises:
        UnknownScheduleError: with ``permit`` only, which is called with each definition and raises to refuse.
    """
    done = yield from _changed(keys, schedules, Control(keys).resume, permit, lambda page: page.results)
    return [(name, code) for name, (code, _) in done]


def _changed(
    keys: Keys,
    schedules: Sequence[str],
    change: Callable[..., Call[P]],
    permit: Permit | None,
    results_of: Callable[[P], Sequence[tuple[C, Any]]],
) -> Operation[list[tuple[str, tuple[C, Any]]]]:
    """Apply ``change`` to schedules: a page at a time, or each by itself at the revision that ``permit`` has seen."""
    done: list[tuple[str, tuple[C, Any]]] = []
    for batch in slices(schedules, BATCH_MAX if permit is None else 1):
        for _ in range(TRIES):
            revision = None
            if permit is not None:
                found, definition = yield from inspect(keys, batch[0])
                permit(definition)
                revision = found.record.revision if found.record is not None else None
            results = results_of((yield change(batch, revision=revision)))
            if all(code != PauseCode.STALE for code, _ in results):
                break
        else:
            raise ScheduleChangesError(batch[0])
        done += zip(batch, results, strict=True)
    return done
