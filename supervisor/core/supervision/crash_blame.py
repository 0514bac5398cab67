"""Blame: the decision on each run that a dead worker process still holds.

Guarantees
    Every death is charged, or makes suspects, but one at a hard deadline whose run ended at that very moment. Whoever
    was alone with its process is charged, whatever was being done about it: it was read, prepared, executed or
    acknowledged. So no run takes one process after the other down without end: it is alone after the first, and dead
    after ``max_crashes`` more.
    A run is charged with a crash only when no other can have ended the process, or when it overran
    its own hard deadline in an event loop that turned until then. Its neighbours are never charged for it.
    Where a loop did not turn when a deadline passed, whoever held it up is not known: the run whose time was over may
    have had no chance to end. So all are suspects.
    Where several can have done it they are suspects, and run alone next. One that had ended without Redis
    knowing is among them: damage to a process (memory overwritten, a descriptor of ours closed, a thread left
    behind) may show after the job has returned. One without an entry was just being read: a worker notes all that a
    turn brought before it does anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from signal import SIGKILL, Signals

from supervisor.core.model import Release
from supervisor.core.supervision.scoreboard import Inflight, execution_hash
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import RunState
from supervisor.core.units import SECOND_NS


class Death(Enum):
    """Cause of a worker process's end, as far as its runs are concerned."""

    CRASHED = "crashed"  # it died by itself, or hung and was killed
    OVERRUN = "overrun"  # killed because one of its runs passed its hard deadline
    STOPPED = "stopped"  # it was asked to stop, the tree stops, or it left because of Redis
    NODE_LOST = "node_lost"  # its whole replica vanished; nothing is known about its runs


BLOCKED_NS = SECOND_NS // 2
"""A loop that beat this long before a deadline, or later, turned until then: it beats five times a second."""

LATE_NS = SECOND_NS // 2  # within which the parent sees a deadline that has passed

_SIGNALLED = 256
_BEGUN = frozenset({RunState.STARTED, RunState.DONE})
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
    """A run that the dead session holds according to Redis."""

    queue: str
    run_id: str
    attempt: int
    fetched_ms: int

    @property
    def execution(self) -> int:
        """Hash of the execution in the in-flight table."""
        return execution_hash((self.queue, self.run_id), self.fetched_ms)


def describe_death(
    cause: Cause, last_exit: int | None, *, is_out_of_memory: bool = False, table: Iterable[Inflight] = ()
) -> str:
    """Describe how a worker process ended, for the record of the runs that it held.

    Args:
        cause: why the parent asked it to go, if it did.
        last_exit: how it ended, as the board has it: the exit code, or 256 and the signal. None: not known.
        is_out_of_memory: whether the kernel killed a process of ours for memory since the last death.
        table: the in-flight table that the process left.
    """
    if cause is Cause.HANG and {entry.state for entry in table} & _BEGUN == {RunState.DONE}:
        return f"{_BY_CAUSE[cause]}, after the job had returned"
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


def assign(
    held: Sequence[HeldRun],
    table: Iterable[Inflight] | None,
    *,
    death: Death,
    now_ns: int,
    turned_ns: int = 0,
    turn_ms: int | None = None,
) -> list[Release]:
    """Return the release of each held run, in their order.

    Args:
        held: all runs that the session holds according to Redis.
        table: the in-flight table the worker left; None when it is not known.
        death: why the process is gone.
        now_ns: with an overrun, no run whose deadline is later than this overran.
        turned_ns: when the process last showed that its loop turned; 0: never. One that executes a run at a time in its
            main thread shows it before and after each.
        turn_ms: Redis' time of its last turn that was answered: it never read what it was given later. None: not known.
    """
    if death is Death.NODE_LOST:
        return [Release.VANISHED] * len(held)
    entries = {(entry.execution, entry.attempt): entry for entry in table or ()}
    found = [entries.get((run.execution, run.attempt)) or _unread(run, turn_ms) for run in held]
    if death is Death.STOPPED:
        return [_uncharged(entry) for entry in found]
    if death is Death.OVERRUN:
        overdue = _overdue(entries.values(), now_ns)
        # Without one it ended, and perhaps another began, while the parent killed. Else the cause is known, so nobody
        # else is suspected, but where any of them may have held up the others, also by what it left behind.
        if not overdue or turned_ns >= min(entry.deadline_ns for entry in overdue) - BLOCKED_NS:
            return [Release.CRASHED if entry in overdue else _uncharged(entry) for entry in found]
    states = [None if entry is None else entry.state for entry in found]
    suspected = _suspected([entry.state for entry in entries.values()], states)
    others = sum(entry.state in suspected for entry in entries.values() if entry not in found)
    is_one = others + sum(state in suspected for state in states) == 1
    return [
        _blame(entry, is_one=is_one, is_known=table is not None) if state in suspected else _uncharged(entry)
        for entry, state in zip(found, states, strict=True)
    ]


