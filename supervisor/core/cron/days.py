"""Days of a year that a cron expression allows, as one bit mask per kind of year.

There are fourteen kinds of year: it starts on one of seven weekdays and has 365 or 366
days. The days of an expression hold for all years of a kind, so fourteen
masks answer for ever, and next, previous and count are operations on integers.

The mask of the field day-of-month holds dates in the bits 1 to 31; from ``FROM_END`` on, bit
n is the last day but n (``L``, ``L-n``); from ``NEAREST`` on, bit n is the weekday (Monday to
Friday) nearest to date n within its month (``nW``), and bit 0 the last weekday (``LW``). That
of day-of-week holds Sunday to Saturday in the bits 0 to 6; from ``NTH_WEEKDAYS`` on, seven bits
for each of the first to fifth such day of a month (``dow#n``); from ``LAST_WEEKDAYS`` on, the
last such day (``dowL``). A month that has no date n has no weekday nearest to it.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator
from copy import copy
from datetime import date
from functools import lru_cache

WEEK = 7
FROM_END = 32
NEAREST = 64
NTH_WEEKDAYS = 8
LAST_WEEKDAYS = NTH_WEEKDAYS + 5 * WEEK

_ORDINAL_1970 = date(1970, 1, 1).toordinal()
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_KINDS = 14
_WEEKS = sum(1 << 7 * week for week in range(54))  # multiplied by a week's mask: that week, repeated


class Days:
    """The days that an expression allows. Get it from ``days_of``, which shares it."""

    __slots__ = (
        "_day_of_month", "_day_of_week", "_is_inverted", "_masks", "_month", "_needs_both", "is_always", "is_never"
    )  # fmt: skip

    def __init__(self, *, day_of_month: int, month: int, day_of_week: int, needs_both: bool) -> None:
        self._day_of_month = day_of_month
        self._month = month
        self._day_of_week = day_of_week
        self._needs_both = needs_both
        self._is_inverted = False
        self._masks: list[int | None] = [None] * _KINDS  # filled when first asked for
        all_dates, all_months = day_of_month & 0xFFFFFFFF == 0xFFFFFFFE, month == 0x1FFE
        all_weekdays = day_of_week & 0x7F == 0x7F
        every_day = (all_dates and all_weekdays) if needs_both else (all_dates or all_weekdays)
        self.is_always = all_months and every_day
        # Every month has the dates up to 28, and over the years each falls on every weekday.
        has_common_date = bool(day_of_month & 0x1FFFFFFE) and bool(day_of_week & 0x7F)
        self.is_never = not has_common_date and not any(self._mask(kind) for kind in range(_KINDS))

    def has(self, day: int) -> bool:
        """Return whether ``day``, counted from 1970-01-01, is allowed."""
        start, kind = _year(date.fromordinal(day + _ORDINAL_1970).year)
        return bool(self._mask(kind) >> (day - start) & 1)

    def first(self, low: int, high: int) -> int | None:
        """Return the first allowed day in low … high."""
        year = date.fromordinal(low + _ORDINAL_1970).year
        while low <= high:
            start, kind = _year(year)
            rest = self._mask(kind) >> (low - start)
            if rest:
                found = low + (rest & -rest).bit_length() - 1
                return found if found <= high else None
            year += 1
            low = _year(year)[0]
        return None

    def last(self, high: int, low: int) -> int | None:
        """Return the last allowed day in low … high."""
        year = date.fromordinal(high + _ORDINAL_1970).year
        while high >= low:
            start, kind = _year(year)
            rest = self._mask(kind) & ((2 << (high - start)) - 1)
            if rest:
                found = start + rest.bit_length() - 1
                return found if found >= low else None
            year -= 1
            high = start - 1
        return None

    def others(self) -> Days:
        """Return the days that are not allowed."""
        found = copy(self)
        found._masks, found._is_inverted = [None] * _KINDS, True  # noqa: SLF001 - a copy of our own class
        return found

    def count(self, low: int, high: int, cap: int) -> int:
        """Count the allowed days in low … high; may stop above ``cap``."""
        year = date.fromordinal(low + _ORDINAL_1970).year
        total = 0
        while low <= high and total <= cap:
            start, kind = _year(year)
            following = _year(year + 1)[0]
            last = min(high, following - 1)
            total += (self._mask(kind) >> (low - start) & ((2 << (last - low)) - 1)).bit_count()
            year, low = year + 1, following
        return total

    def _mask(self, kind: int) -> int:
        """Return the mask of a kind of year: bit n is the day n of it, from 0."""
        mask = self._masks[kind]
        if mask is None:
            mask = self._masks[kind] = self._make(kind)
        return mask

    def _make(self, kind: int) -> int:
        weekday, is_leap = kind >> 1, bool(kind & 1)  # of 1 January, 0 is Sunday
        dates = months = weekdays = start = 0
        has_special_dates, has_special_weekdays = self._day_of_month >> FROM_END, self._day_of_week >> NTH_WEEKDAYS
        for index, length in enumerate(_LENGTHS):
            days = length + (is_leap and index == 1)
            whole = (1 << days) - 1
            dates |= (self._day_of_month >> 1 & whole) << start
            if has_special_dates:
                dates |= _special_dates(self._day_of_month, days, (weekday + start) % WEEK) << start
            if has_special_weekdays:
                weekdays |= _special_weekdays(self._day_of_week, days, (weekday + start) % WEEK) << start
            if self._month >> (index + 1) & 1:
                months |= whole << start
            start += days
        weekdays |= (self._day_of_week & 0x7F) * _WEEKS >> weekday
        found = months & (dates & weekdays if self._needs_both else dates | weekdays)
        return (1 << start) - 1 ^ found if self._is_inverted else found


def _special_dates(field: int, days: int, weekday: int) -> int:
    """Return the days, from bit 0, that ``L L-n LW nW`` mean in a month that starts on ``weekday``."""
    found = 0
    for before_last in _bits(field >> FROM_END & 0x7FFFFFFF):
        if before_last < days:
            found |= 1 << days - 1 - before_last
    for date_ in _bits(field >> NEAREST):
        if date_ <= days:
            found |= 1 << _nearest_weekday(date_ or days, days, weekday) - 1
    return found


def _bits(mask: int) -> Iterator[int]:
    """Yield the bits that are set in ``mask``."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _nearest_weekday(date_: int, days: int, weekday: int) -> int:
    """Return the date from Monday to Friday nearest to ``date_``, in the same month."""
    on = (weekday + date_ - 1) % WEEK
    if on == 6:  # Saturday: the day before, unless that is in another month
        return date_ - 1 if date_ > 1 else date_ + 2
    if on == 0:  # Sunday: the day after
        return date_ + 1 if date_ < days else date_ - 2
    return date_


