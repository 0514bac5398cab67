"""Folding of lines about runs that ended: so many a second in full, the others counted by job and outcome.

Guarantees
    Each second at most ``FOLDED_MAX`` jobs and outcomes are counted apart, and all others together, since whoever
    enqueues invents names of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.core.units import SECOND_NS

FOLDED_MAX = 100
OTHERS = "others"
WINDOW_NS = SECOND_NS


@dataclass(slots=True)
class Folded:
    """Ends of one job, of one outcome, written together on one line."""

    job: str
    outcome: str
    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    note: str = ""  # of the last one

    @property
    def mean_s(self) -> float:
        """Mean duration."""
        return self.total_s / self.count if self.count else 0.0

    def fields(self) -> dict[str, Any]:
        """Return the fields of the line."""
        return {
            "job": self.job,
            "outcome": str(self.outcome),
            "count": self.count,
            "total_s": round(self.total_s, 3),
            "mean_s": round(self.mean_s, 6),
            "max_s": round(self.longest_s, 6),
        }


class Fold:
    """Counts lines within windows of one second.

    A line for each run is of use at five runs a second, and at twenty thousand it is the most expensive part of
    each. Nothing is dropped in silence: lines not written in full are counted, and the count is written.

    Time enters as an argument. Nothing here logs.
    """

    def __init__(self, lines_max: int) -> None:
        """Build it; ``lines_max`` lines a second are written in full."""
        assert lines_max > 0
        self._lines_max = lines_max
        self._lines = 0
        self._since_ns = -WINDOW_NS
        self._folded: dict[tuple[str, str], Folded] = {}

    def admits(self, now_ns: int) -> bool:
        """Return whether one more line is written in full, and count it if so."""
        if now_ns - self._since_ns >= WINDOW_NS:
            self._since_ns, self._lines = now_ns, 0
        if self._lines >= self._lines_max:
            return False
        self._lines += 1
        return True

    def add(self, job: str, outcome: str, seconds: float, note: str = "") -> None:
        """Count an end that is not written in full."""
        found = self._folded.get((job, outcome))
        if found is None and len(self._folded) >= FOLDED_MAX:
            job = OTHERS
            found = self._folded.get((job, outcome))
        if found is None:
            found = self._folded[job, outcome] = Folded(job, outcome)
        found.count += 1
        found.total_s += seconds
        found.longest_s = max(found.longest_s, seconds)
        found.note = note

    def take(self, now_ns: int, *, is_last: bool = False) -> list[Folded]:
        """Return the folded lines once their second is over, or at once when nothing will come later."""
        if not self._folded or not (is_last or now_ns - self._since_ns >= WINDOW_NS):
            return []
        found, self._folded = list(self._folded.values()), {}
        return found
