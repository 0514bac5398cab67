"""Sets of days: which days of a calendar are excluded, and the nearest ones that are not.

A day is a number of days since 1970-01-01 on the wall clock of the schedule's zone. Questions cost a step for each
stretch of days that they pass, whatever it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import isleap
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from itertools import chain

from supervisor.core.errors import TenureError
from supervisor.core.model import CalendarDays

DAY_S = 86_400
STEPS_MAX = 10_000
"""Stretches that a search passes before it gives up."""

REACH_S = 100 * 366 * DAY_S
"""How far it looks beyond the first of them: a year costs the leader a millisecond, once for each zone."""

EPOCH = date(1970, 1, 1)
YEAR_MAX = 2199
"""Dates of every year are known from 1970 through this year."""

ENDS_SOON_MS = 60 * DAY_S * 1000
_NO_DAY = "over-excluded: the calendars together leave no day; narrow them"
_THURSDAY = 3  # 1970-01-01; Monday is 0
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class OverExcludedError(TenureError):
    """The exclusions leave nothing of a schedule within reach."""


class CalendarEndError(OverExcludedError):
    """The only days on which a schedule may be due are over, or have not begun."""


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the begins and the ends of disjoint ranges [begin, end), in order, that cover the same."""
    begins: list[int] = []
    ends: list[int] = []
    for begin, end in sorted(ranges):
        if ends and begin <= ends[-1]:
            ends[-1] = max(end, ends[-1])
        else:
            begins.append(begin)
            ends.append(end)
    return tuple(begins), tuple(ends)


class DaySet:
    """The days that one calendar excludes: its own, or with ``is_only`` all others."""

    __slots__ = ("_froms", "_is_only", "_untils", "_weekdays")

    def __init__(self, days: CalendarDays) -> None:
        self._froms, self._untils = merged((first, first + length) for first, length, _ in _dated(days))
        self._weekdays = frozenset(days.weekdays)
        self._is_only = days.is_only

    def takes(self, day: int) -> bool:
        """Return whether ``day`` is excluded."""
        return self._free(day, 1) != day

    def free(self, day: int, step: int) -> int:
        """Return the first day that is not excluded: from ``day`` on with ``step`` 1, back from it with -1.

        Raises:
            CalendarEndError: there is none in that direction.
            OverExcludedError: it excludes all days of the week.
        """
        found = self._free(day, step)
        if found is None and not self._is_only:
            raise OverExcludedError(_NO_DAY)
        if found is None:
            raise CalendarEndError("the calendar has no more days" if step > 0 else "the calendar has no earlier days")
        return found

    def taken_from(self, day: int) -> int | None:
        """Return the first day from ``day`` on that is excluded; None when there is none."""
        return self._outside(day, 1) if self._is_only else self._inside(day, 1)

    def _free(self, day: int, step: int) -> int | None:
        return self._inside(day, step) if self._is_only else self._outside(day, step)

    def _inside(self, day: int, step: int) -> int | None:
        index = bisect_right(self._froms, day) - 1
        if index >= 0 and day < self._untils[index]:
            return day
        found = [near for near in range(day, day + 7 * step, step) if weekday_of(near) in self._weekdays][:1]
        if step > 0:
            found += self._froms[index + 1 : index + 2]
        elif index >= 0:
            found.append(self._untils[index] - 1)
        return min(found, key=lambda near: abs(near - day), default=None)

    def _outside(self, day: int, step: int) -> int | None:
        if len(self._weekdays) == len(WEEKDAYS):
            return None
        while True:  # every step passes a weekday or one of the stretches, of which there are at most so many
            index = bisect_right(self._froms, day) - 1
            if index >= 0 and day < self._untils[index]:
                day = self._untils[index] if step > 0 else self._froms[index] - 1
            elif weekday_of(day) in self._weekdays:
                day += step
            else:
                return day


