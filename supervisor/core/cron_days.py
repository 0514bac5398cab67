"""Which days of a year a cron expression allows, as one bit mask per kind of year.

There are fourteen kinds of year: it starts on one of seven weekdays and has 365 or 366
days. Whatever an expression says about days holds for all years of a kind, so fourteen
masks answer for ever, and next, previous and count are operations on integers.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache

_ORDINAL_1970 = date(1970, 1, 1).toordinal()
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_KINDS = 14
_WEEKS = sum(1 << 7 * week for week in range(54))  # multiplied by a week's mask: that week, repeated


class Days:
    """The days that an expression allows. Get it from ``days_of``, which shares it."""

    __slots__ = ("_day_of_month", "_day_of_week", "_masks", "_month", "_needs_both", "is_always", "is_never")

    def __init__(self, *, day_of_month: int, month: int, day_of_week: int, needs_both: bool) -> None:
        self._day_of_month = day_of_month
        self._month = month
        self._day_of_week = day_of_week
        self._needs_both = needs_both
        self._masks: list[int | None] = [None] * _KINDS  # filled when first asked for
        all_dates, all_weekdays, all_months = day_of_month == 0xFFFFFFFE, day_of_week == 0x7F, month == 0x1FFE
        every_day = (all_dates and all_weekdays) if needs_both else (all_dates or all_weekdays)
        self.is_always = all_months and every_day
        self.is_never = not self.is_always and not any(self._mask(kind) for kind in range(_KINDS))

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
        dates = months = start = 0
        for index, length in enumerate(_LENGTHS):
            days = length + (is_leap and index == 1)
            whole = (1 << days) - 1
            dates |= (self._day_of_month >> 1 & whole) << start
            if self._month >> (index + 1) & 1:
                months |= whole << start
            start += days
        weekdays = self._day_of_week * _WEEKS >> weekday
        return months & (dates & weekdays if self._needs_both else dates | weekdays)


@lru_cache(maxsize=4096)
def days_of(*, day_of_month: int, month: int, day_of_week: int, needs_both: bool) -> Days:
    """Return the days that match: both day fields if ``needs_both``, else either of them."""
    return Days(day_of_month=day_of_month, month=month, day_of_week=day_of_week, needs_both=needs_both)


@lru_cache(maxsize=10_000)
def _year(year: int) -> tuple[int, int]:
    """Return the day, counted from 1970, on which ``year`` starts, and its kind."""
    start = date(year, 1, 1)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return start.toordinal() - _ORDINAL_1970, (start.isoweekday() % 7) << 1 | is_leap
