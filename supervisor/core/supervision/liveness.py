"""Liveness of a child: judged from its beat, the deadline of its runs, and the parent's own scheduling delay.

Guarantees
    A run's hard deadline is exact, whatever else is going on. A missing beat is fine
    while a run's deadline lies in the future: a job may use the processor for as long
    as it was promised.

Does not guarantee
    That a hang is noticed during a pause. A parent that was itself stopped, suspended or
    starved has no right to judge, so it holds its judgement until the children had time.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.supervision.scoreboard import Row
from supervisor.core.supervision.slot import Slot, SlotEvent
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS

LATE_WAKE_NS = SECOND_NS // 2  # a wake-up later than this means that nobody was scheduled, the children included
HOLD_MIN_NS = 3 * SECOND_NS // 2
STARVED_PERCENT = 60.0  # share of the last ten seconds in which some task waited for a processor


@dataclass(slots=True)
class PauseGuard:
    """Remembers when the parent last woke up late: stopped, suspended, or starved."""

    woke_late_ns: int = 0

    def woke(self, *, asked_ns: int, now_ns: int) -> int:
        """Note a wake-up that was asked for ``asked_ns``; return how late it was if that matters, else 0."""
        late_ns = now_ns - asked_ns
        if late_ns <= LATE_WAKE_NS:
            return 0
        self.woke_late_ns = now_ns
        return late_ns

    def holds_until_ns(self, limit_ns: int) -> int:
        """Return until when a limit of ``limit_ns`` must not be enforced; 0 if nothing was late."""
        return self.woke_late_ns + max(limit_ns // 2, HOLD_MIN_NS) if self.woke_late_ns else 0


def run_deadline_ns(slot: Slot, row: Row) -> int:
    """Return the earliest hard deadline that this very process reports, or 0."""
    return row.deadline_ns if row.child_generation == slot.generation else 0


def judge(slot: Slot, row: Row, *, now_ns: int, hang_after_ns: int | None, guard: PauseGuard) -> SlotEvent | None:
    """Return OVERRAN, HUNG or None for a slot that has a process."""
    deadline_ns = run_deadline_ns(slot, row)
    if slot.state is SlotState.STARTING or (slot.state is SlotState.KILLING and slot.is_killed):
        return None
    if 0 < deadline_ns <= now_ns:
        return SlotEvent.OVERRAN
    hung_ns = hang_deadline_ns(slot, row, hang_after_ns=hang_after_ns, guard=guard)
    return SlotEvent.HUNG if 0 < hung_ns <= now_ns else None


def hang_deadline_ns(slot: Slot, row: Row, *, hang_after_ns: int | None, guard: PauseGuard) -> int:
    """Return when the process counts as hung if it shows nothing until then; 0 if it cannot hang now."""
    may_hang = slot.state in {SlotState.RUNNING, SlotState.STOPPING} and hang_after_ns is not None
    if not may_hang or run_deadline_ns(slot, row):
        return 0
    assert hang_after_ns is not None
    return max(_last_sign_ns(slot, row) + hang_after_ns + 1, guard.holds_until_ns(hang_after_ns))


def silence_ns(slot: Slot, row: Row, now_ns: int) -> int:
    """Return how long ago the process last showed that its loop turns."""
    return now_ns - _last_sign_ns(slot, row)


def _last_sign_ns(slot: Slot, row: Row) -> int:
    beat_ns = row.beat_ns if row.child_generation == slot.generation else 0
    return max(beat_ns, slot.ready_ns, slot.started_ns)
