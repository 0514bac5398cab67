"""Intervals of the calendar: every so many days, weeks or months at a local time (adr/0051).

Guarantees
    Counted from the first day itself, never from the run before: a short month moves no later one.
    Changes of the clock are treated as for a fixed time of a cron expression.
    Next, latest and count are arithmetic: they cost a few steps, however long the interval.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, time
from math import inf

from supervisor.core.calendars.days import DAY_S, WEEKDAYS
from supervisor.core.cron.dst import DstPolicy, count_between, first_in, last_in
from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, Zone, zone
from supervisor.core.model import CalendarInterval
from supervisor.core.schedules.trigger_kinds import Trigger

_ORDINAL_1970 = date(1970, 1, 1).toordinal()
_YEAR_MAX = 9986


class CalendarReadings:
    """Readings of a wall clock that an interval names: seconds since 1970-01-01T00:00 on that clock."""

    __slots__ = ("_interval", "_month", "_start")

    def __init__(self, interval: CalendarInterval) -> None:
        self._interval = interval
        self._start = date.fromordinal(interval.from_day + _ORDINAL_1970)
        self._month = 12 * self._start.year + self._start.month - 1

    def first(self, low: int, high: float) -> int | None:
        """Return the first reading in low … high."""
        index = max(self._index(low), 0)
        while self._beginning(index) <= min(high, SECOND_MAX):
            found = self._reading(index)
            if found is not None and found >= low:
                return found if found <= high else None
            index += 1
        return None

    def last(self, high: int, low: float) -> int | None:
        """Return the last reading in low … high."""
        index = self._index(high) + 1
        while index >= 0:
            found = self._reading(index)
            if found is not None and found <= high:
                return found if found >= low else None
            index -= 1
        return None

    def count(self, low: int, high: int, cap: int) -> int:
        """Count the readings in low … high; may stop above ``cap``."""
        first, last = self.first(low, high), self.last(high, low)
        if first is None or last is None:
            return 0
        begin, end = self._index(first), self._index(last)
        if not self._interval.skips_short_months:
            return end - begin + 1
        total = 0
        for index in range(begin, end + 1):
            total += self._reading(index) is not None
            if total > cap:
                break
        return total

    def has(self, reading: int) -> bool:
        """Return whether ``reading`` is one of them."""
        return self.first(reading, reading) is not None

    def _index(self, reading: int) -> int:
        """Return the number of the newest interval that has begun by the day of ``reading``; below 0: none has."""
        day, interval = reading // DAY_S, self._interval
        if interval.days:
            return (day - interval.from_day) // interval.days
        at = date.fromordinal(min(max(day + _ORDINAL_1970, 1), date.max.toordinal()))
        return (12 * at.year + at.month - 1 - self._month) // interval.months

    def _beginning(self, index: int) -> float:
        """Return a reading that is not behind that of the interval: its day at 00:00, or the first of its month."""
        if self._interval.days:
            return (self._interval.from_day + index * self._interval.days) * DAY_S
        year, month = divmod(self._month + index * self._interval.months, 12)
        return inf if year > _YEAR_MAX else (date(year, month + 1, 1).toordinal() - _ORDINAL_1970) * DAY_S

    def _reading(self, index: int) -> int | None:
        """Return the reading of an interval; None: its month has no such day, and is skipped."""
        interval = self._interval
        if interval.days:
            return (interval.from_day + index * interval.days) * DAY_S + interval.time_s
        year, month = divmod(self._month + index * interval.months, 12)
        if year > _YEAR_MAX:
            return None
        length = monthrange(year, month + 1)[1]
        if self._start.day > length and interval.skips_short_months:
            return None
        day = date(year, month + 1, min(self._start.day, length)).toordinal() - _ORDINAL_1970
        return day * DAY_S + interval.time_s


@dataclass(frozen=True, slots=True)
class CalendarTrigger(Trigger):
    """Due at the readings of an interval of the calendar, in one zone. Not before its first day."""

    interval: CalendarInterval
    policy: DstPolicy
    _zone: Zone
    _readings: CalendarReadings

    @classmethod
    def of(cls, interval: CalendarInterval, timezone: str, *, dst_gap: str, dst_overlap: str) -> CalendarTrigger:
        """Return the trigger of ``interval`` in ``timezone``.

        Raises:
            UnknownZoneError: there is no such zone.
        """
        return cls(interval, DstPolicy.of(dst_gap, dst_overlap), zone(timezone), CalendarReadings(interval))

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first fire after ``after_ms``."""
        at: float = max(after_ms // 1000 + 1, self.interval.from_day * DAY_S - 2 * DAY_S, SECOND_MIN)
        while at < SECOND_MAX:
            segment = self._zone.at(int(at))
            found = first_in(self._readings, self.policy, segment, int(at))
            if found is not None:
                return found * 1000
            # No segment up to two days before the next reading can have a fire of it: leave them out.
            ahead = self._readings.first(segment.end + segment.offset - DAY_S, inf)
            at = SECOND_MAX if ahead is None else max(segment.end, ahead - 2 * DAY_S)
        return None

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest fire in (after_ms, until_ms]."""
        at = min(until_ms // 1000, SECOND_MAX - 1)
        while at * 1000 > after_ms and at >= SECOND_MIN:
            segment = self._zone.at(at)
            found = last_in(self._readings, self.policy, segment, at)
            if found is not None:
                return found * 1000 if found * 1000 > after_ms else None
            behind = self._readings.last(segment.start + segment.offset + DAY_S, -inf)
            if behind is None:
                return None
            at = min(segment.start - 1, behind + 2 * DAY_S)
        return None

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many fires lie in (after_ms, until_ms], at most ``cap``."""
        at = max(after_ms // 1000 + 1, self.interval.from_day * DAY_S - 2 * DAY_S, SECOND_MIN)
        until = min(until_ms // 1000, SECOND_MAX - 1)
        return count_between(self._zone, self._readings, self.policy, at, until=until, cap=cap)

    def describe(self) -> str:
        """Return for example ``every 2 weeks on Monday at 09:00 Europe/Berlin, from 2026-11-23``."""
        interval = self.interval
        start = date.fromordinal(interval.from_day + _ORDINAL_1970)
        at = time(interval.time_s // 3600, interval.time_s // 60 % 60, interval.time_s % 60)
        clock = at.isoformat("seconds" if at.second else "minutes")
        if interval.months:
            day = f" on day {start.day}"
            if start.day > 28:
                day += ", not in shorter months," if interval.skips_short_months else " or the last of a shorter month"
            every = _every(interval.months, "month") + day
        elif interval.days % 7 == 0:
            every = f"{_every(interval.days // 7, 'week')} on {WEEKDAYS[start.weekday()]}"
        else:
            every = _every(interval.days, "day")
        return f"{every} at {clock} {self._zone.name}, from {start.isoformat()}"


def _every(number: int, unit: str) -> str:
    return f"every {unit}" if number == 1 else f"every {number} {unit}s"
