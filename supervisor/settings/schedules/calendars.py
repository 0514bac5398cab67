"""Named calendars: files of days become dates of the configuration, and dates become what schedules keep.

Guarantees
    After loading there are no files any more: a calendar is its dates, each with the line that it comes from, so that
    children of the tree and a written configuration have the same days.
    A schedule keeps the days themselves: whoever leads fires by those that its definition in Redis has.

Does not guarantee
    That a dynamic schedule follows a calendar that changes later: it is applied again for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date

from supervisor.core.calendars.days import DAY_S, EPOCH, WEEKDAYS, ends_soon, last_day
from supervisor.core.calendars.icalendar import LENGTH_MAX, IcsDays, IcsError, read_ics
from supervisor.core.errors import Problem
from supervisor.core.model import CalendarDays, Exclusion
from supervisor.core.suggestions import suggestion
from supervisor.settings.base import Path, Violation
from supervisor.settings.document import Node, format_path
from supervisor.settings.interpolate import directory_of
from supervisor.settings.schedules.instants import is_date
from supervisor.settings.schedules.rules import Faults, exclusion_of
from supervisor.settings.schedules.settings import DATES_MAX, ExcludeSettings, NamedCalendarSettings, ScheduleSettings
from supervisor.trust import open_regular

ICS_BYTES_MAX = 1024 * 1024
_ENTRY = re.compile(r"(?:(\d{4}-\d\d-\d\d)(?:/(\d{4}-\d\d-\d\d))?|(\d\d)-(\d\d))(?:\s+(\S.*))?", re.ASCII)
_EXAMPLE = "write 2026-12-25, 2026-12-24/2026-12-31, or 12-25 for every year; a name may follow"
_OLDER_VERSIONS = "days of a calendar"
"""Stands as an expression beside days: versions that do not know them refuse it, and fire nothing on a holiday."""


def with_ics_dates(root: Node, problems: list[Problem]) -> Node:
    """Return the merged tree with the days of each ``ics`` among the ``dates`` of its calendar."""
    calendars = root.child("calendars")
    if calendars is None or not isinstance(calendars.value, dict):
        return root
    entries = {name: _expanded(name, node, problems) for name, node in calendars.value.items()}
    return Node({**root.value, "calendars": Node(entries, calendars.origin)}, root.origin)


def _expanded(name: str, node: Node, problems: list[Problem]) -> Node:
    ics, dates = node.child("ics"), node.child("dates")
    if ics is None or not isinstance(ics.value, str):
        return node
    file = directory_of(ics.origin) / ics.value
    written = list(dates.value) if dates is not None and isinstance(dates.value, list) else []
    try:
        found = [Node(_entry(each), f"{file}:{each.line}") for each in read_ics(_read(str(file)))]
    except IcsError as error:
        where = f"{file}:{error.line}" if error.line else ics.origin
        problems.append(Problem(where, format_path(("calendars", name, "ics")), f"{file} {error}", error.remedy))
        found = []
    kept = {key: child for key, child in node.value.items() if key != "ics"}
    return Node({**kept, "dates": Node(written + found, ics.origin)}, node.origin)


def _read(file: str) -> str:
    try:
        with os.fdopen(open_regular(file, follows=True), "rb") as opened:
            raw = opened.read(ICS_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise IcsError(0, f"cannot be read: {reason}", "a path counts from the file that names it") from None
    if len(raw) > ICS_BYTES_MAX:
        raise IcsError(0, f"is larger than {ICS_BYTES_MAX // 1024} KiB", "keep the years that are needed")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise IcsError(0, "is not UTF-8", "save the file as UTF-8") from None


def _entry(days: IcsDays) -> str:
    first, last = days.first.isoformat(), date.fromordinal(days.first.toordinal() + days.length - 1).isoformat()
    day = first[5:] if days.is_annual else first if days.length == 1 else f"{first}/{last}"
    return f"{day} {days.name}".rstrip()


def faults_of_calendars(calendars: Mapping[str, NamedCalendarSettings]) -> list[Violation]:
    """Return the faults of ``calendars``: one without days, or a date that is none."""
    faults = Faults()
    for name, calendar in calendars.items():
        path: Path = ("calendars", name)
        if not calendar.dates and not calendar.weekdays:
            paths = (path, *((*path, key) for key in ("ics", "dates", "weekdays")))
            faults.append(Violation(paths, "has no days", "give one of ics, dates and weekdays"))
        if len(calendar.dates) > DATES_MAX:
            faults.add((*path, "dates"), f"are more than {DATES_MAX}", "keep the years that are needed")
        for index, text in enumerate(calendar.dates):
            faults.tried((*path, "dates", index), _parsed, text)
    return faults


def calendar_faults(path: Path, schedule: ScheduleSettings, calendars: Collection[str]) -> Iterator[Violation]:
    """Yield the faults in the use of calendars by one schedule: unknown ones, and days that cannot move."""
    named = [((*path, "exclude", index), item.calendar) for index, item in enumerate(schedule.exclude)]
    named += [((*path, "only", index), name) for index, name in enumerate(schedule.only)]
    for place, name in named:
        if name is not None and name not in calendars:
            known = f"; known: {', '.join(sorted(calendars))}" if calendars else ""
            remedy = f"define it under calendars, such as {name}: {{weekdays: [sat, sun]}}{known}"
            remedy = suggestion(name, sorted(calendars), remedy)
            yield Violation((place,), f"no calendar is called {name!r}", remedy)
    if schedule.on_excluded == "skip":
        return
    if not schedule.exclude and not schedule.only:
        yield Violation(((*path, "on_excluded"),), "has no effect without exclude or only", "remove it")
    for index, item in enumerate(schedule.exclude):
        if item.cron is not None or not all(is_date(text) for text in (item.from_, item.until) if text is not None):
            message = f"is no whole day, and on_excluded: {schedule.on_excluded} moves due times off days"
            remedy = "write days or calendars; weekends are a calendar with weekdays: [sat, sun]"
            yield Violation(((*path, "exclude", index),), message, remedy)


def days_of(name: str, calendar: NamedCalendarSettings) -> CalendarDays:
    """Return ``calendar`` as schedules keep it. It must have no faults."""
    parsed = [_parsed(text) for text in calendar.dates]
    return CalendarDays(
        calendar=name,
        weekdays=tuple(sorted(_WEEKDAYS.index(day) for day in set(calendar.weekdays))),
        dates=tuple(sorted((first, length, name) for first, length, name in parsed if length)),
        annual=tuple(sorted((month_day, name) for month_day, length, name in parsed if not length)),
    )


def ends_of(calendars: Mapping[str, NamedCalendarSettings]) -> Iterator[tuple[str, float]]:
    """Yield when the last day of each of ``calendars`` is over, in seconds since 1970; not those that recur."""
    for name, calendar in calendars.items():
        last = last_day(days_of(name, calendar))
        if last is not None:
            yield name, (last + 1) * DAY_S


def ending_notes(calendars: Mapping[str, NamedCalendarSettings], *, now_ms: int) -> list[str]:
    """Return which of ``calendars`` have no entries for the next two months, in words."""
    found = (ends_soon(days_of(name, calendar), now_ms=now_ms) for name, calendar in calendars.items())
    return [note for note in found if note is not None]


def exclusions_of_schedule(
    schedule: ScheduleSettings, timezone: str, calendars: Mapping[str, NamedCalendarSettings]
) -> tuple[Exclusion, ...]:
    """Return what ``schedule`` leaves out, as Redis keeps it. It must have no faults."""
    found = [_exclusion(item, timezone, schedule.on_excluded, calendars) for item in schedule.exclude]
    only = [days_of(name, calendars[name]) for name in schedule.only]
    if only:
        days = CalendarDays(
            calendar=", ".join(schedule.only),
            is_only=True,
            weekdays=tuple(sorted({day for each in only for day in each.weekdays})),
            dates=tuple(sorted(entry for each in only for entry in each.dates)),
            annual=tuple(sorted(entry for each in only for entry in each.annual)),
        )
        found.append(Exclusion(cron=_OLDER_VERSIONS, days=days))
    return tuple(found)


def _exclusion(
    item: ExcludeSettings, timezone: str, on_excluded: str, calendars: Mapping[str, NamedCalendarSettings]
) -> Exclusion:
    if item.calendar is not None:
        return Exclusion(cron=_OLDER_VERSIONS, days=days_of(item.calendar, calendars[item.calendar]))
    if on_excluded == "skip":
        return exclusion_of(item, timezone)
    first, last = (date.fromisoformat((item.date or text or "").strip()) for text in (item.from_, item.until))
    entry = ((first - EPOCH).days, (last - first).days + 1, "")
    return Exclusion(cron=_OLDER_VERSIONS, days=CalendarDays(dates=(entry,)))


def _parsed(text: str) -> tuple[int, int, str]:
    """Return the first day, the number of days and the name of one entry; for a date of every year 0 days.

    Raises:
        ValueError: it is none. Fault and remedy are separated by a semicolon.
    """
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a day; {_EXAMPLE}")
    name = " ".join((match[5] or "").split())
    try:
        if match[3]:
            annual = date(2024, int(match[3]), int(match[4]))  # a leap year
            return 100 * annual.month + annual.day, 0, name
        first = date.fromisoformat(match[1])
        last = date.fromisoformat(match[2] or match[1])
    except ValueError:
        raise ValueError(f"{text!r} is not in the calendar; {_EXAMPLE}") from None
    length = (last - first).days + 1
    if not 1 <= length <= LENGTH_MAX or not 1970 <= first.year <= 9986:
        raise ValueError(f"{text!r} names {length} days; give from 1 to {LENGTH_MAX}, since 1970")
    return (first - EPOCH).days, length, name


_WEEKDAYS = tuple(day[:3].lower() for day in WEEKDAYS)
