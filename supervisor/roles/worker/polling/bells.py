"""Bells that an async worker waits at: of queues whose share of its slots is not used up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence


class Bells:
    """Notification keys of this worker: those of queues that it could take something from."""

    def __init__(
        self, bells: Mapping[str, str], *, shares: Mapping[str, int], here: Callable[[], Counter[str]]
    ) -> None:
        """Build it.

        Args:
            bells: queue to bell.
            shares: the most runs of a queue that may be here, for queues with such a limit.
            here: returns how many runs of each queue are here; asked only where there are shares.
        """
        self._bells = bells
        self._shares = shares
        self._here = here

    def room(self, free: int) -> int:
        """Return how many of ``free`` slots can be filled without any queue getting more than its share."""
        if free <= 0 or not self._shares:
            return free
        here = self._here()
        rooms = (self._shares[queue] - here[queue] if queue in self._shares else free for queue in self._bells)
        return min(free, sum(max(0, room) for room in rooms))

    def audible(self) -> list[str]:
        """Return the bells to wait at."""
        return [bell for queue, bell in self._bells.items() if self._has_room(queue)]

    def are_all(self, bells: Sequence[str]) -> bool:
        """Return whether none is left out of ``bells``."""
        return len(bells) == len(self._bells)

    def is_ours(self, rung: str) -> bool:
        """Return whether ``rung`` announces a run that could be taken now."""
        return any(bell == rung and self._has_room(queue) for queue, bell in self._bells.items())

    def _has_room(self, queue: str) -> bool:
        most = self._shares.get(queue)
        return most is None or self._here()[queue] < most
