"""Log sampling: so many lines a second are written in full, the rest as one counted line for each job.

A line for each run is of use at five runs a second, and at twenty thousand it is the most expensive part of
each. Nothing is dropped in silence: lines not written in full are counted, and the count is written.

Time enters as an argument. Nothing here logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.units import SECOND_NS

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


class Fold:
    """Counts lines within windows of one second."""

    def __init__(self, lines_max: int) -> None:
        """Build it.

        Args:
            lines_max: how many lines a second are written in full.
        """
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
