"""The kinds of triggers, and how they combine: unions, exclusions, bounds."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice

from supervisor.core.calendars.days import STEPS_MAX, CalendarEndError, OverExcludedError
from supervisor.core.cron.expression import Cron
from supervisor.core.schedules.exclusions import Exclusions

_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_ENDINGS = {"ok": "has ended ok", "failed": "has failed", "any": "has ended"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Trigger(ABC):
    """Due times of a schedule. Nominal times are milliseconds since 1970."""

    __slots__ = ()

    @abstractmethod
    def next_ms(self, after_ms: int) -> int | None:
        """Return the first nominal time after ``after_ms``; None when there is none in reach."""

    @abstractmethod
    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest nominal time in (after_ms, until_ms]."""

    @abstractmethod
    def describe(self) -> str:
        """Return the trigger as people write it: ``every 10m``, ``cron 30 2 * * * Europe/Berlin``."""

    def nominals(self, after_ms: int, until_ms: int, limit: int | None = None) -> Iterator[int]:
        """Yield the nominal times in (after_ms, until_ms], oldest first, at most ``limit``."""
        found = self.next_ms(after_ms)
        given = 0
        while found is not None and found <= until_ms and (limit is None or given < limit):
            yield found
            given += 1
            found = self.next_ms(found)

    def newest(self, after_ms: int, until_ms: int, limit: int) -> tuple[int, ...]:
        """Return the newest ``limit`` nominal times in (after_ms, until_ms], oldest first."""
        found: list[int] = []
        while len(found) < limit:
            latest = self.latest_ms(after_ms, until_ms)
            if latest is None:
                break
            found.append(latest)
            until_ms = latest - 1
        return tuple(reversed(found))

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times lie in (after_ms, until_ms], or ``cap`` when at least that many."""
        return sum(1 for _ in self.nominals(after_ms, until_ms, cap))


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Due at ``phase_ms + k * every_ms`` for every whole k: a grid through 1970-01-01T00:00Z, shifted by the phase."""

    every_ms: int
    phase_ms: int = 0

    def next_ms(self, after_ms: int) -> int:
        """Return the first grid point after ``after_ms``."""
        return self._at_or_before(after_ms) + self.every_ms

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest grid point in (after_ms, until_ms]."""
        latest = self._at_or_before(until_ms)
        return latest if latest > after_ms else None

    def nominals(self, after_ms: int, until_ms: int, limit: int | None = None) -> Iterator[int]:
        """Yield the grid points in (after_ms, until_ms], oldest first, at most ``limit``."""
        return iter(range(self.next_ms(after_ms), until_ms + 1, self.every_ms)[:limit])

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many grid points lie in (after_ms, until_ms], at most ``cap``."""
        points = (self._at_or_before(until_ms) - self._at_or_before(after_ms)) // self.every_ms
        return min(max(points, 0), cap)

    def describe(self) -> str:
        """Return for example ``every 10m`` or ``every 1h phase 5m``."""
        phase_ms = self.phase_ms % self.every_ms
        phase = f" phase {_duration(phase_ms)}" if phase_ms else ""
        return f"every {_duration(self.every_ms)}{phase}"

    def _at_or_before(self, at_ms: int) -> int:
        return at_ms - (at_ms - self.phase_ms) % self.every_ms


