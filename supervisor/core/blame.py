"""Blame: what to do with each run that a dead worker process still holds.

Guarantees
    A run is charged with a crash only when it alone was executing, or when it overran its
    own hard deadline. Its neighbours are never charged for it.
    A run that may have begun and about which nothing is known is suspect: it runs alone next.

Does not guarantee
    That the table is complete. A worker killed between its fetch and its note leaves held
    runs without an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from supervisor.core.board import Inflight, RunState, run_hash
from supervisor.core.model import Release


class Death(Enum):
    """Why a worker process is gone, as far as its runs are concerned."""

    CRASHED = "crashed"  # it died by itself, or hung and was killed
    OVERRUN = "overrun"  # killed because one of its runs passed its hard deadline
    STOPPED = "stopped"  # it was asked to stop, or the tree stops
    NODE_LOST = "node_lost"  # its whole replica vanished; nothing is known about its runs


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that Redis says the dead session holds."""

    run_id: str
    attempt: int


def assign(held: Sequence[HeldRun], table: Iterable[Inflight], *, death: Death, now_ns: int) -> dict[str, Release]:
    """Return what to do with each held run, by run id.

    Args:
        held: what Redis says the session holds.
        table: the in-flight table the worker left, or nothing when it is not known.
        death: why the process is gone.
        now_ns: with an overrun, the runs whose deadline is before this are the ones that overran.
    """
    if death is Death.NODE_LOST:
        return {run.run_id: Release.INTERRUPTED for run in held}
    entries = {(entry.run_hash, entry.attempt): entry for entry in table}
    begun = [entry for entry in entries.values() if entry.state is RunState.STARTED]
    overdue = [entry for entry in begun if 0 < entry.deadline_ns <= now_ns] if death is Death.OVERRUN else []
    if overdue:
        culprits, others = overdue, Release.INTERRUPTED  # the cause is known, so nobody else is suspected
    elif death is Death.STOPPED:
        culprits, others = [], Release.INTERRUPTED
    else:
        culprits, others = begun if len(begun) == 1 else [], Release.SUSPECT
    return {run.run_id: _blame(entries.get((run_hash(run.run_id), run.attempt)), culprits, others) for run in held}


def _blame(entry: Inflight | None, culprits: Sequence[Inflight], others: Release) -> Release:
    if entry is None:
        return others  # it may have begun
    if entry.state is RunState.FETCHED:
        return Release.UNSTARTED
    if entry.state is RunState.DONE:
        return Release.INTERRUPTED  # finished but not acknowledged: run again, and nobody's fault
    return Release.CRASHED if entry in culprits else others
