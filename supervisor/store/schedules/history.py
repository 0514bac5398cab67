"""Past of a schedule for backfills, from its stored state."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.schedules.backfill import STRETCHES_MAX, EnqueuedSpan, SchedulePast
from supervisor.store.schedules.reads import Inspection
from supervisor.store.schedules.state import ScheduleState, Stretch

_RUNS = {"F", "U"}  # under the id of their nominal time; the initial run has one of its own


def known_of(inspection: Inspection) -> SchedulePast:
    """Return the remembered past of a schedule that exists."""
    assert inspection.record is not None
    stretches = ScheduleState.parse(inspection.state).stretches
    return SchedulePast(
        revision=inspection.record.revision,
        mark_ms=inspection.record.mark_ms,
        enqueued=tuple(_enqueued(stretches)),
        since_ms=min(each.from_ms for each in stretches) if len(stretches) >= STRETCHES_MAX else None,
        waiting=frozenset(inspection.first_buffered_ms),
    )


def _enqueued(stretches: Iterable[Stretch]) -> Iterable[EnqueuedSpan]:
    for each in stretches:
        if each.code in _RUNS:
            yield EnqueuedSpan(each.from_ms, each.to_ms, each.count, each.revision)
