"""What one worker process says of itself on the scoreboard: it lives, what it holds, until when.

The order of the stores is the point, because the process can be killed between any two:
STARTED stands before user code runs, so blame is never missed; a fresh beat stands before
the deadline that excused its absence goes, so that the parent sees no hang that was none.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from supervisor.clock import Clock
from supervisor.core.board import ChildState, InflightTable, Phase, RunState
from supervisor.roles.seat import Seat

NEAR_NS = 600_000_000  # the parent looks every 0.5 s; a deadline nearer than that it must be told of


class Presence:
    """This worker's row and in-flight table."""

    def __init__(self, seat: Seat) -> None:
        self._row = seat.row
        self._header = seat.board.header
        self._table: InflightTable = seat.inflight
        self._clock: Clock = seat.clock
        self._generation = seat.generation
        self._parent_pid = seat.parent_pid
        self._free = list(reversed(range(self._table.size)))
        self._held: dict[str, tuple[int, int]] = {}  # run id: index, attempt
        self._deadlines: dict[str, int] = {}
        self._unwanted_number = self._row.unwanted_number

    @property
    def phase(self) -> Phase:
        """Where the whole tree stands."""
        return Phase(self._header.phase)

    def ready(self) -> None:
        """Say that the loop turns."""
        self._table.clear_all()
        self._row.child_generation = self._generation
        self.beat()
        self._state(ChildState.READY)

    def draining(self) -> None:
        """Say that nothing more is fetched."""
        self._state(ChildState.DRAINING)

    def _state(self, state: ChildState) -> None:
        self._row.child_state = state
        self._wake_parent()

    def beat(self, lag_us: int = 0) -> None:
        """Say that the loop turned just now."""
        self._row.loop_lag_us = lag_us
        self._row.beat_ns = self._clock.elapsed_ns()

    def unwanted(self) -> int | None:
        """Return the hash of the run that the agent asks to end; None if it has asked for none since the last look."""
        number = self._row.unwanted_number
        if number == self._unwanted_number:
            return None
        self._unwanted_number = number
        return self._row.unwanted_hash

    def redis_answered(self) -> None:
        """Say that Redis answered just now."""
        self._row.redis_ok_ns = self._clock.elapsed_ns()
        self._row.progress += 1

    def fetched(self, run_id: str, attempt: int) -> None:
        """Note a run that is here and not begun."""
        index = self._free.pop()
        self._held[run_id] = (index, attempt)
        self._table.put(index, run_id=run_id, attempt=attempt, state=RunState.FETCHED)

    def started(self, run_id: str, deadline_ns: int) -> None:
        """Note that user code of the run is about to be called, and when it must be killed."""
        index, attempt = self._held[run_id]
        self._table.put(index, run_id=run_id, attempt=attempt, state=RunState.STARTED, deadline_ns=deadline_ns)
        self._deadlines[run_id] = deadline_ns
        self._row.busy = len(self._deadlines)
        self._set_deadline()
        if deadline_ns - self._clock.elapsed_ns() < NEAR_NS:
            self._wake_parent()

    def done(self, run_id: str) -> None:
        """Note that user code of the run returned; its acknowledgement is still to be answered."""
        self.beat(self._row.loop_lag_us)
        index, attempt = self._held[run_id]
        self._table.put(index, run_id=run_id, attempt=attempt, state=RunState.DONE)
        del self._deadlines[run_id]
        self._row.busy = len(self._deadlines)
        self._row.done += 1
        self._set_deadline()

    def settled(self, run_id: str) -> None:
        """Forget a run that Redis no longer counts as ours."""
        index, _ = self._held.pop(run_id)
        self._table.clear(index)
        self._free.append(index)

    def _set_deadline(self) -> None:
        self._row.deadline_ns = min(self._deadlines.values(), default=0)

    def _wake_parent(self) -> None:
        with suppress(ProcessLookupError):  # it died: its death signal is on the way to us
            os.kill(self._parent_pid, signal.SIGURG)
