"""Quarantine of suspects: a run that may have ended a process runs alone.

Guarantees
    One process of a pool at a time has a suspect, and the others go on with ready runs: also while that one is
    started again, because the suspect ended it. A process that is alone in its pool asks for ready runs in between.
    A suspect does not starve. An idle process takes it at once. Where a coroutine process is busy all the time, one of
    the pool makes room: it lets nothing begin for ``QUIET_S``. Whenever that was too short, it lets as many runs begin
    as it has slots, and tries for twice as long; never longer than until the last hard deadline of its runs,
    when it is idle for certain. So ``starts_max`` other runs, at most, begin in it before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum

from supervisor.clock import Clock
from supervisor.core.supervision.scoreboard import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import Seat

LOOK_EVERY_S = 5.0
QUIET_S = 10.0  # long jobs must not leave a process half empty for the sake of one run


class Part(IntEnum):
    """Part of a process in the quarantine of suspects, from its row on the board."""

    NONE = 0
    MAKES_ROOM = 1
    HAS_ONE = 2


def starts_max(slots: int, timeout_s: float) -> int:
    """Return how many other runs may begin before a suspect in a process that makes room for it.

    Args:
        slots: of the process.
        timeout_s: the longest hard timeout of its runs.
    """
    return slots * (1 + max(0, math.ceil(math.log2(timeout_s / QUIET_S))))


class SuspectLane:
    """Handling of suspects by one worker process."""

    def __init__(self, seat: Seat, clock: Clock, uniform: Callable[[], float], *, slots: int) -> None:
        self._row = seat.row
        pool = seat.name.rpartition("-")[0]
        rows = zip(seat.slot_names, seat.board.rows, strict=False)
        self._others = [row for name, row in rows if name.rpartition("-")[0] == pool and name != seat.name]
        self._clock = clock
        self._uniform = uniform
        self._slots = slots
        # Its predecessor ended with one: what is ready may have waited since.
        self._owes_others = self._row.suspect == Part.HAS_ONE
        self._tries = 0  # to make room, in vain
        self._begun = 0  # runs, since the last of them
        self._quiet_until_ns = 0
        self._row.suspect = Part.NONE
        self._look_again()

    @property
    def may_ask(self) -> bool:
        """True if this process, if it is idle, may ask for a suspect."""
        others = [row for row in self._others if row.desired]
        if any(row.suspect == Part.HAS_ONE for row in others):
            return False
        return not self._owes_others or any(row.state == SlotState.RUNNING for row in others)

    @property
    def is_quiet(self) -> bool:
        """True if nothing may begin unless the process is idle."""
        return self._clock.elapsed_ns() < self._quiet_until_ns

    @property
    def quiet_s(self) -> float:
        """Time for which that still lasts."""
        return max(0.0, (self._quiet_until_ns - self._clock.elapsed_ns()) / SECOND_NS)

    @property
    def must_look(self) -> bool:
        """True if it is time to look for a waiting suspect."""
        is_time = self._clock.elapsed_ns() >= self._look_at_ns
        return not self.is_quiet and (is_time or (self._tries > 0 and self._begun >= self._slots))

    def begun(self, count: int) -> None:
        """Note that a process that was not idle took so many runs."""
        self._begun += count

    def asked(self, *, for_suspect: bool, has_one: bool) -> None:
        """Note that an idle process asked for runs: for a suspect in their place or not, and whether it got one."""
        self._tries = self._begun = self._quiet_until_ns = 0
        self._row.suspect = Part.HAS_ONE if has_one else Part.NONE
        self._owes_others = has_one or (self._owes_others and for_suspect)
        self._look_again()

    def looked(self, waiting: int, *, idle_by_ns: int) -> None:
        """Note how many suspects wait, and when all that is executed here will be over; make room, if somebody must."""
        self._look_again()
        if not waiting:
            self._tries = 0
            self._row.suspect = Part.NONE
        elif not any(row.desired and row.suspect for row in self._others):
            quiet_ns = round(QUIET_S * SECOND_NS) << self._tries
            self._quiet_until_ns = min(self._clock.elapsed_ns() + quiet_ns, max(idle_by_ns, 1))
            self._row.suspect = Part.MAKES_ROOM
            self._tries += 1
            self._begun = 0

    def _look_again(self) -> None:
        # Drawn, so that not all processes look at once.
        self._look_at_ns = self._clock.elapsed_ns() + round(LOOK_EVERY_S * (0.5 + self._uniform()) * SECOND_NS)
