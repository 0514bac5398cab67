"""Lints: warnings about valid schedules that may differ from their author's intention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import msgspec

from supervisor.core.calendars.days import DAY_S, date_of, ends_soon, reason_of
from supervisor.core.cron.dst import Gap
from supervisor.core.cron.explain import PASSES
from supervisor.core.cron.expression import Cron
from supervisor.core.cron.zones import zone
from supervisor.core.durations import format_duration
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.calendar_trigger import CalendarTrigger
from supervisor.core.schedules.moved_trigger import MovedTrigger
from supervisor.core.schedules.templating import NEIGHBOURS, names_in, needs_rendering
from supervisor.core.schedules.trigger_kinds import Bounded, CronTrigger, ExclusionTrigger, Trigger, Union
from supervisor.core.schedules.triggers import after_completion_ms, trigger_of

HORIZON_MS = 2 * 366 * 86_400_000
DATES_MAX = 2
EXCLUDED_SHOWN, EXCLUDED_SHOWN_EACH = 5, 2  # a calendar of weekends hides no holiday
HOUR_MS = 3_600_000
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(ScheduleDef)}

_GAPS = {Gap.RUN: "runs as the gap ends", Gap.SKIP: "does not run", Gap.SHIFT: "runs later by the gap"}


def sentences(definition: ScheduleDef) -> list[str]:
    """Return in words when ``definition`` is due, one sentence for each of its triggers."""
    trigger = trigger_of(definition)
    found = [_sentence(part) for part in _parts(trigger)]
    times = sum(item.days is None or not item.days.calendar for item in definition.exclude)
    found += [f"Except {times} exclusion(s)."] if times else []
    for days in (item.days for item in definition.exclude if item.days is not None and item.days.calendar):
        found.append(f"{'Only' if days.is_only else 'Not'} on days of calendar {days.calendar}.")
    if definition.on_excluded != "skip":
        found.append(f"A due time on another day moves to the {definition.on_excluded} one that is not left out.")
    for name, at_ms in (("Not before", definition.start_at_ms), ("Not after", definition.end_at_ms)):
        if at_ms is not None:
            found.append(f"{name} {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()}.")
    return found


def lints(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return the warnings for the next two years."""
    crons = [part.cron for part in _parts(trigger_of(definition)) if isinstance(part, CronTrigger)]
    over = never_due(definition, now_ms=now_ms)
    has_local = any(isinstance(part, CronTrigger | CalendarTrigger) for part in _parts(trigger_of(definition)))
    notes = [*([over] if over else []), *_idle(definition, has_local=has_local)]
    notes += [note for judge in (_either_day, _numbered_days, _uneven_step) for note in map(judge, crons) if note]
    return [*notes, *(note for cron in crons for note in _clock_changes(cron, now_ms))]


