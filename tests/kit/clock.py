"""Clocks for tests: one that stands still until it is moved, and the machine's own, put forward."""

from __future__ import annotations

from supervisor.clock import SystemClock
from supervisor.core.units import MILLISECOND_NS, SECOND_NS

START_NS = 1000 * SECOND_NS
START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


class FakeClock:
    """Both clocks of one machine. They stand still until a test moves them, and then move together.

    ``now_ns`` is the elapsed time. ``wall_offset_ms`` is how far the calendar was put off the right time.
    """

    def __init__(self, *, elapsed_ns: int = START_NS, wall_ms: int = START_MS) -> None:
        self.now_ns = elapsed_ns
        self.wall_offset_ms = 0
        self._epoch_ms = wall_ms - elapsed_ns // MILLISECOND_NS

    def elapsed_ns(self) -> int:
        """Return the time for deadlines."""
        return self.now_ns

    def wall_ms(self) -> int:
        """Return the calendar's time, right or wrong."""
        return self.right_ms() + self.wall_offset_ms

    def right_ms(self) -> int:
        """Return the calendar's time as it would be had nobody stepped it."""
        return self._epoch_ms + self.now_ns // MILLISECOND_NS

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self.now_ns += round(seconds * 1e9)


class ShiftedClock(SystemClock):
    """The clocks of this machine, which run, ahead by what a test says."""

    ahead_ns = 0

    def elapsed_ns(self) -> int:
        """Return the shifted time for deadlines."""
        return super().elapsed_ns() + self.ahead_ns

    def wall_ms(self) -> int:
        """Return the shifted calendar's time."""
        return super().wall_ms() + self.ahead_ns // MILLISECOND_NS

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self.ahead_ns += round(seconds * 1e9)
