"""Cron by brute force: every minute is looked at, as cron's main loop does. For comparison with the engine."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from supervisor.core.cron.expression import compile_cron

EPOCH = date(1970, 1, 1)
NAMES = {name: index for index, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))} | {
    name: index + 1
    for index, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
    )
}  # fmt: skip
CORRECTION_MIN = 180


def instant(text: str) -> int:
    """Return the seconds since 1970 of an ISO 8601 text."""
    return int(datetime.fromisoformat(text).timestamp())


def values(field: str, low: int, high: int) -> set[int]:
    """Return the numbers of a field of lists, ranges, steps and names."""
    found: set[int] = set()
    for element in field.split(","):
        span, _, step = element.partition("/")
        first, _, last = (f"{low}-{high}" if span in "*?" else span).partition("-")
        numbers = [NAMES[part.upper()] if part.upper() in NAMES else int(part) for part in (first, last or first)]
        found |= set(range(numbers[0], numbers[1] + 1, int(step or 1)))
    return found


def on_date(day: date, field: str) -> bool:
    """Return whether the day-of-month field allows ``day``, judged from the calendar alone."""
    length = monthrange(day.year, day.month)[1]
    for element in field.upper().split(","):
        if element == "L":
            matches = day.day == length
        elif element.startswith("L-"):
            matches = day.day == length - int(element[2:])
        elif element.endswith("W"):
            wanted = length if element == "LW" else int(element[:-1])
            matches = wanted <= length and day == _nearest_weekday(day.replace(day=wanted))
        else:
            matches = day.day in values(element, 1, 31)
        if matches:
            return True
    return False


def _nearest_weekday(day: date) -> date:
    """Return the closest Monday to Friday in the month of ``day``: try the days around it, nearest first."""
    for shift in (0, -1, 1, -2, 2):
        at = day + timedelta(days=shift)
        if at.month == day.month and at.isoweekday() <= 5:
            return at
    raise AssertionError("five days in a row without a weekday")


def on_weekday(day: date, field: str) -> bool:
    """Return whether the day-of-week field allows ``day``."""
    for element in field.upper().split(","):
        if "#" in element:
            name, _, nth = element.partition("#")
            matches = _is_day(day, name) and (day.day - 1) // 7 + 1 == int(nth)
        elif element[-1] == "L":
            matches = _is_day(day, element[:-1]) and (day + timedelta(days=7)).month != day.month
        else:
            matches = day.isoweekday() % 7 in {number % 7 for number in values(element, 0, 6)}
        if matches:
            return True
    return False


def _is_day(day: date, name: str) -> bool:
    return day.isoweekday() % 7 == (NAMES[name] if name in NAMES else int(name)) % 7


class Calendar:
    """The readings of a wall clock that an expression of five fields allows."""

    def __init__(self, expression: str) -> None:
        minute, hour, self.date, month, self.weekday = expression.split()
        self.minutes = {60 * h + m for h in values(hour, 0, 23) for m in values(minute, 0, 59)}
        self.months = values(month, 1, 12)
        self.is_wildcard = minute[0] == "*" or hour[0] == "*"
        self.needs_both = self.date[0] in "*?" or self.weekday[0] in "*?"
        self.has_day = lru_cache(maxsize=None)(self._has_day)

    def _has_day(self, number: int) -> bool:
        day = EPOCH + timedelta(days=number)
        dates, weekdays = on_date(day, self.date), on_weekday(day, self.weekday)
        return day.month in self.months and ((dates and weekdays) if self.needs_both else (dates or weekdays))

    def has(self, minute: int) -> bool:
        """Return whether a minute, counted from 1970-01-01T00:00 on the wall clock, is allowed."""
        return minute % 1440 in self.minutes and self.has_day(minute // 1440)

    def between(self, first: int, last: int) -> list[int]:
        """Return the minutes from first to last, both included, that are allowed, in no order."""
        days = [day for day in range(first // 1440, last // 1440 + 1) if self.has_day(day)]
        return [at for day in days for minute in self.minutes if first <= (at := 1440 * day + minute) <= last]


@lru_cache(maxsize=64)
def local_minutes(timezone: str, after: int, until: int) -> list[tuple[int, int]]:
    """Return every minute in (after - 4 h, until] and what the wall clock shows in it."""
    zone = ZoneInfo(timezone)
    found = []
    for at in range(after - 4 * 3600, until + 60, 60):
        offset = datetime.fromtimestamp(at, zone).utcoffset()
        assert offset is not None
        found.append((at, (at + int(offset.total_seconds())) // 60))
    return found


def walk(calendar: Calendar, minutes: Sequence[tuple[int, int]], after: int, until: int) -> list[int]:
    """Walk real time beside a virtual clock, as Debian's cron does: the default policies."""
    found: list[int] = []
    virtual: int | None = None
    for at, local in minutes:
        ahead = 1 if virtual is None else local - virtual
        is_corrected = ahead > CORRECTION_MIN + 1 or ahead < 1 - CORRECTION_MIN
        if calendar.is_wildcard or is_corrected:
            due = calendar.has(local)
        else:
            due = any(calendar.has(passed) for passed in range(local - ahead + 1, local + 1))
        if due and after < at <= until:
            found.append(at)
        virtual = local if is_corrected or virtual is None else max(virtual, local)
    return found


class Readings:
    """Readings of the wall clock over a stretch of time, and the instants at which each was shown.

    Needs a stretch with at most one change of the clock, by three hours or less, on whole minutes.
    """

    def __init__(self, minutes: Sequence[tuple[int, int]]) -> None:
        self.shown: dict[int, list[int]] = {}
        for at, local in minutes:
            self.shown.setdefault(local, []).append(at)
        ordered = sorted(self.shown)
        self.first, self.last = ordered[0], ordered[-1]
        gaps = [pair for pair in pairwise(ordered) if pair[1] - pair[0] > 1]
        self.before, self.after = gaps[-1] if gaps else (0, 0)  # the readings around a gap


def by_reading(calendar: Calendar, readings: Readings, gap: str, overlap: str) -> list[int]:
    """Go through what the calendar allows reading by reading, and ask when each was shown: any policy."""
    found: set[int] = set()
    for reading in calendar.between(readings.first, readings.last):
        instants = readings.shown.get(reading, [])
        if not instants and not calendar.is_wildcard:
            end = readings.shown[readings.after][0]
            found |= {"run": {end}, "skip": set(), "shift": {end + 60 * (reading - readings.before - 1)}}[gap]
        elif len(instants) > 1 and not calendar.is_wildcard:
            found |= {"first": {instants[0]}, "last": {instants[-1]}, "both": set(instants)}[overlap]
        else:
            found |= set(instants)
    return sorted(found)


def changes(timezone: str, begin: int, end: int) -> list[int]:
    """Return the instants in (begin, end] at which the offset changes, looking at every quarter of an hour."""
    zone = ZoneInfo(timezone)
    found = []
    before = datetime.fromtimestamp(begin, zone).utcoffset()
    for at in range(begin, end, 900):
        offset = datetime.fromtimestamp(at, zone).utcoffset()
        if offset != before:
            found.append(at)
            before = offset
    return found


def utc(at: int) -> str:
    """Return an instant as text."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def fires(expression: str, after: str, count: int, timezone: str | None = None, seed: str = "") -> list[str]:
    """Return the first ``count`` times of an expression after ``after``, in UTC."""
    cron = compile_cron(expression, timezone, seed=seed)
    found = []
    at = cron.next(instant(after))
    while at is not None and len(found) < count:
        found.append(utc(at))
        at = cron.next(at)
    return found
