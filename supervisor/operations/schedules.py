"""Operations on schedules.

Guarantees
    A trigger makes its run from the definition whose revision it names to Redis, and ``check`` has seen that very
    definition: who may trigger, and with which arguments, is decided about what is enqueued.

Does not guarantee
    That a schedule which changes all the time is triggered: after ``TRIES`` changes the caller hears so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.errors import TenureError
from supervisor.core.model import Envelope, ScheduleDef
from supervisor.core.schedules.manual_runs import MANUAL, extra_run, manual_run_id
from supervisor.operations import Operation
from supervisor.store.keys import Keys
from supervisor.store.schedules.control import KEYED_MAX, Control, TriggerCode
from supervisor.store.schedules.reads import Inspection, Views

TRIES = 10
Check = Callable[[ScheduleDef, Envelope], None]


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


class TriggerLimitError(TenureError):
    """``KEYED_MAX`` triggers of the schedule with a key are remembered for a day."""

    http_status = 409


class ScheduleChangesError(TenureError):
    """The definition changed during each of ``TRIES`` attempts."""

    http_status = 503
    is_retryable = True


@dataclass(frozen=True, slots=True)
class Triggered:
    """The result of a trigger: TRIGGERED, DUPLICATE (of a run enqueued before) or SKIPPED, and the id of the run."""

    code: TriggerCode
    run_id: str


def inspect(keys: Keys, schedule: str) -> Operation[tuple[Inspection, ScheduleDef]]:
    """Read one schedule and its definition.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
    """
    (found,) = yield Views(keys).inspect([schedule])
    if found.record is None:
        raise UnknownScheduleError(schedule, removed_ms=found.removed_ms)
    try:
        return found, found.record.definition()
    except msgspec.DecodeError as error:
        raise NewerScheduleError(f"a newer version wrote schedule {schedule[:200]!r}; update this one") from error


def trigger(
    keys: Keys,
    schedule: str,
    *,
    key: str | None = None,
    args: Mapping[str, Any] | None = None,
    heeds_overlap: bool = False,
    check: Check | None = None,
    wall_ms: int,
) -> Operation[Triggered]:
    """Enqueue a run of ``schedule`` now, beside its plan.

    Args:
        keys: of the cluster.
        schedule: its id.
        key: the same key within a day is the same run; without one the run is a new one.
        args: replace those of the definition, by name.
        heeds_overlap: not while as many runs as the schedule may have are unfinished.
        check: called with the definition and the run before it is enqueued; raises to refuse.
        wall_ms: now, for people.

    Raises:
        TriggerKeyError: no run can have an id with ``key``.
        UnknownScheduleError: there is no such schedule.
        NewerScheduleError: another version wrote it.
        TriggerLimitError: too many keys within a day.
        ScheduleChangesError: its definition changes all the time.
    """
    run_id = manual_run_id(schedule, key or os.urandom(8).hex())
    for _ in range(TRIES):
        found, definition = yield from inspect(keys, schedule)
        assert found.record is not None
        envelope = extra_run(
            definition, run_id=run_id, nominal_ms=found.now_ms, cause=MANUAL, wall_ms=wall_ms, args=args
        )
        if check is not None:
            check(definition, envelope)
        code = yield Control(keys).trigger(
            envelope,
            revision=found.record.revision,
            heeds_overlap=heeds_overlap,
            max_running=definition.max_running,
            is_keyed=bool(key),
        )
        if code is TriggerCode.UNKNOWN:
            raise UnknownScheduleError(schedule)
        if code is TriggerCode.CAPPED:
            raise TriggerLimitError(
                f"schedule {schedule!r} was triggered with {KEYED_MAX} keys within a day; leave the key out"
            )
        if code is not TriggerCode.STALE:  # else somebody changed it in between
            return Triggered(code, run_id)
    raise ScheduleChangesError(f"schedule {schedule!r} changes all the time; try again")
