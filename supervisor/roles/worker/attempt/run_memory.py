"""Runs that one worker process refused, of which a bounded number is remembered.

Guarantees
    A run that is remembered stays for as long as was asked, unless it is removed: if each new run took the place of
    the oldest, none of more than there is room for would be found when it comes again.
"""

from __future__ import annotations

from supervisor.core.model import RunKey

RUNS_MAX = 10_000


def waiting_key(queue: str, run_id: str, *, born: int, fence: int) -> RunKey:
    """Return the key of a run that waits for its next execution: by whatever process that is, it waits anew after it.

    Args:
        queue: where it is.
        run_id: which.
        born: when it was enqueued: distinguishes it from an earlier one of the same id.
        fence: its attempts, crashes and interruptions on record, which grow with each execution.
    """
    return queue, f"{run_id} {born} {fence}"


class RefusedRuns(dict[RunKey, tuple[int, int]]):
    """Since when each run is refused, by elapsed time, and how often."""

    def note(
        self, key: RunKey, now_ns: int, *, kept_ns: int, before: tuple[int, int] | None = None
    ) -> tuple[int, int] | None:
        """Return since when and how often a run is refused with this time; None if older ones have all the room.

        Args:
            key: which.
            now_ns: elapsed time.
            kept_ns: how long ago the oldest ended elsewhere, or it would have come again: its place is free.
            before: since when and how often before, if that was remembered elsewhere.
        """
        since_ns, count = self.get(key) or before or (now_ns, 0)
        if key not in self and len(self) >= RUNS_MAX:
            oldest, (oldest_ns, _) = next(iter(self.items()))
            if now_ns - oldest_ns < kept_ns:
                return None
            del self[oldest]
        self[key] = since_ns, count + 1
        return self[key]
