"""Readings of a wall clock that an expression allows, without any time zone: days x minutes x seconds.

A reading is the number of seconds since 1970-01-01T00:00 on that clock. The minutes of a day
and the seconds of a minute are bit masks, the days are ``cron_days.Days``, so the first
reading at or after another, the last before it and the count between two are arithmetic,
however far they lie apart.
"""

from __future__ import annotations

from supervisor.core.cron.days import Days

MINUTES = 1440  # of a day
EVERY_SECOND = (1 << 60) - 1
_EVERY_MINUTE = (1 << MINUTES) - 1
_ON_THE_MINUTE = 1  # seconds mask of an expression with five fields


class Times:
    """The readings that an expression allows. Immutable."""

    __slots__ = (
        "_days", "_first_minute", "_first_second", "_minutes", "_other_days", "_per_day", "_per_minute", "_seconds"
    )  # fmt: skip

    def __init__(self, *, days: Days, minutes: int, seconds: int = _ON_THE_MINUTE) -> None:
        self._days = None if days.is_always else days
        self._other_days = None if days.is_always or minutes != _EVERY_MINUTE else days.others()
        self._minutes = minutes  # bit n: minute n of the day
        self._seconds = seconds  # bit n: second n of the minute
        self._first_minute = _lowest(minutes)
        self._first_second = _lowest(seconds)
        self._per_day = minutes.bit_count()
        self._per_minute = seconds.bit_count()

    def first(self, low: int, high: int) -> int | None:
        """Return the first allowed reading in low … high."""
        if self._seconds == _ON_THE_MINUTE:
            found = self._minute_from(-(-low // 60), high // 60)
            return None if found is None else found * 60
        minute, second = divmod(low, 60)
        rest = self._seconds >> second
        if rest and self._has_minute(minute):
            at = low + _lowest(rest)
        else:
            found = self._minute_from(minute + 1, high // 60)
            if found is None:
                return None
            at = found * 60 + self._first_second
        return at if at <= high else None

    def last(self, high: int, low: int) -> int | None:
        """Return the last allowed reading in low … high."""
        if self._seconds == _ON_THE_MINUTE:
            found = self._minute_until(high // 60, -(-low // 60))
            return None if found is None else found * 60
        minute, second = divmod(high, 60)
        rest = self._seconds & ((2 << second) - 1)
        if rest and self._has_minute(minute):
            at = minute * 60 + rest.bit_length() - 1
        else:
            found = self._minute_until(minute - 1, low // 60)
            if found is None:
                return None
            at = found * 60 + self._seconds.bit_length() - 1
        return at if at >= low else None

    def count(self, low: int, high: int, cap: int) -> int:
        """Count the allowed readings in low … high; may stop above ``cap``."""
        if low > high:
            return 0
        if self._seconds == _ON_THE_MINUTE:
            return self._count_minutes(-(-low // 60), high // 60, cap)
        (first, from_second), (last, to_second) = divmod(low, 60), divmod(high, 60)
        upto = self._seconds & ((2 << to_second) - 1)
        if first == last:
            return (upto >> from_second).bit_count() if self._has_minute(first) else 0
        total = (self._seconds >> from_second).bit_count() if self._has_minute(first) else 0
        total += upto.bit_count() if self._has_minute(last) else 0
        return total + self._per_minute * self._count_minutes(first + 1, last - 1, cap // self._per_minute + 1)

    def has(self, reading: int) -> bool:
        """Return whether ``reading`` is allowed."""
        minute, second = divmod(reading, 60)
        return bool(self._seconds >> second & 1) and self._has_minute(minute)

    def first_free(self, low: int, high: int) -> int | None:
        """Return the first reading in low … high that is not allowed."""
        minute, second = divmod(low, 60)
        if not self._has_minute(minute):
            return low
        free = ~self._seconds & EVERY_SECOND
        rest = free >> second
        if rest:
            at = low + _lowest(rest)
        elif free:  # no minute is allowed as a whole, so the next one begins free or has its first free second
            at = (minute + 1) * 60 + (_lowest(free) if self._has_minute(minute + 1) else 0)
        else:
            found = self._free_minute_from(minute + 1, high // 60)
            if found is None:
                return None
            at = found * 60
        return at if at <= high else None

    def last_free(self, high: int, low: int) -> int | None:
        """Return the last reading in low … high that is not allowed."""
        minute, second = divmod(high, 60)
        if not self._has_minute(minute):
            return high
        free = ~self._seconds & EVERY_SECOND
        rest = free & ((2 << second) - 1)
        if rest:
            at = minute * 60 + rest.bit_length() - 1
        elif free:
            at = (minute - 1) * 60 + (free.bit_length() - 1 if self._has_minute(minute - 1) else 59)
        else:
            found = self._free_minute_until(minute - 1, low // 60)
            if found is None:
                return None
            at = found * 60 + 59
        return at if at >= low else None

    def _has_minute(self, minute: int) -> bool:
        day, of_day = divmod(minute, MINUTES)
        return bool(self._minutes >> of_day & 1) and (self._days is None or self._days.has(day))

    def _minute_from(self, low: int, high: int) -> int | None:
        """Return the first allowed minute in low … high, counted from 1970."""
        day, minute = divmod(low, MINUTES)
        days = self._days
        rest = self._minutes >> minute
        if rest and (days is None or days.has(day)):
            found = low + (rest & -rest).bit_length() - 1
        else:
            day += 1
            if days is not None:
                later = days.first(day, high // MINUTES)
                if later is None:
                    return None
                day = later
            found = day * MINUTES + self._first_minute
        return found if found <= high else None

    def _minute_until(self, high: int, low: int) -> int | None:
        """Return the last allowed minute in low … high."""
        day, minute = divmod(high, MINUTES)
        days = self._days
        rest = self._minutes & ((2 << minute) - 1)
        if rest and (days is None or days.has(day)):
            found = day * MINUTES + rest.bit_length() - 1
        else:
            day -= 1
            if days is not None:
                earlier = days.last(day, low // MINUTES)
                if earlier is None:
                    return None
                day = earlier
            found = day * MINUTES + self._minutes.bit_length() - 1
        return found if found >= low else None

    def _count_minutes(self, low: int, high: int, cap: int) -> int:
        """Count allowed minutes in low … high; may stop above ``cap``."""
        if low > high:
            return 0
        (first_day, first), (last_day, last) = divmod(low, MINUTES), divmod(high, MINUTES)
        days = self._days
        upto_last = self._minutes & ((2 << last) - 1)
        if first_day == last_day:
            return (upto_last >> first).bit_count() if days is None or days.has(first_day) else 0
        total = (self._minutes >> first).bit_count() if days is None or days.has(first_day) else 0
        total += upto_last.bit_count() if days is None or days.has(last_day) else 0
        if days is None:
            return total + (last_day - first_day - 1) * self._per_day
        return total + days.count(first_day + 1, last_day - 1, cap // self._per_day) * self._per_day

    def _free_minute_from(self, low: int, high: int) -> int | None:
        """Return the first minute in low … high that is not allowed."""
        if not self._has_minute(low):
            return low
        free = ~self._minutes & _EVERY_MINUTE
        day, minute = divmod(low, MINUTES)
        if free >> minute:
            return low + _lowest(free >> minute)
        if not free:
            found = None if self._other_days is None else self._other_days.first(day + 1, high // MINUTES)
            return None if found is None else found * MINUTES
        is_partly = self._days is None or self._days.has(day + 1)
        return (day + 1) * MINUTES + (_lowest(free) if is_partly else 0)

    def _free_minute_until(self, high: int, low: int) -> int | None:
        """Return the last minute in low … high that is not allowed."""
        if not self._has_minute(high):
            return high
        free = ~self._minutes & _EVERY_MINUTE
        day, minute = divmod(high, MINUTES)
        upto = free & ((2 << minute) - 1)
        if upto:
            return day * MINUTES + upto.bit_length() - 1
        if not free:
            found = None if self._other_days is None else self._other_days.last(day - 1, low // MINUTES)
            return None if found is None else found * MINUTES + MINUTES - 1
        is_partly = self._days is None or self._days.has(day - 1)
        return (day - 1) * MINUTES + (free.bit_length() - 1 if is_partly else MINUTES - 1)


def _lowest(mask: int) -> int:
    """Return the lowest bit that is set in ``mask``."""
    return (mask & -mask).bit_length() - 1
