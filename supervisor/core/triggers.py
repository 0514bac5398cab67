"""Triggers: when a schedule is due, as pure functions of time in milliseconds.

A nominal time depends on the definition alone, never on when something ran or started, so
every replica computes the same ones and a restart moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from supervisor.core.cron import Cron, compile_cron
from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.core.model import ScheduleDef

_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


class TriggerError(TenureError):
    """A definition that says neither or both of ``every`` and ``cron``, or an impossible interval."""

    exit_code = EXIT_CONFIG


class Trigger(Protocol):
    """When a schedule is due. Nominal times are milliseconds since 1970."""

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first nominal time after ``after_ms``; None when there is none in reach."""
        ...

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest nominal time in (after_ms, until_ms]."""
        ...

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many nominal times lie in (after_ms, until_ms], or ``cap`` when at least that many."""
        ...

    def describe(self) -> str:
        """Return the trigger as people write it: ``every 10m``, ``cron 30 2 * * * Europe/Berlin``."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Due at ``phase_ms + k * every_ms`` for every whole k: a grid through 1970-01-01T00:00Z, shifted by the phase."""

    every_ms: int
    phase_ms: int = 0

    def __post_init__(self) -> None:
        if self.every_ms < 1:
            raise TriggerError(f"every must be at least 1 ms, got {self.every_ms} ms; use 100ms or more")

    def next_ms(self, after_ms: int) -> int:
        """Return the first grid point after ``after_ms``."""
        return self._at_or_before(after_ms) + self.every_ms

    def latest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the newest grid point in (after_ms, until_ms]."""
        latest = self._at_or_before(until_ms)
        return latest if latest > after_ms else None

    def count(self, after_ms: int, until_ms: int, cap: int) -> int:
        """Return how many grid points lie in (after_ms, until_ms], at most ``cap``."""
        points = (self._at_or_before(until_ms) - self._at_or_before(after_ms)) // self.every_ms
        return min(max(points, 0), cap)

    def describe(self) -> str:
        """Return for example ``every 10m`` or ``every 1h phase 5m``."""
        phase = f" phase {_duration(self.phase_ms)}" if self.phase_ms else ""
        return f"every {_duration(self.every_ms)}{phase}"

    def _at_or_before(self, at_ms: int) -> int:
        return at_ms - (at_ms - self.phase_ms) % self.every_ms


@dataclass(frozen=True, slots=True)
class CronTrigger:
    """Due when a cron expression says so, on whole seconds."""

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


def trigger_of(definition: ScheduleDef) -> Trigger:
    """Return the trigger of ``definition``.

    Raises:
        TriggerError: it sets neither or both of ``every_ms`` and ``cron``.
        CronError: its expression or zone cannot be used.
    """
    if definition.cron is not None and definition.every_ms is None:
        return CronTrigger(compile_cron(definition.cron, definition.timezone))
    if definition.every_ms is not None and definition.cron is None:
        return Every(definition.every_ms, definition.phase_ms)
    both = "both every and cron" if definition.cron is not None else "neither every nor cron"
    raise TriggerError(f"schedule {definition.id!r} sets {both}; set exactly one of them")


def _duration(ms: int) -> str:
    """Return ``ms`` in the largest unit that holds it as a whole number."""
    unit, size = next((unit, size) for unit, size in _UNITS_MS if ms % size == 0)
    return f"{ms // size}{unit}"