def calendar_notes(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return the next days of due times that calendars leave out, with the reason, and which calendars end soon."""
    calendars = [item.days for item in definition.exclude if item.days is not None]
    others = tuple(item for item in definition.exclude if item.days is None)
    rhythm = trigger_of(msgspec.structs.replace(definition, exclude=others, on_excluded="skip"))
    of, found, shown = zone(definition.timezone), list[str](), Counter[str]()
    at_ms = rhythm.next_ms(now_ms) if calendars else None
    while at_ms is not None and at_ms < now_ms + HORIZON_MS and len(found) < EXCLUDED_SHOWN:
        day = (at_ms // 1000 + of.at(at_ms // 1000).offset) // DAY_S
        reasons = {each.calendar: reason for each in calendars if (reason := reason_of(each, day)) is not None}
        if any(shown[calendar] < EXCLUDED_SHOWN_EACH for calendar in reasons):
            found.append(f"{date_of(day)} is {'; '.join(reasons.values())}")
        shown.update(reasons.keys())
        at_ms = rhythm.next_ms(of.first_showing((day + 1) * DAY_S) * 1000 - 1)
    return [*found, *(note for each in calendars if (note := ends_soon(each, now_ms=now_ms)) is not None)]


def never_due(definition: ScheduleDef, *, now_ms: int) -> str | None:
    """Return a note where all that it names has passed: most often an instant with the wrong year."""
    is_bounded = definition.end_at_ms is not None or definition.at_ms is not None
    is_bounded = is_bounded or any(item.days is not None and item.days.is_only for item in definition.exclude)
    if not is_bounded and all(when.at_ms is None for when in definition.when):
        return None  # it goes on for ever
    try:
        is_over = trigger_of(definition).next_ms(now_ms) is None
    except TenureError as error:
        return str(error)
    if not is_over or (after_completion_ms(definition) is not None and not _has_ended(definition, now_ms)):
        return None
    return "is not due any more: every time that it names has passed"


def begins_anew(definition: ScheduleDef) -> str | None:
    """Return a note where all runs of a dynamic schedule come again: it is deleted, and its file applied once more."""
    if definition.max_runs is None or definition.retain_completed_ms != DEFAULTS["retain_completed_ms"]:
        return None
    kept = format_duration(definition.retain_completed_ms / 1000)
    return (
        f"is deleted {kept} after the last run of max_runs, and runs as often again when applied after that: "
        "set retain_completed to how long its file is applied, up to 3660d"
    )


def _has_ended(definition: ScheduleDef, now_ms: int) -> bool:
    return definition.end_at_ms is not None and definition.end_at_ms < now_ms


def _idle(definition: ScheduleDef, *, has_local: bool) -> Iterator[str]:
    """Yield the settings that have no effect beside the others."""
    if definition.cancel_grace_ms != DEFAULTS["cancel_grace_ms"] and definition.overlap != "cancel_other":
        yield f"cancel_grace has no effect on overlap: {definition.overlap}; it is for cancel_other"
    if definition.max_catchup != DEFAULTS["max_catchup"] and definition.missed != "all":
        yield f"max_catchup has no effect on missed: {definition.missed}; it is for all"
    if definition.max_running != DEFAULTS["max_running"] and definition.overlap == "allow":
        yield "max_running has no effect on overlap: allow, which never waits"
    if definition.on_resume == "catchup" and definition.missed == "skip":
        yield "on_resume: catchup has no effect on missed: skip, which makes up for nothing"
    if definition.every_ms is not None and definition.jitter_ms > definition.every_ms:
        yield "jitter is longer than every, and counts as that long: fires keep their order"
    needs_zone = has_local or definition.exclude or needs_rendering(definition.template.args)
    if definition.timezone != "UTC" and not needs_zone and (definition.every_ms or 0) > HOUR_MS:
        yield "timezone does not move the grid of every, which runs through 1970 in UTC; use cron or calendar_interval"
    lone = sorted(names_in(definition.template.args) & set(NEIGHBOURS))
    if lone and not _has_interval(definition):
        yield f"{', '.join(lone)} in args: null, because only every, cron, calendar_interval and after have intervals"
    if definition.pause_reason and not definition.paused:
        yield "pause_reason has no effect without paused: true"
    for name, value in (("dst_gap", definition.dst_gap), ("dst_overlap", definition.dst_overlap)):
        if value != DEFAULTS[name] and not has_local:
            yield f"{name} has no effect without cron or calendar_interval"


def _has_interval(definition: ScheduleDef) -> bool:
    periods: list[object] = [definition.every_ms, definition.cron, definition.after]
    for when in definition.when:
        periods += [when.every_ms, when.cron, when.calendar_interval]
    return any(period is not None for period in periods)


def _parts(trigger: Trigger) -> Iterator[Trigger]:
    if isinstance(trigger, Union):
        for part in trigger.parts:
            yield from _parts(part)
    elif isinstance(trigger, ExclusionTrigger | Bounded | MovedTrigger):
        yield from _parts(trigger.inner)
    else:
        yield trigger


def _sentence(part: Trigger) -> str:
    if isinstance(part, CronTrigger):
        return part.cron.explain()
    words = part.describe()
    return f"{words[0].upper()}{words[1:]}."


def _either_day(cron: Cron) -> str | None:
    """Return a note where both day fields are restricted: cron then takes either, which surprises people."""
    if not cron.matches_either_day:
        return None
    day_of_month, _, day_of_week = cron.expression.split()[-3:]
    return (
        f"{cron.expression!r} is due on days that match day-of-month {day_of_month} OR day-of-week {day_of_week}, "
        f"as in every cron; for both at once, exclude the other days, or write the weekday as MON#1 (the first Monday)"
    )


def _numbered_days(cron: Cron) -> str | None:
    """Return a note where days of the week have numbers and the rest looks like Quartz, which counts otherwise."""
    words = cron.expression.split()
    is_like_quartz = len(words) > 5 or "?" in words
    if not is_like_quartz or not re.search(r"(?<!#)[0-9]", words[-1]):
        return None
    return (
        f"{cron.expression!r} has numbers for days of the week: here 1 is Monday, in Quartz, Spring and EventBridge "
        f"it is Sunday; write names such as MON-FRI"
    )


def _uneven_step(cron: Cron) -> str | None:
    """Return a note where the minutes of an hour are stepped through unevenly."""
    word = cron.expression.split()[-5] if len(cron.expression.split()) > 4 else ""
    step = int(word[2:]) if re.fullmatch(r"\*/[0-9]{1,2}", word) else 1
    if 60 % max(step, 1) == 0:
        return None
    return f"{cron.expression!r} begins anew with each hour; for an even interval, write every: {step}m"


def _clock_changes(cron: Cron, now_ms: int) -> Iterator[str]:
    """Yield where a change of the clock meets a fixed time, the next ones only."""
    gap, overlap = cron.policy
    for at, is_skipped in islice(cron.clock_changes(now_ms // 1000, HORIZON_MS // 1000), DATES_MAX):
        if is_skipped:
            yield (
                f"{cron.expression!r} falls into a gap of the clock on {date_of(at // DAY_S)} in {cron.timezone}: "
                f"dst_gap {gap}, so it {_GAPS[gap]}"
            )
        else:
            yield (
                f"{cron.expression!r} comes twice on {date_of(at // DAY_S)} in {cron.timezone}: "
                f"dst_overlap {overlap}, so it runs {PASSES[overlap]}"
            )
