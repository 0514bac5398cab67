"""Daylight saving time: effect of a clock change on the fires between two changes.

A fixed time that a gap skips can ``run`` at the instant the gap ends, once however many fall
into it; be left out (``skip``); or ``shift`` by the length of the gap: 02:30 becomes 03:30.
One that comes twice in an overlap fires on the ``first`` pass, the ``last`` or ``both``.
Expressions that follow real time leave out times in a gap and fire on both passes.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple, Protocol

from supervisor.core.cron.zones import Segment, Zone


class Readings(Protocol):
    """Readings of a wall clock that are due, in seconds since 1970-01-01T00:00 on that clock."""

    def first(self, low: int, high: int, /) -> int | None:
        """Return the first one in low … high."""

    def last(self, high: int, low: int, /) -> int | None:
        """Return the last one in low … high."""

    def count(self, low: int, high: int, cap: int, /) -> int:
        """Count those in low … high; may stop above ``cap``."""

    def has(self, reading: int, /) -> bool:
        """Return whether ``reading`` is one."""


class Gap(StrEnum):
    """Policy for a fixed time that does not exist on a day."""

    RUN = "run"
    SKIP = "skip"
    SHIFT = "shift"


class Overlap(StrEnum):
    """On which pass to fire a time that exists twice on a day."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class DstPolicy(NamedTuple):
    """Both of them. Get it from ``of``: equal policies are the same object."""

    gap: Gap
    overlap: Overlap

    @classmethod
    def of(cls, gap: str, overlap: str) -> DstPolicy:
        """Return the policy of these names.

        Raises:
            ValueError: one of them is none.
        """
        return _policy(Gap(gap), Overlap(overlap))


@cache
def _policy(gap: Gap, overlap: Overlap) -> DstPolicy:
    return DstPolicy(gap, overlap)


DEFAULT = DstPolicy.of("run", "first")
REAL_TIME = DstPolicy.of("skip", "both")


def first_in(times: Readings, policy: DstPolicy, segment: Segment, at: int) -> int | None:
    """Return the first fire at or after ``at``, an instant of ``segment``, within it."""
    start, end, offset, first_local, again_local = segment
    opening = start + offset  # the reading as the segment begins
    low = max(opening, first_local) if policy.overlap is Overlap.FIRST else opening
    high = (end + offset if policy.overlap is not Overlap.LAST else min(end + offset, again_local)) - 1
    found = times.first(max(at + offset, low), high)
    best = None if found is None else found - offset
    if first_local < opening:  # the readings from first_local to opening were skipped
        if policy.gap is Gap.RUN and at <= start and times.first(first_local, opening - 1) is not None:
            return start
        if policy.gap is Gap.SHIFT:
            before = first_local - start  # the offset that would have applied
            skipped = times.first(max(at + before, first_local), min(end + before, opening) - 1)
            if skipped is not None and (best is None or skipped - before < best):
                best = skipped - before
    return best


def last_in(times: Readings, policy: DstPolicy, segment: Segment, at: int) -> int | None:
    """Return the last fire at or before ``at``, an instant of ``segment``, within it."""
    start, end, offset, first_local, again_local = segment
    opening = start + offset
    low = max(opening, first_local) if policy.overlap is Overlap.FIRST else opening
    high = at + offset if policy.overlap is not Overlap.LAST else min(at + offset, again_local - 1)
    found = times.last(high, low)
    best = None if found is None else found - offset
    if first_local < opening:
        if policy.gap is Gap.RUN and best is None and times.first(first_local, opening - 1) is not None:
            return start
        if policy.gap is Gap.SHIFT:
            before = first_local - start
            skipped = times.last(min(at + before, end + before - 1, opening - 1), first_local)
            if skipped is not None and (best is None or skipped - before > best):
                best = skipped - before
    return best


def count_between(zone: Zone, times: Readings, policy: DstPolicy, at: int, *, until: int, cap: int) -> int:
    """Count the fires at the instants at … until, at most ``cap``. A step for each change of the clock."""
    total = 0
    while at <= until and total < cap:
        segment = zone.at(at)
        last = min(until, segment.end - 1)
        total += _count_in(times, policy, segment, at, last=last, cap=cap - total)
        at = last + 1
    return min(total, cap)


def _count_in(times: Readings, policy: DstPolicy, segment: Segment, at: int, *, last: int, cap: int) -> int:
    """Count the fires at the instants at … last of ``segment``; may stop above ``cap``."""
    start, _, offset, first_local, again_local = segment
    opening = start + offset
    low = max(opening, first_local) if policy.overlap is Overlap.FIRST else opening
    low = max(low, at + offset)
    high = last + offset if policy.overlap is not Overlap.LAST else min(last + offset, again_local - 1)
    total = times.count(low, high, cap)
    if first_local < opening:
        if policy.gap is Gap.RUN and at <= start and not times.has(opening):
            total += times.first(first_local, opening - 1) is not None
        if policy.gap is Gap.SHIFT:
            before = first_local - start
            total += _count_shifted(
                times, max(at + before, first_local), min(last + before, opening - 1), offset - before
            )
    return total


def _count_shifted(times: Readings, low: int, high: int, gap: int) -> int:
    """Count the readings low … high that were skipped, without those whose shifted time fires anyway."""
    total = 0
    found = times.first(low, high)
    while found is not None:  # a gap is three hours at most
        total += not times.has(found + gap)
        found = times.first(found + 1, high)
    return total
