"""Times at which a schedule is not due: ranges, matches of a cron expression, and days of calendars.

A nominal time that is excluded is as if it did not exist. An expression of five fields
excludes whole minutes of the wall clock, one of six fields whole seconds, a day all that
clocks show with its date; changes of the clock are taken as they come. Asking for the next
time that is free costs a step for each stretch that is not, never one for each minute, so
months can be excluded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from supervisor.core.calendars.days import REACH_S, STEPS_MAX, DayReadings, OverExcludedError, day_sets, merged
from supervisor.core.calendars.search_limit import limit_search, spend
from supervisor.core.cron.expression import compile_cron
from supervisor.core.cron.times import Times
from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, Zone, zone
from supervisor.core.model import Exclusion


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Everything that one schedule excludes."""

    parts: tuple[_Ranges | _Readings, ...]

    def has(self, at_ms: int) -> bool:
        """Return whether ``at_ms`` is excluded."""
        return any(part.free_from(at_ms) != at_ms for part in self.parts)

    @limit_search
    def free_from(self, at_ms: int) -> int:
        """Return the first time at or after ``at_ms`` that is not excluded.

        Raises:
            OverExcludedError: there is none within 10,000 stretches and 100 years; CalendarEndError: none ever.
        """
        return _settled(at_ms, [part.free_from for part in self.parts])

    @limit_search
    def free_until(self, at_ms: int) -> int:
        """Return the last time at or before ``at_ms`` that is not excluded.

        Raises:
            OverExcludedError: there is none within 10,000 stretches and 100 years.
        """
        return _settled(at_ms, [part.free_until for part in self.parts])

    def taken_from(self, at_ms: int, limit_ms: int) -> int:
        """Return the first time at or after ``at_ms`` that is excluded; ``limit_ms`` when there is none before it."""
        spend(len(self.parts))
        for part in self.parts:
            limit_ms = part.taken_from(at_ms, limit_ms)
        return limit_ms


def _settled(at_ms: int, moves: Sequence[Callable[[int], int]]) -> int:
    """Return where ``at_ms`` comes to rest: no part moves it any further in its direction."""
    for _ in range(STEPS_MAX):
        spend(len(moves))
        free = at_ms
        for move in moves:
            free = move(free)
        if free == at_ms:
            return at_ms
        at_ms = free
    raise OverExcludedError(_MESSAGE)


_MESSAGE = f"over-excluded: nothing is left within {STEPS_MAX} excluded stretches and 100 years; narrow the exclusions"


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Disjoint ranges [from, until) in order."""

    froms: tuple[int, ...]
    untils: tuple[int, ...]

    def free_from(self, at_ms: int) -> int:
        index = bisect_right(self.froms, at_ms) - 1
        return max(at_ms, self.untils[index]) if index >= 0 else at_ms

    def free_until(self, at_ms: int) -> int:
        index = bisect_right(self.froms, at_ms) - 1
        return self.froms[index] - 1 if index >= 0 and at_ms < self.untils[index] else at_ms

    def taken_from(self, at_ms: int, limit_ms: int) -> int:
        index = bisect_right(self.froms, at_ms) - 1
        if index >= 0 and at_ms < self.untils[index]:
            return min(at_ms, limit_ms)
        return min(self.froms[index + 1], limit_ms) if index + 1 < len(self.froms) else limit_ms


@dataclass(frozen=True, slots=True)
class _Readings:
    """Readings of the wall clock of a zone."""

    times: Times | DayReadings
    zone: Zone

    def free_from(self, at_ms: int) -> int:
        at = at_ms // 1000
        end = min(SECOND_MAX, at + REACH_S)
        while SECOND_MIN < at < end:
            segment = self.zone.at(at)
            free = self.times.first_free(at + segment.offset, segment.end + segment.offset - 1)
            if free is not None:
                return max(at_ms, (free - segment.offset) * 1000)
            at = segment.end
        raise OverExcludedError(_MESSAGE)

    def free_until(self, at_ms: int) -> int:
        at = at_ms // 1000
        end = max(SECOND_MIN, at - REACH_S)
        while end < at < SECOND_MAX:
            segment = self.zone.at(at)
            free = self.times.last_free(at + segment.offset, segment.start + segment.offset)
            if free is not None:
                return min(at_ms, (free - segment.offset) * 1000 + 999)
            at = segment.start - 1
        raise OverExcludedError(_MESSAGE)

    def taken_from(self, at_ms: int, limit_ms: int) -> int:
        at = at_ms // 1000
        while SECOND_MIN < at < SECOND_MAX and at * 1000 < limit_ms:
            segment = self.zone.at(at)
            last = min(segment.end, limit_ms // 1000 + 1) - 1
            taken = self.times.first(at + segment.offset, last + segment.offset)
            if taken is not None:
                return min(max(at_ms, (taken - segment.offset) * 1000), limit_ms)
            at = segment.end
        return limit_ms


def exclusions_of(exclude: Sequence[Exclusion], timezone: str, seed: str = "") -> Exclusions:
    """Return the compiled ``exclude``, its expressions read in ``timezone``, ``H`` drawn from the schedule's id.

    Raises:
        CronError: an expression cannot be used.
    """
    times = [item for item in exclude if not item.days]
    ranges = [(item.from_ms or 0, item.until_ms or 0) for item in times if item.cron is None]
    parts: list[_Ranges | _Readings] = [_Ranges(*merged(ranges))] if ranges else []
    parts += [
        _readings(cron, timezone, seed) for cron in dict.fromkeys(item.cron for item in times) if cron is not None
    ]
    parts += [_Readings(DayReadings(each), zone(timezone)) for each in day_sets(item.days for item in exclude)]
    return Exclusions(tuple(parts))


@lru_cache(maxsize=4096)
def _readings(expression: str, timezone: str, seed: str) -> _Readings:
    return _Readings(compile_cron(expression, timezone, seed=seed).readings(), zone(timezone))
