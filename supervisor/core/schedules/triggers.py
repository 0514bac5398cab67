"""Due times of a schedule, as pure functions of its definition and time in milliseconds.

A nominal time depends on the definition alone, never on when something ran or started, so
every replica computes the same ones and a restart moves nothing. Only ``after_completion``
is measured from the end of a run: it has no nominal times of its own here, whoever sees a
run end asks ``after_end_ms``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from supervisor.core.calendars.days import CalendarEndError, day_sets
from supervisor.core.cron import fields
from supervisor.core.cron.expression import compile_cron
from supervisor.core.cron.zones import zone
from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.core.model import OWN_TRIGGER, Exclusion, ScheduleDef, When
from supervisor.core.schedules.calendar_trigger import CalendarTrigger
from supervisor.core.schedules.catchup import mark_at
from supervisor.core.schedules.exclusions import exclusions_of
from supervisor.core.schedules.moved_trigger import MovedTrigger
from supervisor.core.schedules.neighbours import ALONE, Neighbours
from supervisor.core.schedules.trigger_kinds import (
    AfterCompletion,
    AfterSchedule,
    At,
    Bounded,
    CronTrigger,
    Every,
    ExclusionTrigger,
    Trigger,
    Union,
)


class TriggerError(TenureError):
    """A definition without any trigger, with two at one place, or with an impossible interval."""

    exit_code = EXIT_CONFIG


def trigger_of(definition: ScheduleDef) -> Trigger:
    """Return the trigger of ``definition``: the union of all it names, without its exclusions, within its bounds.

    Equal timings share one trigger.

    Raises:
        TriggerError: it names none, two at one place, or an interval below 1 ms.
        CronError: an expression or a zone cannot be used.
    """
    if definition.after is not None:
        return AfterSchedule(definition.after.schedule, definition.after.outcome)
    own = When(**{name: getattr(definition, name) for name in OWN_TRIGGER})
    triggers = (own, *definition.when) if _named(own) or not definition.when else definition.when
    for when in triggers:
        _check(definition.id, when)
    timing = _Timing(
        triggers=triggers,
        timezone=definition.timezone,
        dst_gap=definition.dst_gap,
        dst_overlap=definition.dst_overlap,
        anchor_ms=0 if definition.anchor == "epoch" else definition.start_at_ms or 0,
        exclude=definition.exclude,
        on_excluded=definition.on_excluded,
        start_ms=definition.start_at_ms,
        end_ms=definition.end_at_ms,
        seed=definition.id if is_hashed(definition) else "",
    )
    return _trigger(timing)


def is_hashed(definition: ScheduleDef) -> bool:
    """Return whether due times depend on the id: an expression of a trigger or an exclusion holds ``H``."""
    named: tuple[When | Exclusion, ...] = (*definition.when, *definition.exclude)
    expressions = (definition.cron, *(each.cron for each in named))
    return any(fields.is_hashed(expression) for expression in expressions if expression is not None)


def neighbours_of(definition: ScheduleDef, nominal_ms: int) -> Neighbours:
    """Return the due times of ``definition`` around ``nominal_ms``; none where its timing cannot be read."""
    try:
        return trigger_of(definition).neighbours(nominal_ms)
    except TenureError:
        return ALONE


def loop_of(name: str, followed: Callable[[str], str | None]) -> list[str]:
    """Return the schedules from ``name`` back to itself, each followed by the one before it; empty without a loop.

    ``followed`` answers the schedule that a schedule follows, or None.
    """
    chain, at = {name: None}, followed(name)  # a set in order: chains may be long
    while at is not None and at not in chain:
        chain[at] = None
        at = followed(at)
    return [*chain, name] if at == name else []


def after_completion_ms(definition: ScheduleDef) -> int | None:
    """Return how long after the end of a run the next one is due; None when that is not asked for."""
    delays = [when.after_completion_ms for when in definition.when if when.after_completion_ms is not None]
    if definition.after_completion_ms is not None:
        delays.append(definition.after_completion_ms)
    return min(delays) if delays else None


def after_end_ms(definition: ScheduleDef, ended_ms: int) -> int | None:
    """Return the nominal time that the end of a run at ``ended_ms`` makes due.

    That is ``after_completion`` later, moved out of excluded times and up to ``start_at``; None when
    it is not asked for, or lies behind ``end_at`` or the last day of the calendar.

    Raises:
        OverExcludedError: the exclusions leave nothing.
    """
    delay = after_completion_ms(definition)
    if delay is None:
        return None
    nominal = max(ended_ms + delay, definition.start_at_ms or 0)
    if definition.exclude:
        seed = definition.id if is_hashed(definition) else ""
        try:
            nominal = exclusions_of(definition.exclude, definition.timezone, seed).free_from(nominal)
        except CalendarEndError:
            return None
    return None if definition.end_at_ms is not None and nominal > definition.end_at_ms else nominal


_TRIGGERS = ("every_ms", "cron", "calendar_interval", "at_ms", "after_completion_ms")


def _named(when: When) -> list[str]:
    return [name.removesuffix("_ms") for name in _TRIGGERS if getattr(when, name) is not None]


def _check(schedule: str, when: When) -> None:
    named = _named(when)
    if not named:
        raise TriggerError(
            f"schedule {schedule!r} sets none of every, cron, calendar_interval, at and after_completion; set one"
        )
    if len(named) > 1:
        raise TriggerError(
            f"schedule {schedule!r} sets both {' and '.join(named)}; set one, and list others under when"
        )
    if when.every_ms is not None and when.every_ms < 1:
        raise TriggerError(f"every must be at least 1 ms, got {when.every_ms} ms; use 100ms or more")


class _Timing(NamedTuple):
    """Everything that a trigger depends on."""

    triggers: tuple[When, ...]
    timezone: str
    dst_gap: str
    dst_overlap: str
    anchor_ms: int
    exclude: tuple[Exclusion, ...]
    on_excluded: str
    start_ms: int | None
    end_ms: int | None
    seed: str  # empty where nothing is hashed, so that schedules with equal timings share


@lru_cache(maxsize=16_384)
def _trigger(timing: _Timing) -> Trigger:
    parts = tuple(dict.fromkeys(_part(when, timing) for when in timing.triggers))
    found: Trigger = parts[0] if len(parts) == 1 else Union(parts)
    is_moving = timing.on_excluded != "skip"
    left_out = tuple(item for item in timing.exclude if not (is_moving and item.days))
    if left_out:
        found = ExclusionTrigger(found, exclusions_of(left_out, timing.timezone, timing.seed))
    if is_moving and len(left_out) < len(timing.exclude):
        days = day_sets(item.days for item in timing.exclude)
        found = MovedTrigger(found, days, zone(timing.timezone), 1 if timing.on_excluded == "next" else -1)
    if timing.start_ms is not None or timing.end_ms is not None:
        found = Bounded(found, timing.start_ms, timing.end_ms)
    return found


def _part(when: When, timing: _Timing) -> Trigger:
    if when.cron is not None:
        timezone = when.timezone or timing.timezone
        policies = {"dst_gap": timing.dst_gap, "dst_overlap": timing.dst_overlap}
        return CronTrigger(compile_cron(when.cron, timezone, seed=timing.seed, **policies))
    if when.every_ms is not None:
        return Every(when.every_ms, timing.anchor_ms + when.phase_ms)
    if when.calendar_interval is not None:
        timezone = when.timezone or timing.timezone
        return CalendarTrigger.of(
            when.calendar_interval, timezone, dst_gap=timing.dst_gap, dst_overlap=timing.dst_overlap
        )
    if when.at_ms is not None:
        return At(when.at_ms)
    return AfterCompletion(when.after_completion_ms or 0)


def due_between(definition: ScheduleDef, after_ms: int, until_ms: int, *, most: int) -> int:
    """Return how many due times lie after the one moment and up to the other, counted up to ``most``."""
    if definition.paused or until_ms <= after_ms:
        return 0
    try:
        return trigger_of(definition).count(after_ms, until_ms, most)
    except TenureError:  # its exclusions leave nothing
        return 0


def settled_until(definition: ScheduleDef, mark_ms: int, at_ms: int) -> int:
    """Return the watermark once nothing that was due by ``at_ms`` is owed, see ``mark_at``."""
    return mark_at(definition, trigger_of(definition), mark_ms, at_ms) if definition.jitter_ms else max(mark_ms, at_ms)