@dataclass(frozen=True, slots=True)
class CronTrigger(Trigger):
    """Due at the times of a cron expression, on whole seconds."""

    cron: Cron

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first fire after ``after_ms``; None when there is none within 40 years."""
        at = self.cron.next(after_ms // 1000)
        return None if at is None else at * 1000

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest fire in (after_ms, until_ms]."""
        at = self.cron.prev(until_ms // 1000)
        return None if at is None or at * 1000 <= after_ms else at * 1000

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many fires lie in (after_ms, until_ms], at most ``cap``."""
        return self.cron.count(after_ms // 1000, until_ms // 1000, cap)

    def describe(self) -> str:
        """Return for example ``cron 30 2 * * * Europe/Berlin``."""
        return self.cron.describe()


@dataclass(frozen=True, slots=True)
class At(Trigger):
    """Due once."""

    at_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        """Return the time, if it lies after ``after_ms``."""
        return self.at_ms if self.at_ms > after_ms else None

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the time, if it lies in (after_ms, until_ms]."""
        return self.at_ms if after_ms < self.at_ms <= until_ms else None

    def describe(self) -> str:
        """Return for example ``at 2027-01-01T09:00:00Z``."""
        at = _EPOCH + timedelta(milliseconds=self.at_ms)
        return f"at {at.isoformat(timespec='milliseconds' if self.at_ms % 1000 else 'seconds')[:-6]}Z"


@dataclass(frozen=True, slots=True)
class AfterCompletion(Trigger):
    """Due some time after the end of a run, so never by the calendar alone."""

    delay_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        """Return None: only the end of a run makes it due."""
        del after_ms
        return None

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return None: only the end of a run makes it due."""
        del after_ms, until_ms
        return None

    def describe(self) -> str:
        """Return for example ``10m after completion``."""
        return f"{_duration(self.delay_ms)} after completion"


@dataclass(frozen=True, slots=True)
class AfterSchedule(Trigger):
    """Due at a nominal time of another schedule when its run for that time ends, so never by the calendar alone."""

    schedule: str
    outcome: str
    source: Trigger | None = None
    """The trigger of the other schedule, where it is known: for the times around a nominal one."""

    def next_ms(self, after_ms: int) -> int | None:
        """Return None: only the end of a run makes it due."""
        del after_ms
        return None

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return None: only the end of a run makes it due."""
        del after_ms, until_ms
        return None

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times of the other schedule lie in (after_ms, until_ms], at most ``cap``."""
        return 0 if self.source is None else self.source.count(after_ms, until_ms, cap)

    def describe(self) -> str:
        """Return for example ``after load has ended ok``."""
        return f"after {self.schedule} {_ENDINGS[self.outcome]}"


@dataclass(frozen=True, slots=True)
class Union(Trigger):
    """Due when any of its parts is; equal nominal times are one."""

    parts: tuple[Trigger, ...]

    def next_ms(self, after_ms: int) -> int | None:
        """Return the soonest of the parts."""
        return min((at for part in self.parts if (at := part.next_ms(after_ms)) is not None), default=None)

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest of the parts."""
        return max((at for part in self.parts if (at := part.latest_ms(after_ms, until_ms)) is not None), default=None)

    def nominals(self, after_ms: int, until_ms: int, limit: int | None = None) -> Iterator[int]:
        """Yield the different nominal times in (after_ms, until_ms], oldest first, at most ``limit``."""
        merged = heapq.merge(*(part.nominals(after_ms, until_ms) for part in self.parts))
        return islice((at for at, _ in groupby(merged)), limit)

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many different nominal times lie in (after_ms, until_ms], at most ``cap``."""
        most = max(part.count(after_ms, until_ms, cap) for part in self.parts)
        return most if most >= cap else Trigger.count(self, after_ms, until_ms, cap)

    def describe(self) -> str:
        """Return all parts."""
        return "; ".join(part.describe() for part in self.parts)


@dataclass(frozen=True, slots=True)
class ExclusionTrigger(Trigger):
    """Another trigger without the nominal times that are excluded.

    Every question may raise ``OverExcludedError`` when a search passes 10,000 excluded stretches.
    """

    inner: Trigger
    exclusions: Exclusions

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first nominal time after ``after_ms`` that is not excluded."""
        for _ in range(STEPS_MAX):
            found = self.inner.next_ms(after_ms)
            if found is None:
                return None
            try:
                free = self.exclusions.free_from(found)
            except CalendarEndError:
                return None
            if free == found:
                return found
            after_ms = free - 1
        raise OverExcludedError(_OVER_EXCLUDED)

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest nominal time in (after_ms, until_ms] that is not excluded."""
        for _ in range(STEPS_MAX):
            found = self.inner.latest_ms(after_ms, until_ms)
            if found is None:
                return None
            try:
                free = self.exclusions.free_until(found)
            except CalendarEndError:
                return None
            if free == found:
                return found
            until_ms = free
        raise OverExcludedError(_OVER_EXCLUDED)

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times in (after_ms, until_ms] are not excluded, at most ``cap``.

        Costs a step for each stretch that is free, or for each nominal time, whichever are fewer.
        """
        total = 0
        while total < cap:
            found = self.next_ms(after_ms)
            if found is None or found > until_ms:
                break
            after_ms = min(self.exclusions.taken_from(found, until_ms + 1) - 1, until_ms)
            total += self.inner.count(found - 1, after_ms, cap - total)
        return total

    def describe(self) -> str:
        """Return the trigger and that there are exclusions."""
        return f"{self.inner.describe()}, with exclusions"


_OVER_EXCLUDED = f"over-excluded: {STEPS_MAX} due times in a row are excluded; narrow the exclusions"


@dataclass(frozen=True, slots=True)
class Bounded(Trigger):
    """Another trigger from ``start_ms`` until ``end_ms``, both inclusive; None: without that bound."""

    inner: Trigger
    start_ms: int | None
    end_ms: int | None

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first nominal time after ``after_ms`` within the bounds."""
        found = self.inner.next_ms(self._after(after_ms))
        return None if found is None or (self.end_ms is not None and found > self.end_ms) else found

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest nominal time in (after_ms, until_ms] within the bounds."""
        after_ms, until_ms = self._after(after_ms), self._until(until_ms)
        return self.inner.latest_ms(after_ms, until_ms) if until_ms > after_ms else None

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times lie in (after_ms, until_ms] within the bounds, at most ``cap``."""
        after_ms, until_ms = self._after(after_ms), self._until(until_ms)
        return self.inner.count(after_ms, until_ms, cap) if until_ms > after_ms else 0

    def describe(self) -> str:
        """Return the inner trigger; the bounds are shown beside it."""
        return self.inner.describe()

    def _after(self, after_ms: int) -> int:
        return after_ms if self.start_ms is None else max(after_ms, self.start_ms - 1)

    def _until(self, until_ms: int) -> int:
        return until_ms if self.end_ms is None else min(until_ms, self.end_ms)


def _duration(ms: int) -> str:
    """Return ``ms`` in the largest unit that holds it as a whole number."""
    unit, size = next((unit, size) for unit, size in _UNITS_MS if ms % size == 0)
    return f"{ms // size}{unit}"
