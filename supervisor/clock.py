"""The clocks of this machine, handed to everything that needs the time.

Two clocks, because they answer two different questions, and they are never
compared with each other. Redis' own time is the third; only scripts read it.
"""

from __future__ import annotations

import time
from typing import Protocol

from supervisor.core.units import MILLISECOND_NS


class Clock(Protocol):
    """Time, handed in."""

    def elapsed_ns(self) -> int:
        """Time for leases and deadlines. Never goes back, and counts a suspended machine.

        CLOCK_BOOTTIME on Linux: CLOCK_MONOTONIC, which ``time.monotonic`` and asyncio
        use, stops while a virtual machine is suspended, and the lease does not.
        """
        ...

    def wall_ms(self) -> int:
        """Calendar time in milliseconds since 1970, for schedules and people. May jump either way."""
        ...


class SystemClock:
    """The real clocks."""

    def elapsed_ns(self) -> int:
        """Return CLOCK_BOOTTIME in nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // MILLISECOND_NS
