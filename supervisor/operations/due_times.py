"""Operations on due times: the next ones of a schedule, and their explanation in words.

Guarantees
    They are computed by the code that fires. An expression that is no schedule yet is read as one of a configuration.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from supervisor.core.calendars.moments import Moment
from supervisor.core.errors import ConfigError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules import checks
from supervisor.core.schedules.catchup import next_fire
from supervisor.core.schedules.lints import calendar_notes, lints, sentences
from supervisor.core.schedules.triggers import trigger_of
from supervisor.operations import Computing, Operation, one
from supervisor.operations.schedules import due_together, inspect
from supervisor.settings.schedules.definitions import validate_schedules
from supervisor.settings.sections.models import Settings
from supervisor.store.keys import Keys
from supervisor.store.queues.jobs import AnyJob
from supervisor.store.schedules.reads import Inspection, ScheduleState, Views

AWAITED_MAX = 10  # unfinished runs that are named
LOOKED_AT_MAX = 100
NAMED_MAX = 3
SECOND_MAX = 200


class DueTime(NamedTuple):
    """One due time: its nominal time, the same on the schedule's clock, and when it is fired."""

    nominal_ms: int
    local: str
    fire_ms: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Due times of a schedule in sentences, and its pitfalls."""

    sentences: list[str]
    notes: list[str]


def due_times(definition: ScheduleDef, after_ms: int) -> Iterator[DueTime]:
    """Yield the times after ``after_ms`` at which ``definition`` is due."""
    trigger = trigger_of(definition)
    while (planned := next_fire(definition, trigger, after_ms)) is not None:
        after_ms = planned.nominal_ms
        yield DueTime(after_ms, Moment(after_ms, definition.timezone).iso(), planned.fire_ms)


def coming(found: Inspection) -> Iterator[DueTime]:
    """Return the next times at which a stored schedule is due, no more than its ``max_runs`` leaves."""
    assert found.record is not None
    definition, counters = found.record.definition(), ScheduleState.parse(found.state).counters
    if counters.completed_ms or found.record.invalid:
        return iter(())
    left = None if definition.max_runs is None else max(0, definition.max_runs - counters.fired)
    return islice(due_times(definition, found.now_ms), left)


def upcoming(
    keys: Keys, schedule: str, *, count: int, from_ms: int | None = None
) -> Operation[tuple[Inspection, ScheduleDef, list[DueTime]]]:
    """Return a schedule and its next ``count`` due times, or with ``from_ms`` those after it, whatever its state.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
    """
    found, definition = yield from inspect(keys, schedule)
    times = coming(found) if from_ms is None else due_times(definition, from_ms)
    return found, definition, (yield Computing(islice(times, count)))


def explain(keys: Keys, schedule: str) -> Operation[tuple[ScheduleDef, Explanation]]:
    """Return the explanation of a stored schedule: also what it waits for, and how many are due with it.

    Raises:
        UnknownScheduleError: there is none.
        NewerScheduleError: another version wrote it.
    """
    found, definition = yield from inspect(keys, schedule)
    (said,) = yield Computing(map(functools.partial(explained, now_ms=found.now_ms), [definition]))
    said.sentences.extend((yield from _awaited_words(keys, found, definition)))
    next_ms = None if found.record is None else found.record.next_ms
    together = (yield from due_together(keys, next_ms, limit=SECOND_MAX + 1)) if next_ms and next_ms > 0 else []
    if others := sum(name != schedule for name in together):
        more = "at least " if others >= SECOND_MAX else ""
        noun = "schedule is" if others == 1 else "schedules are"
        said.notes.append(
            f"{more}{others} other {noun} due in the same second as its next run; jitter or H spreads them"
        )
    return definition, said


def _awaited_words(keys: Keys, found: Inspection, definition: ScheduleDef) -> Operation[list[str]]:
    """Return in sentences what a schedule that follows another waits for; none for others."""
    if definition.after is None:
        return []
    name = definition.after.schedule
    (other,) = yield from one(Views(keys).inspect([name]))
    if other.record is None:
        return [f"There is no schedule {name}: it is never due."]
    words = [f"Its nominal times are those of {name}: see tenure schedule next {name}."]
    if other.live:
        words.append(f"It waits for the end of {', '.join(run for _, run in other.live[:AWAITED_MAX])}.")
    if found.buffered:
        words.append(f"{found.buffered} of its runs wait for their turn.")
    return words


def explained(definition: ScheduleDef, *, now_ms: int) -> Explanation:
    """Return the explanation of ``definition``, as far as it is computed from it."""
    profile = definition.template.profile
    said = [*sentences(definition), *([f"Goes by profile {profile}."] if profile else [])]
    notes = [*lints(definition, now_ms=now_ms), *calendar_notes(definition, now_ms=now_ms)]
    kept_back = _kept_back(definition, now_ms=now_ms)
    return Explanation([*said, *checks.sentences(definition.checks)], [*notes, *kept_back])


def unsaved(timing: Mapping[str, str | None], *, where: str) -> ScheduleDef:
    """Return the definition of an expression or interval: ``cron`` or ``every``, and ``timezone``.

    Raises:
        ConfigError: it cannot be used; names ``where`` it was written.
    """
    entry = {"job": "preview"} | {name: value for name, value in timing.items() if value}
    (definition,) = validated({"preview": entry}, where=where)
    return definition


def validated(entries: Any, *, where: str, settings: Settings | None = None) -> tuple[ScheduleDef, ...]:
    """Return the definitions in ``entries``, of whatever jobs they are: here only their times matter.

    Raises:
        ConfigError: with every problem.
    """
    named: dict[str, Any] = {} if settings is None else {"profiles": settings.profiles, "calendars": settings.calendars}
    found = validate_schedules(entries, known=AnyJob(), where=where, **named)
    if found.problems:
        raise ConfigError(found.problems)
    return found.definitions


def _kept_back(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return which of the next due times a check keeps back, and why."""
    of_profile = checks.checks_of_definition(definition)
    if of_profile is None:
        return []
    trigger, found = trigger_of(definition), list[str]()
    for each in islice(due_times(definition, now_ms), LOOKED_AT_MAX):
        if (refusal := of_profile.refusal(each.nominal_ms, each.fire_ms, trigger)) is not None:
            found.append(f"{each.local} will not be fired: {refusal.point} {refusal.hook}: {refusal.reason}")
    more = len(found) - NAMED_MAX
    return found[:NAMED_MAX] + ([f"and {more} more of the next {LOOKED_AT_MAX} due times"] if more > 0 else [])
