"""Bells that a worker waits at: of queues whose share of its slots is not used up, and none that Redis refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError
from supervisor.core.units import SECOND_NS

RETRY_NS = 5 * SECOND_NS


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


class BellListener:
    """Waits at bells, but at none in whose place there is a key of another type: Redis refuses a wait at it and others.

    Such a bell is reported, and tried again after ``RETRY_NS``. Effects are calls that whoever drives it makes, and
    awaits where the store is asynchronous.
    """

    def __init__(self, clock: Clock, report: Callable[[str, int], None]) -> None:
        """Build it; ``report`` takes a failure that begins with the key, and the time."""
        self._clock = clock
        self._report = report
        self._refused_until_ns: dict[str, int] = {}

    def ring(
        self, store: Any, bells: Sequence[str], wait_s: float, *, pause: Callable[[float], Any]
    ) -> Generator[Callable[[], Any], Any, str | None]:
        """Wait at most ``wait_s`` at ``bells``, or by ``pause`` where all are refused; return the one that rang.

        Raises:
            StoreRefusedError: it is about no bell.
        """
        now_ns = self._clock.elapsed_ns()
        others = [bell for bell in bells if self._refused_until_ns.get(bell, now_ns) <= now_ns]
        if not others:
            yield partial(pause, wait_s)
            return None
        try:
            rung: str | None = yield partial(store.ring, others, wait_s)
        except StoreRefusedError as error:
            if error.concerns_client or not (yield from self._has_refused(store, others)):
                raise
            return None
        return rung

    def _has_refused(self, store: Any, bells: Sequence[str]) -> Generator[Callable[[], Any], Any, bool]:
        """Ask for each of ``bells`` alone, and leave those out that Redis refuses; return whether there is one."""
        has_one = False
        for bell in bells:
            try:
                yield partial(store.command, "LLEN", bell)
            except StoreRefusedError as error:
                if error.concerns_client:
                    raise
                now_ns = self._clock.elapsed_ns()
                self._refused_until_ns[bell] = now_ns + RETRY_NS
                self._report(f"{bell}: {error}", now_ns)
                has_one = True
        return has_one