def _unread(run: HeldRun, turn_ms: int | None) -> Inflight | None:
    """Return the entry of a run that came with a turn never answered; None for any other, which may have begun."""
    is_unread = turn_ms is not None and run.fetched_ms > turn_ms
    return Inflight(run.execution, run.attempt, RunState.FETCHED, 0) if is_unread else None


def _overdue(entries: Iterable[Inflight], now_ns: int) -> list[Inflight]:
    """Return the runs for which the parent killed: who looks at the table may come later, when more are out of time."""
    bounded = [entry for entry in entries if entry.state is RunState.STARTED and entry.deadline_ns > 0]
    until_ns = min([now_ns, *(entry.deadline_ns + LATE_NS for entry in bounded)])
    return [entry for entry in bounded if entry.deadline_ns <= until_ns]


def _suspected(table: Sequence[RunState], held: Sequence[RunState | None]) -> frozenset[RunState | None]:
    """Return the states in which a run can have ended its process. None: Redis gave it, and no entry shows it."""
    suspected = {RunState.STARTED, RunState.DONE, RunState.FETCHED, None}
    if None in held or RunState.FETCHED in table or RunState.STARTED in table:
        return frozenset(suspected)
    return frozenset({*suspected, RunState.WAITING})  # its turn may just have come


def _uncharged(entry: Inflight | None) -> Release:
    is_unstarted = entry is not None and entry.state in {RunState.FETCHED, RunState.WAITING}
    return Release.UNSTARTED if is_unstarted else Release.INTERRUPTED


def _blame(entry: Inflight | None, *, is_one: bool, is_known: bool) -> Release:
    has_begun = entry.state in {RunState.STARTED, RunState.DONE} if entry is not None else not is_known
    if has_begun:
        return Release.CRASHED if is_one else Release.SUSPECT
    return Release.CRASHED_UNSTARTED if is_one else Release.SUSPECT_UNSTARTED


LOOK_PERIOD_NS = 2 * SECOND_NS
REMEMBERED_NS = 5 * SECOND_NS  # how long a kill that fits no death yet may still explain one


@dataclass(slots=True)
class MemoryWatch:
    """Follows the kernel's count. It is None where nobody counts.

    The kernel only counts such kills. One that comes with the death of a child explains it; one that fits
    no death for a few seconds was of a process that a job had started.

    Does not guarantee
        The truth about two processes that die in the same seconds, one by the kernel and one by a person.
    """

    explained: int | None = None  # kills that belong to a death that was seen, or to none of ours
    seen: int = 0
    seen_ns: int = 0  # when the count last changed
    due_ns: int = 0  # when the count is to be looked at again

    def look(self, kills: int | None, now_ns: int) -> None:
        """Take note of the count; every ``LOOK_PERIOD_NS``, so that old kills explain nothing."""
        self.due_ns = now_ns + LOOK_PERIOD_NS
        if kills is None:
            return
        if self.explained is None:
            self.explained, self.seen = kills, kills  # before there was any child
        if kills != self.seen:
            self.seen, self.seen_ns = kills, now_ns
        elif now_ns - self.seen_ns > REMEMBERED_NS:
            self.explained = kills

    def is_victim(self, kills: int | None) -> bool | None:
        """Return whether a process that SIGKILL ended just now died for memory; None when that cannot be known."""
        if kills is None or self.explained is None:
            return None
        if self.explained >= kills:
            return False
        self.explained += 1
        return True
