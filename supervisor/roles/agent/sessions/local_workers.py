"""The worker processes of this replica, as the board shows them: alive, dead, and the cause of death.

Guarantees
    A death is handed out once its process is gone, until it is marked as reclaimed, also
    by an agent that started after it. A table that may belong to the next process of the
    slot is not used.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from supervisor.core.supervision.crash_blame import Death, describe_death
from supervisor.core.supervision.scoreboard import Board, Inflight, Row
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import ChildState, Phase, RunState, UnwantedReason
from supervisor.roles.child import session_name

GENERATIONS_MAX = 16  # older deaths of a slot than so many are found among the open sessions instead


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """One process of a worker slot that is gone."""

    slot: int
    generation: int
    session: str
    death: Death
    table: tuple[Inflight, ...] | None  # None: not known
    how: str  # it died, for people
    turned_ns: int = 0  # when it last showed that its loop turned; 0: not known
    turn_ms: int | None = None  # Redis' time of its last turn that was answered; None: not known


class LocalWorkers:
    """The worker slots of this replica."""

    def __init__(
        self,
        board: Board,
        slot_names: Sequence[str],
        replica: str,
        *,
        wake_parent: Callable[[], None] = lambda: None,
    ) -> None:
        """Look at ``board``; ``wake_parent`` is called when a slot's next process need not wait any longer."""
        self._board = board
        self._replica = replica
        self._wake_parent = wake_parent
        self._slots = [(slot, name) for slot, name in enumerate(slot_names) if name.startswith("worker-")]
        self._slot_by_name = {name: slot for slot, name in self._slots}

    def live(self) -> list[str]:
        """Return the sessions of processes that may be alive."""
        return [
            session_name(self._replica, name, row.generation)
            for slot, name in self._slots
            if _has_process(row := self._board.rows[slot])
        ]

    def draining(self) -> set[str]:
        """Return the sessions of processes that leave, and end them by themselves."""
        return {
            session_name(self._replica, name, row.generation)
            for slot, name in self._slots
            if (row := self._board.rows[slot]).child_state >= ChildState.DRAINING
        }

    def busy(self) -> dict[str, int]:
        """Return session and slot of each process that may be alive and executes something."""
        return {
            session_name(self._replica, name, row.generation): slot
            for slot, name in self._slots
            if _has_process(row := self._board.rows[slot]) and row.busy
        }

    def end_run(self, slot: int, wanted: int, reason: UnwantedReason = UnwantedReason.REPLACED) -> bool:
        """Ask the process of ``slot`` to end one execution, by its hash; return whether the board shows it there."""
        if not any(
            entry.execution == wanted and entry.state is RunState.STARTED
            for entry in self._board.inflight[slot].entries()
        ):
            return False
        row = self._board.rows[slot]
        row.unwanted_hash = wanted
        row.unwanted_reason = reason
        row.unwanted_number += 1
        pid = row.pid
        if pid and _has_process(row):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)  # a coroutine pool ignores it, and looks at the board by itself
        return True

    def owns(self, session: str) -> bool:
        """Return whether ``session`` is one of this replica's, alive or not."""
        return session.startswith(f"{self._replica}/")

    def is_over(self, session: str) -> bool:
        """Return whether ``session`` is of a process of this replica that is certainly gone.

        One of a generation that the board does not show yet is not: its process may be on its way.
        """
        row, generation = self._process_of(session)
        return row is not None and generation <= row.ended_generation

    def is_reclaimed(self, session: str) -> bool:
        """Return whether the runs of ``session``, of a process of this replica, were given back before."""
        row, generation = self._process_of(session)
        return row is not None and generation <= row.reclaimed_generation

    def _process_of(self, session: str) -> tuple[Row | None, int]:
        replica, _, rest = session.partition("/")
        name, _, generation = rest.rpartition("/")
        if replica != self._replica or name not in self._slot_by_name or not generation.isdecimal():
            return None, 0
        return self._board.rows[self._slot_by_name[name]], int(generation)

    def dead(self) -> list[DeadWorker]:
        """Return every process that is gone and not reclaimed yet, oldest first."""
        found = []
        for slot, name in self._slots:
            row = self._board.rows[slot]
            newest = row.ended_generation
            oldest = max(row.reclaimed_generation + 1, newest - GENERATIONS_MAX + 1)
            found += [self._dead(slot, name, generation) for generation in range(oldest, newest + 1)]
        return found

    def mark_reclaimed(self, worker: DeadWorker) -> None:
        """Note for the parent that the slot's table is no longer needed: until then it waits with the next process."""
        row = self._board.rows[worker.slot]
        row.reclaimed_generation = max(row.reclaimed_generation, worker.generation)
        self._wake_parent()

    def _dead(self, slot: int, name: str, generation: int) -> DeadWorker:
        row = self._board.rows[slot]
        is_stopping = self._board.header.phase >= Phase.DRAINING
        entries = tuple(self._board.inflight[slot].entries())
        table: tuple[Inflight, ...] | None = entries
        death = _death(row)
        is_out_of_memory = row.oom_generation == generation
        how = describe_death(Cause(row.cause), row.last_exit, is_out_of_memory=is_out_of_memory, table=entries)
        if row.generation != generation:
            how = describe_death(Cause.NONE, None)
        if not row.generation == row.child_generation == generation:
            # The slot went on, or the process never came so far: what was read is of another one.
            table, death = None, Death.CRASHED
        if row.severed_generation == generation:
            death, how = Death.STOPPED, "left because of Redis"
        if is_stopping:
            death = Death.STOPPED
        session = session_name(self._replica, name, generation)
        if table is None:
            return DeadWorker(slot, generation, session, death, table, how)
        return DeadWorker(slot, generation, session, death, table, how, row.beat_ns, row.turn_ms)


def _has_process(row: Row) -> bool:
    return row.generation > row.ended_generation


def _death(row: Row) -> Death:
    cause = Cause(row.cause)
    if cause is Cause.OVERRUN:
        return Death.OVERRUN
    return Death.STOPPED if cause.was_asked else Death.CRASHED
