"""The window: runs due within the next seconds, read ahead, so that at its instant only ``fire`` is sent.

Guarantees
    Each schedule is in it once, or behind: late, in the order they were due, paced, after on-time ones.
    It is bounded; the excess stays in Redis.

Does not guarantee
    That its content is still current: Redis decides at the fire.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.schedules.due_heap import DueHeap
from supervisor.roles.scheduler.fire_items import DueSchedule

WINDOW_MAX = 100_000


class Window:
    """Schedules by their next due time."""

    def __init__(self) -> None:
        self._plan = DueHeap()
        self._ready: dict[str, DueSchedule] = {}
        self._behind: dict[str, DueSchedule] = {}  # late ones, in order

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def has_room(self) -> bool:
        """True if more may be read ahead."""
        return len(self._ready) < WINDOW_MAX

    @property
    def behind(self) -> int:
        """Number of late schedules at hand."""
        return len(self._behind)

    def put(self, ready: DueSchedule, *, late_ms: int) -> None:
        """Take in ``ready`` under the known state of its schedule; runs due at ``late_ms`` or earlier are late."""
        self.drop(ready.schedule)
        if ready.fire_ms <= late_ms:
            self._behind[ready.schedule] = ready
        else:
            self._ready[ready.schedule] = ready
            self._plan.put(ready.schedule, ready.fire_ms)

    def drop(self, schedule: str) -> None:
        """Forget ``schedule``."""
        self._behind.pop(schedule, None)
        if self._ready.pop(schedule, None) is not None:
            self._plan.remove(schedule)

    def next_ms(self) -> int | None:
        """Return when the next is due that is not late."""
        return self._plan.next_ms()

    def due(self, now_ms: int, late_ms: int, limit: int) -> list[DueSchedule]:
        """Take out due runs, earliest first. Runs that became late meanwhile go behind."""
        found: list[DueSchedule] = []
        while len(found) < limit:
            names = self._plan.due(now_ms, limit - len(found))
            if not names:
                break
            for ready in map(self._ready.pop, names):
                if ready.fire_ms <= late_ms:
                    self._behind[ready.schedule] = ready
                else:
                    found.append(ready)
        return found

    def late(self, limit: int) -> list[DueSchedule]:
        """Take out late ones, the first that came first."""
        names = list(self._behind)[:limit] if limit >= len(self._behind) else _first(self._behind, limit)
        return [self._behind.pop(name) for name in names]


def _first(names: Iterable[str], count: int) -> list[str]:
    return [name for _, name in zip(range(count), names, strict=False)]
