"""Checks of the parent on every turn: readiness, deadlines and beats.

A word that a child wrote is a report. It can make its own process be killed; nothing else follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.core.supervision.liveness import (
    STARVED_PERCENT,
    PauseGuard,
    hang_deadline_ns,
    judge,
    run_deadline_ns,
    silence_ns,
)
from supervisor.core.supervision.slot import Cause, SlotEvent, still_working
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.process.process_table import ProcessTable
from supervisor.process.slots import Doubt, LiveSlot

READY_POLL_NS = SECOND_NS // 50
WAITING_SHARE = 10  # a child that waited for a processor for a tenth of the time is short of it


def look(tree: ProcessTable, guard: PauseGuard, now_ns: int) -> None:
    """Perform everything that is due to a slot with a process. Readiness of all first: the rest depends on it."""
    for live in tree.slots:
        if live.slot.state is SlotState.STARTING and live.reports_ready():
            _note_ready(tree, live, now_ns)
    for live in tree.slots:
        if not live.has_process:
            continue
        _check_deadline(tree, live, guard, now_ns)
        _check_life(tree, live, guard, now_ns)


def _note_ready(tree: ProcessTable, live: LiveSlot, now_ns: int) -> None:
    tree.step(live, SlotEvent.READY, now_ns)
    live.was_ready = True
    took_s = round((now_ns - live.slot.started_ns) / SECOND_NS, 3)
    tree.log("child_ready", slot=live.spec.name, child_pid=live.pid, took_s=took_s)


def _check_deadline(tree: ProcessTable, live: LiveSlot, guard: PauseGuard, now_ns: int) -> None:
    if run_deadline_ns(live.slot, live.row) > now_ns or (live.slot.cause is Cause.RETIRED and live.owes_redis):
        live.slot = still_working(live.slot, now_ns=now_ns, policy=live.policy)
    deadline_ns = _state_deadline_ns(live, guard)
    if 0 < deadline_ns <= now_ns:
        tree.step(live, SlotEvent.LATE, now_ns)


def _state_deadline_ns(live: LiveSlot, guard: PauseGuard) -> int:
    """Return the deadline of the slot's state; a boot that was paused with the parent gets more time."""
    if live.slot.state is SlotState.STARTING:
        return max(live.slot.deadline_ns, guard.holds_until_ns(live.policy.boot_timeout_ns))
    return live.slot.deadline_ns


def _check_life(tree: ProcessTable, live: LiveSlot, guard: PauseGuard, now_ns: int) -> None:
    _doubt(tree, live, now_ns)
    event = judge(live.slot, live.row, now_ns=now_ns, hang_after_ns=live.hang_after_ns, guard=guard)
    if event is None or (event is SlotEvent.HUNG and _is_starved(tree, live, now_ns)):
        return
    silent_s = round(silence_ns(live.slot, live.row, now_ns) / SECOND_NS, 3)
    name = "child_hung" if event is SlotEvent.HUNG else "run_overran"
    if not (event is SlotEvent.OVERRAN and live.slot.state is SlotState.KILLING):
        tree.log(name, level="error", slot=live.spec.name, child_pid=live.pid, silent_s=silent_s, busy=live.row.busy)
    tree.step(live, event, now_ns)


def _doubt(tree: ProcessTable, live: LiveSlot, now_ns: int) -> None:
    """Halfway to the limit, note how long a silent child has waited for a processor so far."""
    if live.hang_after_ns is None:
        return
    silent_ns = silence_ns(live.slot, live.row, now_ns)
    if 2 * silent_ns >= live.hang_after_ns and (live.doubt is None or live.doubt.at_ns < now_ns - silent_ns):
        live.doubt = Doubt(now_ns, tree.kernel.processor_wait(live.pid).total_ns)


def _is_starved(tree: ProcessTable, live: LiveSlot, now_ns: int) -> bool:
    """Return whether a silent child deserves twice its limit, because the machine has no processor to give it."""
    assert live.hang_after_ns is not None
    if silence_ns(live.slot, live.row, now_ns) > 2 * live.hang_after_ns:
        return False
    pressure = tree.kernel.pressure_percent()
    if pressure <= STARVED_PERCENT or not _wants_processor(tree, live, now_ns):
        return False
    if live.starved_generation != live.slot.generation:
        live.starved_generation = live.slot.generation
        tree.log("hang_limit_doubled", level="warning", slot=live.spec.name, pressure_percent=pressure)
    return True


def _wants_processor(tree: ProcessTable, live: LiveSlot, now_ns: int) -> bool:
    """Return whether the child itself is short of processors: one that is stopped, or waits for a lock, is not."""
    wait = tree.kernel.processor_wait(live.pid)
    assert live.doubt is not None
    return wait.is_now or (wait.total_ns - live.doubt.waited_ns) * WAITING_SHARE >= now_ns - live.doubt.at_ns


def deadlines_ns(tree: ProcessTable, guard: PauseGuard, now_ns: int) -> Iterator[int]:
    """Yield every moment at which a slot needs the parent's attention; 0 means none."""
    for live in tree.slots:
        if not live.has_process:
            yield tree.start_ns(live, now_ns) or 0
            continue
        yield _state_deadline_ns(live, guard)
        yield _hang_deadline_ns(live, guard, now_ns)
        if live.slot.state is not SlotState.STARTING and not live.slot.is_killed:
            yield run_deadline_ns(live.slot, live.row)
        elif live.slot.state is SlotState.STARTING and live.spec.is_ready is not None:
            yield now_ns + READY_POLL_NS


def _hang_deadline_ns(live: LiveSlot, guard: PauseGuard, now_ns: int) -> int:
    """Return when its silence becomes a hang; while it is spared because the machine is starved, every turn looks."""
    due_ns = hang_deadline_ns(live.slot, live.row, hang_after_ns=live.hang_after_ns, guard=guard)
    return due_ns if due_ns > now_ns else 0
