"""How far a long simulation is, on one line that is rewritten, and when it will be over."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TextIO

WIDTH = 30
PERIOD_S = 0.5


class Progress:
    """A bar on a terminal; elsewhere a line now and then."""

    def __init__(self, total: int, *, out: TextIO = sys.stderr) -> None:
        self._total = total
        self._out = out
        self._is_terminal = out.isatty()
        self._period_s = PERIOD_S if self._is_terminal else 60 * PERIOD_S
        self._began_s = self._shown_s = perf_counter()

    def show(self, done: int, broken: int) -> None:
        """Say that ``done`` worlds are over, ``broken`` of them with a broken promise."""
        now_s = perf_counter()
        if now_s - self._shown_s < self._period_s and done < self._total:
            return
        self._shown_s = now_s
        self._out.write(("\r" if self._is_terminal else "") + self.line(done, broken, now_s - self._began_s))
        self._out.write("\n" if done == self._total or not self._is_terminal else "")
        self._out.flush()

    def line(self, done: int, broken: int, elapsed_s: float) -> str:
        """Return the bar after ``elapsed_s`` seconds."""
        filled = WIDTH * done // max(1, self._total)
        left_s = elapsed_s * (self._total - done) / max(1, done)
        rate = done / max(elapsed_s, 1e-9)
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"[{bar}] {done}/{self._total} worlds, {broken} broken, {rate:.0f}/s, {_span(left_s)} left "


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
