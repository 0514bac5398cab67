"""The phase of schedules whose grid begins when the cluster first sees them (``anchor: first_seen``).

When that was is kept in the definition that Redis holds, as ``start_at_ms``: a restart or
another leader finds it there and moves nothing. A change of the interval begins anew.
"""

from __future__ import annotations

import msgspec

from supervisor.core.cron.zones import zone
from supervisor.core.model import ScheduleDef

FIRST_SEEN = "first_seen"
FIRST_SEEN_HOUR = "first_seen_hour"  # from the full hour before that
ANCHORS = frozenset({FIRST_SEEN, FIRST_SEEN_HOUR})
_HOUR_MS = 3_600_000
_TIMING = ("anchor", "every_ms", "phase_ms", "when", "timezone")


def settled(declared: ScheduleDef, stored: ScheduleDef | None, now_ms: int) -> ScheduleDef:
    """Return ``declared`` with the beginning of its grid: the stored one, else the one that follows from Redis' time.

    ``stored`` is None when it is not there, or cannot be read.
    """
    if declared.anchor not in ANCHORS:
        return declared
    if stored is not None and stored.start_at_ms is not None and _timing(stored) == _timing(declared):
        return msgspec.structs.replace(declared, start_at_ms=stored.start_at_ms)
    return msgspec.structs.replace(declared, start_at_ms=_begin(declared, now_ms))


def _timing(definition: ScheduleDef) -> tuple[object, ...]:
    return tuple(getattr(definition, name) for name in _TIMING)


def _begin(declared: ScheduleDef, now_ms: int) -> int:
    """Return where the grid begins, so that the first due time is one interval after ``now_ms``, or after its hour."""
    every_ms = declared.every_ms or 0
    if declared.anchor == FIRST_SEEN:
        return now_ms + every_ms
    offset_ms = zone(declared.timezone).at(now_ms // 1000).offset * 1000
    return now_ms - (now_ms + offset_ms) % _HOUR_MS + every_ms
