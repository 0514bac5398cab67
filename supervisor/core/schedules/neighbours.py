"""The due times around the nominal time of a run: the interval that it stands for.

Guarantees
    They follow from the definition alone: exclusions count, what ran or was missed does not. ``start_at`` and
    ``end_at`` do not bound them, so the first and the last run have a whole interval, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple


class Neighbours(NamedTuple):
    """Due times before and after a nominal time, in milliseconds since 1970; None: there is none within reach."""

    previous_ms: int | None = None
    next_ms: int | None = None


ALONE = Neighbours()
"""Neighbours of a time that has none."""


@dataclass(slots=True, kw_only=True)
class ScheduledTime:
    """Times of a run by its schedule, as they were when the run was made; a child has those of its ancestor."""

    schedule: str | None = None
    nominal_ms: int | None = None
    """When the schedule says the run was due; of a child, when it says so of the run it descends from."""

    previous_ms: int | None = None
    next_ms: int | None = None

    @property
    def nominal(self) -> datetime | None:
        """Nominal time of the run by its schedule, in UTC; None for a run that no schedule made."""
        return _datetime(self.nominal_ms)

    @property
    def previous(self) -> datetime | None:
        """Due time before the nominal one, in UTC, whether or not it ran; None if there is none."""
        return _datetime(self.previous_ms)

    @property
    def next(self) -> datetime | None:
        """Due time after the nominal one, in UTC; None if there is none."""
        return _datetime(self.next_ms)

    @property
    def interval_start(self) -> datetime | None:
        """Start of the interval that ends with this run: the due time before it, in UTC; None if there is none."""
        return self.previous

    @property
    def interval_end(self) -> datetime | None:
        """End of the interval of this run, exclusive: its nominal time, in UTC; None without an interval."""
        return None if self.previous_ms is None else self.nominal


def _datetime(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
