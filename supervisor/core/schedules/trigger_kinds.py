"""The kinds of triggers, and how they combine: unions, exclusions, bounds."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, islice

from supervisor.core.calendars.days import REACH_S, STEPS_MAX, CalendarEndError, OverExcludedError
from supervisor.core.calendars.search_limit import SearchLimitError, limit_search, spend
from supervisor.core.cron.expression import Cron
from supervisor.core.durations import EPOCH, format_duration
from supervisor.core.schedules.exclusions import Exclusions
from supervisor.core.schedules.neighbours import ALONE, Neighbours

_ENDINGS = {"ok": "has ended ok", "failed": "has failed", "any": "has ended"}


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
        last, given = self.latest_ms(after_ms, until_ms), 0  # behind it, looking for one that exclusions leave may fail
        while last is not None and after_ms < last and (limit is None or given < limit):
            found = self.next_ms(after_ms)
            if found is None:
                return
            yield found
            after_ms, given = found, given + 1

    @limit_search
    def newest(self, after_ms: int, until_ms: int, limit: int) -> tuple[int, ...]:
        """Return the newest ``limit`` nominal times in (after_ms, until_ms], oldest first.

        They are fewer where more take too many looks.
        """
        found: list[int] = []
        try:
            for latest in islice(self.backwards(after_ms, until_ms), limit):
                found.append(latest)  # noqa: PERF402 - what was found before the error counts
        except SearchLimitError:
            if not found:
                raise
        return tuple(reversed(found))

    @limit_search
    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times lie in (after_ms, until_ms], or ``cap`` when at least that many."""
        return sum(1 for _ in self.nominals(after_ms, until_ms, cap))

    def backwards(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """Yield the nominal times in (after_ms, until_ms], newest first."""
        while (latest := self.latest_ms(after_ms, until_ms)) is not None:
            yield latest
            until_ms = latest - 1

    def neighbours(self, nominal_ms: int, next_ms: int | None = None) -> Neighbours:
        """Return the due times around ``nominal_ms``, which need not be one; ``next_ms`` where the caller knows it."""
        try:
            return Neighbours(self.latest_ms(-1, nominal_ms - 1), next_ms or self.next_ms(nominal_ms))
        except OverExcludedError:
            return ALONE


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
        phase = f" phase {format_duration(phase_ms / 1000)}" if phase_ms else ""
        return f"every {format_duration(self.every_ms / 1000)}{phase}"

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
        at = EPOCH + timedelta(milliseconds=self.at_ms)
        return f"at {at.isoformat(timespec='milliseconds' if self.at_ms % 1000 else 'seconds')[:-6]}Z"


class AfterRun(Trigger):
    """Due by the end of a run alone, so never by the calendar."""

    __slots__ = ()

    def next_ms(self, after_ms: int) -> int | None:
        """Return None."""
        del after_ms
        return None

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return None."""
        del after_ms, until_ms
        return None


@dataclass(frozen=True, slots=True)
class AfterCompletion(AfterRun):
    """Due some time after the end of a run."""

    delay_ms: int

    def describe(self) -> str:
        """Return for example ``10m after completion``."""
        return f"{format_duration(self.delay_ms / 1000)} after completion"


@dataclass(frozen=True, slots=True)
class AfterSchedule(AfterRun):
    """Due at a nominal time of another schedule when its run for that time ends."""

    schedule: str
    outcome: str
    source: Trigger | None = None
    """The trigger of the other schedule, where it is known: for the times around a nominal one."""

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times of the other schedule lie in (after_ms, until_ms], at most ``cap``."""
        return 0 if self.source is None else self.source.count(after_ms, until_ms, cap)

    def neighbours(self, nominal_ms: int, next_ms: int | None = None) -> Neighbours:
        """Return the due times of the other schedule around ``nominal_ms``."""
        return ALONE if self.source is None else self.source.neighbours(nominal_ms, next_ms)

    def describe(self) -> str:
        """Return for example ``after load has ended ok``."""
        return f"after {self.schedule} {_ENDINGS[self.outcome]}"


@dataclass(frozen=True, slots=True)
class Union(Trigger):
    """Due when any of its parts is; equal nominal times are one."""

    parts: tuple[Trigger, ...]

    @limit_search
    def next_ms(self, after_ms: int) -> int | None:
        """Return the soonest of the parts."""
        spend(len(self.parts))
        return min((at for part in self.parts if (at := part.next_ms(after_ms)) is not None), default=None)

    @limit_search
    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest of the parts."""
        spend(len(self.parts))
        return max((at for part in self.parts if (at := part.latest_ms(after_ms, until_ms)) is not None), default=None)

    def nominals(self, after_ms: int, until_ms: int, limit: int | None = None) -> Iterator[int]:
        """Yield the different nominal times in (after_ms, until_ms], oldest first, at most ``limit``."""
        return islice(_merged(part.nominals(after_ms, until_ms) for part in self.parts), limit)

    def backwards(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """Yield the different nominal times in (after_ms, until_ms], newest first."""
        return _merged((part.backwards(after_ms, until_ms) for part in self.parts), reverse=True)

    @limit_search
    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many different nominal times lie in (after_ms, until_ms], at most ``cap``."""
        spend(len(self.parts))
        most = max(part.count(after_ms, until_ms, cap) for part in self.parts)
        return most if most >= cap else Trigger.count(self, after_ms, until_ms, cap)

    def describe(self) -> str:
        """Return all parts."""
        return "; ".join(part.describe() for part in self.parts)


def _merged(parts: Iterable[Iterator[int]], *, reverse: bool = False) -> Iterator[int]:
    """Yield the different times of ``parts``, which are in order; each costs a look, equal ones too."""
    for at, equal in groupby(heapq.merge(*parts, reverse=reverse)):
        spend(sum(1 for _ in equal))
        yield at


@dataclass(frozen=True, slots=True)
class ExclusionTrigger(Trigger):
    """Another trigger without the nominal times that are excluded.

    Every question may raise ``OverExcludedError`` when a search passes 10,000 excluded stretches, or 100 years.
    """

    inner: Trigger
    exclusions: Exclusions

    @limit_search
    def next_ms(self, after_ms: int) -> int | None:
        """Return the first nominal time after ``after_ms`` that is not excluded."""
        return _free(self.inner.next_ms, self.exclusions.free_from, after_ms, back=1)

    @limit_search
    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest nominal time in (after_ms, until_ms] that is not excluded."""
        return _free(lambda until: self.inner.latest_ms(after_ms, until), self.exclusions.free_until, until_ms, back=0)

    @limit_search
    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times in (after_ms, until_ms] are not excluded, at most ``cap``."""
        total, last = 0, self.latest_ms(after_ms, until_ms)
        while total < cap and last is not None and after_ms < last:
            found = self.next_ms(after_ms)
            if found is None:
                break
            after_ms = min(self.exclusions.taken_from(found, until_ms + 1) - 1, until_ms)
            total += self.inner.count(found - 1, after_ms, cap - total)
        return total

    def describe(self) -> str:
        """Return the trigger and that there are exclusions."""
        return f"{self.inner.describe()}, with exclusions"


def _free(find: Callable[[int], int | None], free_beside: Callable[[int], int], at_ms: int, *, back: int) -> int | None:
    """Return what ``find`` finds from ``at_ms`` and ``free_beside`` lets stand; else look on from its answer."""
    first = None
    for _ in range(STEPS_MAX):
        spend(1)
        found = find(at_ms)
        if found is None:
            return None
        first = found if first is None else first
        try:
            free = free_beside(found)
        except CalendarEndError:
            return None
        if free == found:
            return found
        if abs(found - first) > REACH_S * 1000:
            raise OverExcludedError("over-excluded: all due times of 100 years are excluded; narrow the exclusions")
        at_ms = free - back
    raise OverExcludedError(f"over-excluded: {STEPS_MAX} due times in a row are excluded; narrow the exclusions")


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

    def neighbours(self, nominal_ms: int, next_ms: int | None = None) -> Neighbours:
        """Return the due times around ``nominal_ms``, whether or not they lie within the bounds."""
        return self.inner.neighbours(nominal_ms, next_ms)

    def describe(self) -> str:
        """Return the inner trigger; the bounds are shown beside it."""
        return self.inner.describe()

    def _after(self, after_ms: int) -> int:
        return after_ms if self.start_ms is None else max(after_ms, self.start_ms - 1)

    def _until(self, until_ms: int) -> int:
        return until_ms if self.end_ms is None else min(until_ms, self.end_ms)
