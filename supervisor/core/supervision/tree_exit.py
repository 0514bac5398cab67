"""Exit of the whole tree after the failure of a slot, and its exit code.

Guarantees
    A tree that was never ready ends at the third failure of a slot, or at once when a child reports that
    starting it again cannot help. A ready tree ends only for a role that it is pointless without.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.errors import EXIT_CANNOT_CREATE, EXIT_CONFIG, EXIT_CRASH_LOOP
from supervisor.core.supervision.scoreboard import SlotState
from supervisor.core.supervision.slot import Group, Slot, is_refusal

EARLY_FAILURES_MAX = 3  # before the tree was ever ready: a broken release fails at once


@dataclass(frozen=True, slots=True)
class TreeExit:
    """The tree has to end, with this exit code."""

    code: int
    reason: str


def tree_verdict(slot: Slot, status: int, *, name: str, group: Group, is_tree_ready: bool) -> TreeExit | None:
    """Return whether the failure of one slot ends the tree; ``slot`` as it is after the exit."""
    if slot.state not in {SlotState.BACKOFF, SlotState.FATAL} or slot.streak == 0:
        return None
    code = EXIT_CANNOT_CREATE if status == EXIT_CANNOT_CREATE else EXIT_CRASH_LOOP  # the place is at fault, or we are
    if not is_tree_ready:
        if slot.state is SlotState.FATAL and is_refusal(status):
            return TreeExit(EXIT_CONFIG, f"{name} refused to start with exit code {status}")
        if slot.streak >= EARLY_FAILURES_MAX:
            return TreeExit(code, f"{name} failed {slot.streak} times before the tree was ever ready")
    if slot.state is SlotState.FATAL and group.ends_tree:
        return TreeExit(code, f"{name} keeps failing, last with {describe_status(status)}")
    return None


def describe_status(status: int) -> str:
    """Describe how a process ended, for people."""
    return f"exit code {status}" if status >= 0 else f"signal {-status}"