class DayReadings:
    """Readings of a wall clock on days that are excluded: seconds since 1970-01-01T00:00 on that clock."""

    __slots__ = ("_days",)

    def __init__(self, days: DaySet) -> None:
        self._days = days

    def first(self, low: int, high: int) -> int | None:
        """Return the first excluded reading in low … high."""
        day = self._days.taken_from(low // DAY_S)
        found = None if day is None else max(low, day * DAY_S)
        return found if found is not None and found <= high else None

    def first_free(self, low: int, high: int) -> int | None:
        """Return the first reading in low … high that is not excluded.

        Raises:
            CalendarEndError: there is none, in whatever range.
        """
        found = max(low, self._days.free(low // DAY_S, 1) * DAY_S)
        return found if found <= high else None

    def last_free(self, high: int, low: int) -> int | None:
        """Return the last reading in low … high that is not excluded; raises as ``first_free`` does."""
        found = min(high, self._days.free(high // DAY_S, -1) * DAY_S + DAY_S - 1)
        return found if found >= low else None


def free_of_all(sets: Sequence[DaySet], day: int, step: int) -> int:
    """Return the first day from ``day`` on, in the direction of ``step``, that none of ``sets`` excludes.

    Raises:
        CalendarEndError: one of them ends before.
        OverExcludedError: they leave nothing within reach.
    """
    for _ in range(STEPS_MAX):
        found = day
        for each in sets:
            found = each.free(found, step)
        if found == day:
            return day
        day = found
    raise OverExcludedError(_NO_DAY)


@lru_cache(maxsize=1024)
def day_set(days: CalendarDays) -> DaySet:
    """Return the excluded days of ``days``, shared by all schedules that have the same."""
    return DaySet(days)


def day_sets(days: Iterable[CalendarDays | None]) -> tuple[DaySet, ...]:
    """Return the excluded days of all of ``days``: those of the calendars that exclude are one set."""
    given = [each for each in dict.fromkeys(days) if each is not None]
    excluded = [each for each in given if not each.is_only]
    if len(excluded) > 1:
        merged = CalendarDays(
            weekdays=tuple(chain.from_iterable(each.weekdays for each in excluded)),
            dates=tuple(chain.from_iterable(each.dates for each in excluded)),
            annual=tuple(chain.from_iterable(each.annual for each in excluded)),
        )
        excluded = [merged]
    return tuple(day_set(each) for each in (*(each for each in given if each.is_only), *excluded))


def weekday_of(day: int) -> int:
    """Return the day of the week; Monday is 0."""
    return (day + _THURSDAY) % 7


def date_of(day: int) -> date:
    """Return ``day`` as a date."""
    return EPOCH + timedelta(days=day)


def last_day(days: CalendarDays) -> int | None:
    """Return the last day that ``days`` names; None where days of every week or year have no last one."""
    if days.weekdays or days.annual:
        return None
    return max((first + length - 1 for first, length, _ in days.dates), default=None)


def ends_soon(days: CalendarDays, *, now_ms: int) -> str | None:
    """Return a note where ``days`` has no entries for the next two months; None where it has, or never ends."""
    last = last_day(days)
    if last is None or last * DAY_S * 1000 > now_ms + ENDS_SOON_MS:
        return None
    return f"calendar {days.calendar or 'of the schedule'} has no entries after {date_of(last)}; add later ones"


def reason_of(days: CalendarDays, day: int) -> str | None:
    """Return why ``day`` is excluded, in words; None when it is not."""
    if not day_set(days).takes(day):
        return None
    if days.is_only:
        return f"not in calendar {days.calendar}"
    names = [name for first, length, name in _dated(days) if first <= day < first + length and name]
    names += [WEEKDAYS[weekday_of(day)]] if not names and weekday_of(day) in days.weekdays else []
    where = f"excluded by calendar {days.calendar}" if days.calendar else "excluded"
    return f"{where}: {', '.join(dict.fromkeys(names))}" if names else where


def _dated(days: CalendarDays) -> Iterator[tuple[int, int, str]]:
    """Yield the dates, those of every year written out."""
    yield from days.dates
    for month_day, name in days.annual:
        month, day = divmod(month_day, 100)
        for year in range(EPOCH.year, YEAR_MAX + 1):
            if (month, day) != (2, 29) or isleap(year):
                yield (date(year, month, day) - EPOCH).days, 1, name
