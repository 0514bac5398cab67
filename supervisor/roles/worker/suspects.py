"""When a busy async worker makes room for a suspect.

Suspects run alone, so only an idle process asks for one. Where every process is busy all the
time nobody would ever ask. So each looks now and then whether one waits, and if so fetches
nothing for a while, in the hope to become idle.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.clock import Clock

LOOK_EVERY_S = 30.0
QUIET_S = 10.0  # long jobs must not leave a process half empty for the sake of one run; it tries again later


class SuspectWatch:
    """The last time this process could ask for a suspect, and whether it is keeping quiet for one."""

    def __init__(self, clock: Clock, uniform: Callable[[], float]) -> None:
        self._clock = clock
        self._uniform = uniform
        self._quiet_until_ns = 0
        self.asked()

    @property
    def is_quiet(self) -> bool:
        """Whether to fetch nothing unless idle."""
        return self._clock.elapsed_ns() < self._quiet_until_ns

    @property
    def must_look(self) -> bool:
        """Whether it is time to look if a suspect waits."""
        return self._clock.elapsed_ns() >= self._look_at_ns

    def asked(self) -> None:
        """Note that a turn asked for a suspect."""
        self._quiet_until_ns = 0
        self._look_again()

    def looked(self, waiting: int) -> None:
        """Note how many suspects wait."""
        self._look_again()
        if waiting:
            self._quiet_until_ns = self._clock.elapsed_ns() + round(QUIET_S * 1e9)

    def _look_again(self) -> None:
        # Drawn, so that one process makes room and not all of them at once.
        self._look_at_ns = self._clock.elapsed_ns() + round(LOOK_EVERY_S * (0.5 + self._uniform()) * 1e9)
