"""Presence of a leader's process, judged by the connections that show that it lives.

Guarantees
    A hint is given only about a holder that this replica itself saw present since its own
    connection was last interrupted, since the term began, and after a whole lease duration
    of both; and only after it was absent twice in a row, a moment apart.

Does not guarantee
    That the process is dead. So the script that acts on a hint looks once more, demands
    that the holder was visible at its last renewal and did not renew since, and every
    write is fenced anyway: a wrong hint costs a hand-over and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CONFIRM_NS = 100_000_000  # between two looks: a leader whose connection was cut makes a new one in less


class Sighting(Enum):
    """Result of one check of the holder's presence."""

    NOTHING = "nothing"  # it is there, or too little is known
    ABSENT_ONCE = "absent once"  # look again soon
    ABSENT = "absent"


@dataclass(slots=True)
class PresenceWatch:
    """Knowledge of a standby about the presence of the holder of one term."""

    duration_ns: int
    epoch: int = 0
    is_proven: bool = False  # it was seen present since the last interruption
    judges_from_ns: int = 0
    absent_since_ns: int = 0  # 0: it was there at the last look

    def interrupted(self, now_ns: int) -> None:
        """Start over: our connection broke, so the holder's may be about to come back too."""
        self.is_proven, self.absent_since_ns = False, 0
        self.judges_from_ns = now_ns + self.duration_ns

    def look(self, *, epoch: int, count: int, now_ns: int) -> Sighting:
        """Take in that ``count`` connections show the holder of ``epoch``; -1: unknown to the server."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.interrupted(now_ns)
        if count != 0:
            self.is_proven, self.absent_since_ns = self.is_proven or count > 0, 0
            return Sighting.NOTHING
        if not self.is_proven or now_ns < self.judges_from_ns:
            return Sighting.NOTHING
        if self.absent_since_ns == 0:
            self.absent_since_ns = now_ns
            return Sighting.ABSENT_ONCE
        return Sighting.ABSENT if now_ns - self.absent_since_ns >= CONFIRM_NS else Sighting.ABSENT_ONCE
