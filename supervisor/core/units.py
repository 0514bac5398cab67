"""Units of time: every duration inside the program is a whole number of nanoseconds unless its name has a unit."""

from __future__ import annotations

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
NEVER_NS = 1 << 62
"""A moment that no machine reaches."""
