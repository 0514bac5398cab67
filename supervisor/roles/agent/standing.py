"""What both halves of the election share: where this replica stands, what it has seen, its tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from supervisor.clock import Clock
from supervisor.core.board import Board, Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.lease import MS, Event, State, retry_delay_ns, step
from supervisor.roles.steps import Report
from supervisor.settings.models import ElectionSettings
from supervisor.store.leases import CandidateInfo, Leases, LeaseView

# A refusal (a password changed under us) is waited out like an outage: no replica ever stops contending.
UNANSWERED = (StoreUnavailableError, StoreRefusedError)


class Surroundings(Protocol):
    """What the elector must know of its tree, and the one thing it does to it."""

    def is_stopping(self) -> bool:
        """Whether the tree is being stopped."""
        ...

    def can_schedule(self) -> bool:
        """Whether the scheduler beside it makes progress."""
        ...

    def is_scheduler_gone(self) -> bool:
        """Whether no scheduler process is left."""
        ...

    def term_changed(self) -> None:
        """Wake the scheduler: the term on the board is another one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The durations of the election, in nanoseconds."""

    duration_ns: int
    period_ns: int
    timeout_ns: int
    margin_ns: int

    @classmethod
    def of(cls, settings: ElectionSettings) -> Timing:
        """Convert from what people write."""
        return cls(
            duration_ns=int(settings.lease_duration_s * 1000) * MS,
            period_ns=int(settings.renew_period_s * 1e9),
            timeout_ns=int(settings.renew_timeout_s * 1e9),
            margin_ns=int(settings.margin_s * 1e9),
        )

    @property
    def duration_ms(self) -> int:
        """The lease duration as Redis is told it."""
        return self.duration_ns // MS


@dataclass(kw_only=True)
class Standing:
    """Where one replica stands in the election."""

    leases: Leases
    board: Board
    clock: Clock
    me: CandidateInfo
    timing: Timing
    around: Surroundings
    report: Report
    rng: Random
    new_nonce: Callable[[], str]
    state: State = State.FOLLOWER
    floor: int = 0  # highest epoch ever seen; a campaign must win a higher one
    last_event: str = field(default="0-0")
    failures: int = 0  # unanswered questions in a row

    def now(self) -> int:
        """Return CLOCK_BOOTTIME in nanoseconds."""
        return self.clock.elapsed_ns()

    def move(self, event: Event) -> None:
        """Let ``event`` happen to the state."""
        self.state = step(self.state, event)

    def publish(self, term: Term) -> None:
        """Write ``term`` to the board."""
        self.board.publish_term(term)
        self.board.header.is_leading = int(term.is_trusted(self.now()))

    def saw(self, view: LeaseView) -> None:
        """Learn from a reply what every reply teaches."""
        self.floor = max(self.floor, view.epoch)
        self.last_event = view.last_event or self.last_event

    def answered(self, operation: str, view: LeaseView, asked_at_ns: int) -> None:
        """Count one answer."""
        self.failures = 0
        self.saw(view)
        seconds = (self.now() - asked_at_ns) / 1e9
        self.report("election_answer", operation=operation, result=view.code.name.lower(), seconds=seconds)

    def unanswered(self, operation: str, error: Exception) -> int:
        """Count one error; return the pause before the next attempt."""
        self.failures += 1
        self.report("election_unanswered", operation=operation, failures=self.failures, error=str(error))
        return retry_delay_ns(self.failures, self.rng.random())
