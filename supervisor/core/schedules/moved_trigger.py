"""Due times that move off excluded days, to the next or the previous day that is not excluded.

Guarantees
    A due time on another day stays as it is. One on an excluded day keeps its time of day: where a change of the
    clock skips that, it is later by the skipped time; where it comes twice, it is the first. Due times that come to
    coincide are one.
    Before the first and after the last day of a calendar that names the only days (``only``), nothing is due.

Does not guarantee
    Anything about ``after_completion``, which has no due times of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from supervisor.core.calendars.days import DAY_S, STEPS_MAX, CalendarEndError, DaySet, OverExcludedError, free_of_all
from supervisor.core.calendars.moments import Moment, Span
from supervisor.core.calendars.search_limit import limit_search, spend
from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, Zone
from supervisor.core.schedules.trigger_kinds import Trigger

MOVED_MAX = 10_000
"""Due times on the days around one that is not excluded; with more the schedule counts as over-excluded."""

RECENT_MAX = 4
_LONG_AGO_MS = -(1 << 62)


@dataclass(frozen=True, slots=True)
class MovedTrigger(Trigger):
    """Another trigger whose due times on excluded days move. Each question may raise ``OverExcludedError``."""

    inner: Trigger
    days: tuple[DaySet, ...]
    zone: Zone
    step: int  # 1: to the next day; -1: to the previous one
    _recent: dict[int, tuple[int, ...]] = field(default_factory=dict, compare=False)  # a memo: a race costs a look-up

    @limit_search
    def next_ms(self, after_ms: int) -> int | None:
        """Return the first due time after ``after_ms``, once moved."""
        day = self._day_beside(after_ms, -1)
        for _ in range(STEPS_MAX):
            day_found = self._target_from(day)
            if day_found is None:
                return None
            due = self._due_on(day_found)
            if due[-1] > after_ms:
                return due[bisect_right(due, after_ms)]
            day = day_found + 1
        raise OverExcludedError(_OVER_EXCLUDED)

    @limit_search
    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest due time in (after_ms, until_ms], once moved."""
        day, day_min = self._day_beside(until_ms, 1), self._day_beside(after_ms, -1)
        for _ in range(STEPS_MAX):
            day_found = self._target_until(day)
            if day_found is None or day_found < day_min:
                return None
            due = self._due_on(day_found)
            if due[0] <= until_ms:
                found = due[bisect_right(due, until_ms) - 1]
                return found if found > after_ms else None
            day = day_found - 1
        raise OverExcludedError(_OVER_EXCLUDED)

    def describe(self) -> str:
        """Return the trigger, and to where it moves."""
        return f"{self.inner.describe()}, moved to the {'next' if self.step > 0 else 'previous'} day from excluded ones"

    def _target_from(self, day: int) -> int | None:
        """Return the first day from ``day`` on that has due times, once moved."""
        free = self._free(day, 1)
        found = None if free is None else self.inner.next_ms(self._start_ms(self._source(free, -1)) - 1)
        return None if found is None else self._target(self._day(found))

    def _target_until(self, day: int) -> int | None:
        """Return the last day up to ``day`` that has due times, once moved."""
        free = self._free(day, -1)
        if free is None:
            return None
        found = self.inner.latest_ms(_LONG_AGO_MS, self._start_ms(self._source(free, 1) + 1) - 1)
        return None if found is None else self._target(self._day(found))

    def _target(self, day: int) -> int | None:
        """Return where the due times of ``day`` move; None: the calendar has not begun, or is over."""
        if self._free(day, 1) == day:
            return day
        return None if self._free(day, -self.step) is None else self._free(day, self.step)

    def _source(self, day: int, side: int) -> int:
        """Return the first (``side`` -1) or last (1) day whose due times move to ``day``, which is not excluded."""
        if side == self.step:
            return day
        other = self._free(day + side, side)
        return day if other is None else other - side

    def _due_on(self, day: int) -> tuple[int, ...]:
        """Return the due times of a day that has some, once moved, in order."""
        known = self._recent.get(day)
        if known is not None:
            return known
        first, last = self._source(day, -1), self._source(day, 1)
        until_ms = self._start_ms(last + 1) - 1
        found = list(self.inner.nominals(self._start_ms(first) - 1, until_ms, MOVED_MAX + 1))
        if len(found) > MOVED_MAX:
            raise OverExcludedError(_OVER_EXCLUDED)
        spend(3 * len(found))  # each is moved on the clock of the zone
        if len(self._recent) >= RECENT_MAX:
            self._recent.clear()
        self._recent[day] = due = tuple(sorted({self._moved(at, day) for at in found}))
        return due

    def _moved(self, at_ms: int, day: int) -> int:
        own = self._day(at_ms)
        if self._free(own, 1) == own:
            return at_ms
        return Moment(at_ms, self.zone.name).moved(Span(day - own, 0)).instant_ms

    def _free(self, day: int, step: int) -> int | None:
        spend(len(self.days))
        try:
            return free_of_all(self.days, day, step)
        except CalendarEndError:
            return None

    def _day_beside(self, at_ms: int, step: int) -> int:
        """Return the day of ``at_ms``; near a change of the clock, which may carry past midnight, the day beside it."""
        at = min(max(at_ms // 1000, SECOND_MIN), SECOND_MAX - 1)
        segment = self.zone.at(at)
        is_steady = segment.start <= at - 2 * DAY_S and at + 2 * DAY_S < segment.end
        return self._day(at_ms) if is_steady else self._day(at_ms) + step

    def _day(self, at_ms: int) -> int:
        at = min(max(at_ms // 1000, SECOND_MIN), SECOND_MAX - 1)
        return (at + self.zone.at(at).offset) // DAY_S

    def _start_ms(self, day: int) -> int:
        return self.zone.first_showing(day * DAY_S) * 1000


_OVER_EXCLUDED = f"over-excluded: more than {MOVED_MAX} due times would move to one day; narrow the exclusions"