def _special_weekdays(field: int, days: int, weekday: int) -> int:
    """Return the days, from bit 0, that ``dow#n dowL`` mean in a month that starts on ``weekday``."""
    found = 0
    for week in range(5):
        found |= _turned(field >> NTH_WEEKDAYS + week * WEEK & 0x7F, weekday) << week * WEEK
    found |= _turned(field >> LAST_WEEKDAYS, (weekday + days) % WEEK) << days - WEEK
    return found & (1 << days) - 1


def _turned(weekdays: int, first: int) -> int:
    """Return ``weekdays``, bit 0 a Sunday, as the days of a week that begins on ``first``."""
    return (weekdays << WEEK | weekdays) >> first & 0x7F


@lru_cache(maxsize=4096)
def days_of(*, day_of_month: int, month: int, day_of_week: int, needs_both: bool) -> Days:
    """Return the days that match: both day fields if ``needs_both``, else either of them."""
    return Days(day_of_month=day_of_month, month=month, day_of_week=day_of_week, needs_both=needs_both)


@lru_cache(maxsize=10_000)
def _year(year: int) -> tuple[int, int]:
    """Return the day, counted from 1970, on which ``year`` starts, and its kind."""
    start = date(year, 1, 1)
    return start.toordinal() - _ORDINAL_1970, (start.isoweekday() % 7) << 1 | isleap(year)
