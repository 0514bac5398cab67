"""Blame: what to do with each run that a dead worker process still holds.

Guarantees
    A run is charged with a crash only when it alone had begun, or when it overran its own
    hard deadline. Its neighbours are never charged for it.
    A run that may have begun and about which nothing is known is suspect: it runs alone next.
    So is one that had ended without Redis knowing: what breaks a process (memory overwritten, a
    descriptor of ours closed, a thread left behind) may show after the job has returned. Given
    back as innocent, such a run would take one process after the other down, without end.

Does not guarantee
    That the table is complete. A worker killed between its fetch and its note leaves held
    runs without an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from signal import SIGKILL, Signals

from supervisor.core.inflight import Inflight, RunState, execution_hash
from supervisor.core.model import Release
from supervisor.core.restart import Cause


class Death(Enum):
    """Why a worker process is gone, as far as its runs are concerned."""

    CRASHED = "crashed"  # it died by itself, or hung and was killed
    OVERRUN = "overrun"  # killed because one of its runs passed its hard deadline
    STOPPED = "stopped"  # it was asked to stop, or the tree stops
    NODE_LOST = "node_lost"  # its whole replica vanished; nothing is known about its runs


_SIGNALLED = 256
_NAMED = frozenset(Signals)
_BY_CAUSE = {
    Cause.BOOT_TIMEOUT: "killed because it did not become ready",
    Cause.HANG: "killed because it hung",
    Cause.OVERRUN: "killed at a hard timeout",
    Cause.STOP: "stopped",
    Cause.RESTART: "stopped",
    Cause.FORCED: "stopped",
    Cause.RETIRED: "stopped",
}


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that Redis says the dead session holds."""

    queue: str
    run_id: str
    attempt: int
    fetched_ms: int


def describe_death(cause: Cause, last_exit: int | None, *, is_out_of_memory: bool = False) -> str:
    """Say how a worker process ended, for the record of the runs that it held.

    Args:
        cause: why the parent told it to go, if it did.
        last_exit: how it ended, as the board has it: the exit code, or 256 and the signal. None: not known.
        is_out_of_memory: whether the kernel killed a process of ours for memory since the last death.
    """
    if cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    if last_exit is None:
        return "died"
    if last_exit < _SIGNALLED:
        return f"exit code {last_exit}"
    number = last_exit - _SIGNALLED
    if number == SIGKILL:
        return "SIGKILL, out of memory" if is_out_of_memory else "SIGKILL from outside"
    return Signals(number).name if number in _NAMED else f"signal {number}"


def assign(held: Sequence[HeldRun], table: Iterable[Inflight], *, death: Death, now_ns: int) -> dict[str, Release]:
    """Return what to do with each held run, by run id.

    Args:
        held: what Redis says the session holds in one queue.
        table: the in-flight table the worker left, or nothing when it is not known.
        death: why the process is gone.
        now_ns: with an overrun, the runs whose deadline is before this are the ones that overran.
    """
    if death is Death.NODE_LOST:
        return {run.run_id: Release.INTERRUPTED for run in held}
    entries = {(entry.execution, entry.attempt): entry for entry in table}
    begun = [entry for entry in entries.values() if entry.state is RunState.STARTED]
    others = Release.SUSPECT
    if death is Death.CRASHED:
        begun += [entry for entry in entries.values() if entry.state is RunState.DONE]
        culprits = begun if len(begun) == 1 else []
    elif death is Death.STOPPED:
        culprits, others = [], Release.INTERRUPTED
    elif overdue := [entry for entry in begun if 0 < entry.deadline_ns <= now_ns]:
        culprits, others = overdue, Release.INTERRUPTED  # the cause is known, so nobody else is suspected
    else:
        culprits = begun if len(begun) == 1 else []
    return {
        run.run_id: _blame(
            entries.get((execution_hash((run.queue, run.run_id), run.fetched_ms), run.attempt)),
            culprits,
            others,
            is_crash=death is Death.CRASHED,
        )
        for run in held
    }


def _blame(entry: Inflight | None, culprits: Sequence[Inflight], others: Release, *, is_crash: bool) -> Release:
    if entry is None:
        return others  # it may have begun
    if entry.state is RunState.FETCHED:
        return Release.UNSTARTED
    if entry in culprits:
        return Release.CRASHED
    # One that ended does not make a process overrun, or stop.
    return Release.INTERRUPTED if entry.state is RunState.DONE and not is_crash else others
