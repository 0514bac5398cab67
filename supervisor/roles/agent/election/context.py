"""Shared context of the election in one replica: its tools, durations and surroundings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from supervisor.clock import Clock
from supervisor.core.effects import Reporter
from supervisor.core.election.lease import DataLoss
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.signing import Signer
from supervisor.core.supervision.scoreboard import Board, Row
from supervisor.core.supervision.states import Phase
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.store.election.leases import CandidateInfo, Leases

if TYPE_CHECKING:  # programs that contend load no pydantic
    from supervisor.settings.sections.models import ElectionSettings

# A refusal (a password changed under us) is waited out like an outage: no replica ever stops contending.
UNANSWERED = (StoreUnavailableError, StoreRefusedError)
PROGRESS_LIMIT_NS = 2000 * MILLISECOND_NS  # a scheduler silent for longer does not schedule; the parent's own limit
LOOK_NS_MAX = 1500 * MILLISECOND_NS  # what two looks prove at most about the time between them


class Surroundings:
    """Facts around the elector, and one notification: here those of a program without a scheduler's process."""

    def is_stopping(self) -> bool:
        """Return whether the lease is to be given back."""
        return False

    def can_schedule(self) -> bool:
        """Return whether the scheduler beside it makes progress."""
        return True

    def is_scheduler_gone(self) -> bool:
        """Return whether no scheduler process is left."""
        return True

    def incarnation(self) -> int:
        """Return the number of the live scheduler process; without one, that of the next."""
        return 1

    def crashes(self) -> int:
        """Return the scheduler's failures within a minute, counted back from its last failure."""
        return 0

    def progress(self) -> int:
        """Return a number that grows with each turn of the scheduler."""
        return 0

    def term_changed(self) -> None:
        """Wake the scheduler: the term on the board is another one."""


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
        return self._scheduler.ended_generation == self._scheduler.generation

    def incarnation(self) -> int:
        """Return the generation of the scheduler that lives, or of the one to come."""
        return self._scheduler.ended_generation + 1

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


class Presence:
    """Shows others that this process lives, by a connection that ends with it. This one shows nothing."""

    def show(self, epoch: int) -> None:
        """Show it for the term ``epoch``, and for no other; 0: for none. Returns at once."""

    def is_shown(self, epoch: int) -> bool:  # noqa: ARG002 - for those that show something
        """Return whether Redis has confirmed that it is shown for ``epoch``."""
        return False

    def refresh(self) -> None:
        """Show it anew, after a reply by which Redis does not see it. Returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTiming:
    """The durations of the election, in nanoseconds."""

    duration_ns: int
    period_ns: int
    timeout_ns: int
    margin_ns: int
    presence_poll_ns: int = 0  # 0: presence is not looked at

    @classmethod
    def of(cls, settings: ElectionSettings) -> ElectionTiming:
        """Convert from configured values."""
        return cls(
            duration_ns=int(settings.lease_duration_s * 1000) * MILLISECOND_NS,
            period_ns=int(settings.renew_period_s * SECOND_NS),
            timeout_ns=int(settings.renew_timeout_s * SECOND_NS),
            margin_ns=int(settings.margin_s * SECOND_NS),
            presence_poll_ns=int(settings.presence_poll_s * SECOND_NS) if settings.presence else 0,
        )

    @property
    def duration_ms(self) -> int:
        """Lease duration as sent to Redis."""
        return self.duration_ns // MILLISECOND_NS

    @property
    def renewal_ms(self) -> int:
        """Within which a leader that works has renewed once."""
        return (self.period_ns + self.timeout_ns) // MILLISECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionContext:
    """Tools of one replica in the election, and its configuration. Nothing of it changes."""

    leases: Leases
    board: Board
    clock: Clock
    me: CandidateInfo
    timing: ElectionTiming
    around: Surroundings
    report: Reporter
    rng: Random
    new_nonce: Callable[[], str]
    presence: Presence = field(default_factory=Presence)
    on_data_loss: DataLoss = DataLoss.RESUME
    signer: Signer | None = None  # verifies who asks for a hand-over; None: anybody may

    def now(self) -> int:
        """Return CLOCK_BOOTTIME in nanoseconds."""
        return self.clock.elapsed_ns()
