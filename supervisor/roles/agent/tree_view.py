"""View of the elector on its own process tree: the board, nothing else."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from supervisor.clock import Clock
from supervisor.core.supervision.scoreboard import Board, Phase, Row, SlotState
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import Surroundings

PROGRESS_LIMIT_NS = 2000 * MILLISECOND_NS  # a scheduler silent for longer does not schedule; the parent's own limit
LOOK_NS_MAX = 1500 * MILLISECOND_NS  # what two looks prove at most about the time between them


class TreeView(Surroundings):
    """The tree as the elector sees it on the board."""

    progress_limit_ns = PROGRESS_LIMIT_NS

    def __init__(self, board: Board, scheduler: Row, clock: Clock) -> None:
        self._board = board
        self._scheduler = scheduler
        self._clock = clock
        self._progress = scheduler.progress
        self._looked_ns = clock.elapsed_ns()
        self._silent_ns = 0
        self.is_ending = False  # set by the main thread: this agent was told to end

    def is_stopping(self) -> bool:
        """Return whether the tree or this agent is being stopped."""
        return self.is_ending or self._board.header.phase >= Phase.DRAINING

    def can_schedule(self) -> bool:
        """Return whether the scheduler's progress counter moved within the limit, by consecutive looks."""
        now_ns, progress = self._clock.elapsed_ns(), self._scheduler.progress
        if progress != self._progress or self._scheduler.generation == 0:  # it has not been started yet
            self._progress, self._silent_ns = progress, 0
        else:
            # A machine that was suspended, or a tree that was stopped, looks once afterwards: that is one look.
            self._silent_ns += min(now_ns - self._looked_ns, LOOK_NS_MAX)
        self._looked_ns = now_ns
        return self._silent_ns < self.progress_limit_ns

    def is_scheduler_gone(self) -> bool:
        """Return whether the parent has reaped the scheduler."""
        return not SlotState(self._scheduler.state).has_process

    def incarnation(self) -> int:
        """Return the generation of the scheduler that lives, or of the one to come.

        The parent writes the generation before the state. Read in between, a start looks like a death: that costs
        one promotion too many, and the next look is right.
        """
        generation = self._scheduler.generation
        return generation + self.is_scheduler_gone()

    def crashes(self) -> int:
        """Return the scheduler's failures within a minute, counted back from its last failure."""
        return self._scheduler.crashes

    def progress(self) -> int:
        """Return a number that grows with each turn of the scheduler."""
        return self._scheduler.progress

    def term_changed(self) -> None:
        """Send the scheduler SIGURG, which wakes it and does nothing else."""
        pid = self._scheduler.pid
        if pid and not self.is_scheduler_gone():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGURG)
