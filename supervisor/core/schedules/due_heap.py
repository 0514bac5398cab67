"""The plan: which schedule is due next. A heap with replacement by id.

Guarantees
    ``due`` hands out each planned schedule at most once, earliest first, and at most as
    many as asked for. Adding an id again replaces its time. All in O(log n).

Does not guarantee
    That a handed-out schedule comes back: the caller puts it back with its next
    time, or leaves it out when there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush


@dataclass(slots=True)
class DueHeap:
    """Next due time by schedule id."""

    _times: dict[str, int] = field(default_factory=dict)
    _heap: list[tuple[int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, schedule: object) -> bool:
        return schedule in self._times

    def __iter__(self) -> Iterator[str]:
        return iter(self._times)

    def put(self, schedule: str, next_ms: int) -> None:
        """Plan ``schedule`` for ``next_ms``; an earlier plan for it is forgotten."""
        self._times[schedule] = next_ms
        heappush(self._heap, (next_ms, schedule))
        if len(self._heap) > 64 + 2 * len(self._times):
            # Replaced entries stay in the heap until they surface; rebuilding when they outnumber
            # the live ones keeps memory and every operation bounded by the number of schedules.
            self._heap = [(time, known) for known, time in self._times.items()]
            heapify(self._heap)

    def remove(self, schedule: str) -> None:
        """Forget ``schedule``; unknown ids are fine."""
        self._times.pop(schedule, None)

    def next_ms(self) -> int | None:
        """Return when the next schedule is due, or None when nothing is planned."""
        self._drop_replaced()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Take out up to ``limit`` schedules that are due at ``now_ms``, earliest first."""
        assert limit > 0
        found: list[str] = []
        while len(found) < limit:
            self._drop_replaced()
            if not self._heap or self._heap[0][0] > now_ms:
                break
            _, schedule = heappop(self._heap)
            del self._times[schedule]
            found.append(schedule)
        return found

    def _drop_replaced(self) -> None:
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
