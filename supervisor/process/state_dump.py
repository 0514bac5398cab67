"""Answers SIGUSR1: everything that the parent decides by, one line for each slot and pool."""

from __future__ import annotations

from supervisor.core.supervision.scoreboard import Header, Phase
from supervisor.core.supervision.shutdown import describe_status
from supervisor.core.units import SECOND_NS
from supervisor.process.pool_control import PoolBook
from supervisor.process.process_table import ProcessTable
from supervisor.process.slots import LiveSlot


def dump(tree: ProcessTable, book: PoolBook, header: Header, *, stage: str, now_ns: int) -> None:
    """Write the state of the tree into its log. Rows that were never used are left out."""
    used = [live for live in tree.slots if live.is_up or live.slot.generation]
    tree.log("state_dump", phase=Phase(header.phase).name.lower(), stage=stage, slots=len(used))
    for name in book.names:
        tree.log("state_dump_pool", level="info", **book.describe(name))
    for live in used:
        tree.log("state_dump_slot", level="info", **_describe(live, now_ns))


def _describe(live: LiveSlot, now_ns: int) -> dict[str, object]:
    slot, row = live.slot, live.row
    last = "" if live.last_status is None else describe_status(live.last_status)
    return {
        "slot": live.spec.name,
        "state": slot.state.name.lower(),
        "wanted": live.is_up,
        "child_pid": live.pid,
        "generation": slot.generation,
        "streak": slot.streak,
        "cause": slot.cause.name.lower(),
        "last_exit": last,
        "beat_age_s": round((now_ns - row.beat_ns) / SECOND_NS, 3) if row.beat_ns else None,
        "busy": row.busy,
        "done": row.done,
    }
