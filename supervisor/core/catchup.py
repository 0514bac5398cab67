"""What to do about the nominal times that passed since the watermark: ``missed: latest``.

Exactly one run is due however many times passed, and it carries the newest of them. The
others are counted, never run: an outage of a week must not end in a flood, and a job that
runs late is given the time it should have known about.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.triggers import Trigger

MISSED_MAX = 10_000
"""Missed nominal times are counted exactly up to this; the figure then means "at least"."""


@dataclass(frozen=True, slots=True)
class Due:
    """The run that a schedule owes now."""

    nominal_ms: int  # the one that fires
    new_mark_ms: int  # watermark once it has
    next_ms: int | None  # first nominal time after the watermark
    missed: int  # passed without a run, at most MISSED_MAX


def due(trigger: Trigger, mark_ms: int, now_ms: int) -> Due | None:
    """Return what is due in (mark_ms, now_ms]; None when nothing is.

    A single due time fires however late it is: lateness alone is no reason to lose a run.
    """
    latest = trigger.latest_ms(mark_ms, now_ms)
    if latest is None:
        return None
    passed = trigger.count(mark_ms, latest, MISSED_MAX + 1)
    return Due(nominal_ms=latest, new_mark_ms=latest, next_ms=trigger.next_ms(latest), missed=passed - 1)
