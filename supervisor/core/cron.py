"""Cron expressions, compiled: instants in whole seconds since 1970 in, and out.

Guarantees
    Fire times are Debian cron's, also where the clock changes. An entry whose minute and
    hour are fixed and fall into a gap fires once, at the instant the gap ends; in an overlap
    it fires on the first pass only. An entry whose minute or hour starts with ``*`` follows
    real time: nothing is invented in a gap, both passes of an overlap count. A change by more
    than three hours corrects the zone: what it skipped is not made up for.
    ``prev(next(t)) <= t < next(t)``, and ``count`` agrees with ``next``.

Differs from Debian on purpose
    Several fixed times in one gap are one fire, because a run is known by its instant.

Compiled expressions are immutable, hold no position and are shared, so that many schedules
with one expression cost one. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from supervisor.core.cron_days import Days, days_of
from supervisor.core.cron_fields import CronError, Fields, parse
from supervisor.core.zones import SECOND_MAX, SECOND_MIN, Segment, UnknownZoneError, Zone, zone

__all__ = ["SEARCH_S", "Cron", "CronError", "compile_cron"]

SEARCH_S = 40 * 366 * 86_400
"""How far a search goes: 40 years hold every date that comes back, also across 2100."""

_MINUTES = 1440  # of a day


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """One expression in one zone. Get it from ``compile_cron``, which shares it."""

    expression: str
    timezone: str
    is_wildcard: bool
    _zone: Zone
    _days: Days | None  # None: every day
    _minutes: int  # bit n: minute n of the day
    _first: int  # lowest minute set
    _per_day: int

    def next(self, after_s: int) -> int | None:
        """Return the first fire after ``after_s``; None when there is none within 40 years."""
        at = max(after_s, SECOND_MIN) + 1
        limit = min(at + SEARCH_S, SECOND_MAX)
        while at < limit:
            segment = self._zone.at(at)
            start, end, offset, _ = segment
            local = at + offset if self.is_wildcard else _owned_from(segment, at)
            # Every minute of interest is below the end of the segment, or belongs to the next one.
            found = self._minute_from(-(-local // 60), (end + offset - 1) // 60)
            if found is not None:
                return max(found * 60 - offset, start)
            at = end
        return None

    def prev(self, before_or_at_s: int) -> int | None:
        """Return the last fire at or before ``before_or_at_s``; None when there is none within 40 years."""
        at = min(before_or_at_s, SECOND_MAX)
        limit = max(at - SEARCH_S, SECOND_MIN)
        while at >= limit:
            segment = self._zone.at(at)
            start, _, offset, first_local = segment
            lowest = start + offset if self.is_wildcard else first_local
            found = self._minute_until((at + offset) // 60, -(-lowest // 60))
            if found is not None:
                return max(found * 60 - offset, start)
            at = start - 1
        return None

    def count(self, after_s: int, until_s: int, cap: int) -> int:
        """Return how many fires lie in (after_s, until_s], or ``cap`` when they are at least that many."""
        at, until = max(after_s, SECOND_MIN) + 1, min(until_s, SECOND_MAX)
        total = 0
        while at <= until and total < cap:
            segment = self._zone.at(at)
            last = min(until, segment.end - 1)
            total += self._count_in(segment, at, last, cap - total)
            at = last + 1
        return min(total, cap)

    def fires(self, after_s: int, until_s: int) -> Iterator[int]:
        """Yield every fire in (after_s, until_s]."""
        at = self.next(after_s)
        while at is not None and at <= until_s:
            yield at
            at = self.next(at)

    def describe(self) -> str:
        """Return the expression and its zone, for people."""
        return f"cron {self.expression} {self.timezone}"

    def _count_in(self, segment: Segment, at: int, last: int, cap: int) -> int:
        """Count fires at the instants at … last, which lie in ``segment``."""
        start, _, offset, _ = segment
        local = at + offset if self.is_wildcard else _owned_from(segment, at)
        total = 0
        if local < start + offset:  # the gap, and the instant that ends it: one fire however many fall in
            opening = (start + offset) // 60
            total = int(self._minute_from(-(-local // 60), opening) is not None)
            local = (opening + 1) * 60
        return total + self._count_minutes(-(-local // 60), (last + offset) // 60, cap)

    def _minute_from(self, low: int, high: int) -> int | None:
        """Return the first matching local minute in low … high, counted from 1970."""
        day, minute = divmod(low, _MINUTES)
        days = self._days
        rest = self._minutes >> minute
        if rest and (days is None or days.has(day)):
            found = low + (rest & -rest).bit_length() - 1
        else:
            day += 1
            if days is not None:
                later = days.first(day, high // _MINUTES)
                if later is None:
                    return None
                day = later
            found = day * _MINUTES + self._first
        return found if found <= high else None

    def _minute_until(self, high: int, low: int) -> int | None:
        """Return the last matching local minute in low … high."""
        day, minute = divmod(high, _MINUTES)
        days = self._days
        rest = self._minutes & ((2 << minute) - 1)
        if rest and (days is None or days.has(day)):
            found = day * _MINUTES + rest.bit_length() - 1
        else:
            day -= 1
            if days is not None:
                earlier = days.last(day, low // _MINUTES)
                if earlier is None:
                    return None
                day = earlier
            found = day * _MINUTES + self._minutes.bit_length() - 1
        return found if found >= low else None

    def _count_minutes(self, low: int, high: int, cap: int) -> int:
        """Count matching local minutes in low … high; may stop above ``cap``."""
        if low > high:
            return 0
        (first_day, first), (last_day, last) = divmod(low, _MINUTES), divmod(high, _MINUTES)
        days = self._days
        upto_last = self._minutes & ((2 << last) - 1)
        if first_day == last_day:
            return (upto_last >> first).bit_count() if days is None or days.has(first_day) else 0
        total = (self._minutes >> first).bit_count() if days is None or days.has(first_day) else 0
        total += upto_last.bit_count() if days is None or days.has(last_day) else 0
        whole = (
            last_day - first_day - 1 if days is None else days.count(first_day + 1, last_day - 1, cap // self._per_day)
        )
        return total + whole * self._per_day


@lru_cache(maxsize=16_384)
def compile_cron(expression: str, timezone: str = "UTC") -> Cron:
    """Return the compiled form of ``expression`` in ``timezone``, an IANA name.

    Raises:
        CronError: the expression cannot be read, can never match, or the zone is unknown.
    """
    fields = parse(expression)
    try:
        in_zone = zone(timezone)
    except UnknownZoneError as error:
        raise CronError(f'cron "{fields.text}": {error}') from error
    days = days_of(
        day_of_month=fields.day_of_month,
        month=fields.month,
        day_of_week=fields.day_of_week,
        needs_both=fields.needs_both_days,
    )
    if days.is_never:
        raise CronError(_never(fields))
    minutes = _minutes_of_day(fields.minute, fields.hour)
    return Cron(
        expression=fields.text,
        timezone=timezone,
        is_wildcard=fields.is_wildcard,
        _zone=in_zone,
        _days=None if days.is_always else days,
        _minutes=minutes,
        _first=(minutes & -minutes).bit_length() - 1,
        _per_day=minutes.bit_count(),
    )


def _owned_from(segment: Segment, at: int) -> int:
    """Return the first local time that fires at or after ``at`` for a fixed-time entry."""
    # At its start a segment also owns the times that the gap before it skipped.
    return segment.first_local if at == segment.start else max(at + segment.offset, segment.first_local)


def _minutes_of_day(minute: int, hour: int) -> int:
    return sum(minute << 60 * h for h in range(24) if hour >> h & 1)


def _never(fields: Fields) -> str:
    _, _, day_of_month, month, day_of_week = fields.text.split(" ")
    together = f" and day-of-week {day_of_week!r}" if fields.needs_both_days and day_of_week != "*" else ""
    return (
        f'cron "{fields.text}": never matches: no day-of-month {day_of_month!r}{together} exists in month {month!r}; '
        f"use a day that exists"
    )
