"""Attribution of out-of-memory kills to the processes that died by SIGKILL.

The kernel only counts such kills. One that comes with the death of a child explains it; one that fits
no death for a few seconds was of a process that a job had started.

Does not guarantee
    The truth about two processes that die in the same seconds, one by the kernel and one by a person.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.units import SECOND_NS

LOOK_PERIOD_NS = 2 * SECOND_NS
REMEMBERED_NS = 5 * SECOND_NS  # how long a kill that fits no death yet may still explain one


@dataclass(slots=True)
class MemoryWatch:
    """Follows the kernel's count. It is None where nobody counts."""

    explained: int | None = None  # kills that belong to a death that was seen, or to none of ours
    seen: int = 0
    seen_ns: int = 0  # when the count last changed
    due_ns: int = 0  # when the count is to be looked at again

    def look(self, kills: int | None, now_ns: int) -> None:
        """Take note of the count; every ``LOOK_PERIOD_NS``, so that old kills explain nothing."""
        self.due_ns = now_ns + LOOK_PERIOD_NS
        if kills is None:
            return
        if self.explained is None:
            self.explained, self.seen = kills, kills  # before there was any child
        if kills != self.seen:
            self.seen, self.seen_ns = kills, now_ns
        elif now_ns - self.seen_ns > REMEMBERED_NS:
            self.explained = kills

    def is_victim(self, kills: int | None) -> bool | None:
        """Return whether a process that SIGKILL ended just now died for memory; None when that cannot be known."""
        if kills is None or self.explained is None:
            return None
        if self.explained >= kills:
            return False
        self.explained += 1
        return True
