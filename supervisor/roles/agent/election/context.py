"""Shared context of follower and leader: the state of this replica, its observations, its tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from msgspec import structs

from supervisor.clock import Clock
from supervisor.core.election.clock_skew import Skew
from supervisor.core.election.lease import ElectorEvent, Loss, Memory, Sight, State, retry_delay_ns, step
from supervisor.core.election.term import Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.signing import Signer
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.effects import Reporter
from supervisor.settings.sections.models import DataLoss, ElectionSettings
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases, LeaseView

# A refusal (a password changed under us) is waited out like an outage: no replica ever stops contending.
UNANSWERED = (StoreUnavailableError, StoreRefusedError)
_RENEWING = {LeaseCode.RENEWED, LeaseCode.RECLAIMED, LeaseCode.SAME}  # answers to what raised the sequence number


class Surroundings(Protocol):
    """Process tree as the elector uses it: facts, and one notification."""

    def is_stopping(self) -> bool:
        """Return whether the tree is being stopped."""
        ...

    def can_schedule(self) -> bool:
        """Return whether the scheduler beside it makes progress."""
        ...

    def is_scheduler_gone(self) -> bool:
        """Return whether no scheduler process is left."""
        ...

    def incarnation(self) -> int:
        """Return the number of the live scheduler process; without one, that of the next."""
        ...

    def crashes(self) -> int:
        """Return the scheduler's failures within a minute, counted back from its last failure."""
        ...

    def progress(self) -> int:
        """A number that grows with each turn of the scheduler."""
        ...

    def term_changed(self) -> None:
        """Wake the scheduler: the term on the board is another one."""
        ...


class PresenceConnection(Protocol):
    """Shows others that this process lives, by a connection that ends with it."""

    def show(self, epoch: int) -> None:
        """Show it for the term ``epoch``, and for no other; 0: for none. Returns at once."""
        ...

    def is_shown(self, epoch: int) -> bool:
        """Return whether Redis has confirmed that it is shown for ``epoch``."""
        ...

    def refresh(self) -> None:
        """Show it anew, after a reply by which Redis does not see it. Returns at once."""
        ...


class NoPresence:
    """Shows nothing."""

    def show(self, epoch: int) -> None:
        """Do nothing."""

    def is_shown(self, epoch: int) -> bool:  # noqa: ARG002 - of the protocol
        """Return False."""
        return False

    def refresh(self) -> None:
        """Do nothing."""


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


@dataclass(kw_only=True)
class ElectionContext:
    """State of one replica in the election, with its collaborators."""

    leases: Leases
    board: Board
    clock: Clock
    me: CandidateInfo
    timing: ElectionTiming
    around: Surroundings
    report: Reporter
    rng: Random
    new_nonce: Callable[[], str]
    presence: PresenceConnection = field(default_factory=NoPresence)
    on_data_loss: DataLoss = DataLoss.RESUME
    signer: Signer | None = None  # verifies who asks for a hand-over; None: anybody may
    state: State = State.FOLLOWER
    memory: Memory = field(default_factory=Memory)
    loss: Loss | None = None  # found, and no term was granted since
    lost_genesis: str = ""  # the data set that was there before the loss
    hold: str = ""  # why the next or the present term must not fire; Redis was not told yet
    wait_until_ns: int = 0  # after a loss: the highest term may be believed in until then
    disputed_until_ns: int = 0  # after a loss: no own term is trusted before, since another may believe in an older one
    last_event: str = field(default="0-0")
    roster: int = -1  # number of the list of candidates that Redis has
    is_unreadable: bool = False  # the record, as last seen, and said so
    broken_ms: int = 0  # Redis' time when it stopped answering; 0: it answers
    held_until_ms: int = 0  # Redis' time until which nobody else can have led, as last answered; 0: another may
    failures: int = 0  # unanswered questions in a row
    skew: Skew = field(default_factory=Skew)  # of this machine's wall clock

    def now(self) -> int:
        """Return CLOCK_BOOTTIME in nanoseconds."""
        return self.clock.elapsed_ns()

    def described(self) -> CandidateInfo:
        """Return the public description of this replica now."""
        return structs.replace(self.me, wall_ms=self.clock.wall_ms())

    def move(self, event: ElectorEvent) -> None:
        """Let ``event`` happen to the state."""
        self.state = step(self.state, event)

    def publish(self, term: Term) -> None:
        """Write ``term`` to the board."""
        self.board.publish_term(term)
        self.board.header.is_leading = int(term.is_trusted(self.now()))

    def resumed(self) -> None:
        """Remember what a predecessor of this agent saw: the term of this replica, else the latest of another."""
        header, term = self.board.header, self.board.term()
        epoch = term.epoch or header.foreign_epoch
        is_anothers = epoch > term.epoch
        believed_until_ns = self.now() + self.timing.duration_ns if is_anothers else 0
        self.memory = Memory(floor=epoch, epoch=epoch, trusted_until_ns=believed_until_ns)
        if term.trusted_until_ns:
            self.held_until_ms = header.answered_ms + self.timing.duration_ms

    def saw(self, view: LeaseView) -> None:
        """Note the facts common to every reply; detect a loss of data in Redis."""
        header = self.board.header
        answered_ms, broken_ms, held_until_ms = header.answered_ms, self.broken_ms, self.held_until_ms
        header.answered_ms, self.broken_ms = view.now_ms, 0
        silent_ms = min(broken_ms or view.now_ms, view.now_ms)
        self._tell_unreadable(view)
        self._doubt(view.doubtful_until_ms)
        if {"epoch", "seq"} & set(view.unreadable):  # it says nothing of the term: neither of its age nor of a loss
            self.last_event = view.last_event or self.last_event
            return
        # Also what a question won whose answer was lost: its nonce is on the board, the term not yet.
        is_ours = view.is_ours or (view.nonce != "" and view.nonce in {self.board.term().nonce, self.board.next_nonce})
        self.held_until_ms = view.now_ms + view.remaining_ms if is_ours and view.holder else 0
        before = self.memory
        sight = Sight(
            epoch=view.epoch,
            seq=view.seq,
            genesis=view.genesis,
            duration_ns=(view.duration_ms or self.timing.duration_ms) * MILLISECOND_NS,
            is_held=view.holder != "",
            is_ours=is_ours,
            is_renewal=view.code in _RENEWING,
        )
        self.memory, loss = before.learn(sight, now_ns=self.now())
        self.last_event = view.last_event or self.last_event
        self.roster = view.roster
        if view.epoch >= before.floor:
            self.wait_until_ns = 0  # a later term stands: nothing older can be believed in for longer
            if view.holder and not is_ours:
                self.led(view.epoch)
                self._note_data_loss(view.epoch)
                self.recovered()  # another replica goes through it
        if loss is not None:
            self.lost_genesis = self.lost_genesis or before.genesis
            if before.trusted_until_ns > 0:
                # Whatever Redis lost was granted or renewed before this answer, perhaps a moment before. No later term
                # shortens that, nor does its end: its holder may not have known, or may have waited in vain.
                self.disputed_until_ns = self.now() + self.timing.duration_ns
            if header.data_loss_epoch != 1:  # else no term followed the loss before, which a predecessor may have found
                header.sighted_ms, header.held_until_ms = answered_ms, held_until_ms
            header.lost_until_ms = silent_ms
            self._lost(loss, view)
        elif self.loss is Loss.DATA and silent_ms - answered_ms > self.timing.duration_ms + self.timing.renewal_ms:
            header.lost_until_ms = silent_ms  # another may have led unseen for so long, and its data be lost too

    def _doubt(self, until_ms: int) -> None:
        """Note that schedules due until then may have run before Redis lost data."""
        self.board.header.doubtful_until_ms = max(until_ms, self.board.header.doubtful_until_ms)

    def led(self, epoch: int) -> None:
        """Note that another replica holds or held the term ``epoch``."""
        self.board.header.foreign_epoch = max(epoch, self.board.header.foreign_epoch)

    def _note_data_loss(self, epoch: int) -> None:
        """Note the first term since Redis lost its data, as far as it is known: the agent may die before one is won."""
        if self.loss is Loss.DATA:
            self.board.header.data_loss_epoch = max(1, epoch)

    def _tell_unreadable(self, view: LeaseView) -> None:
        """Report once that the record holds values no replica writes. Nobody can renew it, so it ends by silence."""
        if view.unreadable and not self.is_unreadable:
            self.report("lease_unreadable", fields=list(view.unreadable), epoch=view.epoch, holder=view.holder)
        self.is_unreadable = bool(view.unreadable)

    @property
    def known_genesis(self) -> str:
        """The data set as this replica knew it, before a loss that no term has followed yet."""
        return self.lost_genesis or self.memory.genesis

    def recovered(self) -> None:
        """A term was granted since the loss."""
        self.loss, self.lost_genesis, self.hold = None, "", ""

    def _lost(self, loss: Loss, view: LeaseView) -> None:
        """Redis lost data: report it once, and let nobody act on its replies before that is safe."""
        self.loss = loss
        if view.epoch < self.memory.floor:
            self.wait_until_ns = self.now() + self._wait_ns()
        self._note_data_loss(view.epoch)
        # Of the clocks the later one: either may have decided. Never the same again: the scheduler compares it.
        self._doubt(max(view.now_ms, self.clock.wall_ms(), self.board.header.doubtful_until_ms + 1))
        if self.on_data_loss is DataLoss.HOLD:
            self.hold = loss.value
        self.report("redis_lost_data", kind=loss.value, epoch=view.epoch, floor=self.memory.floor, genesis=view.genesis)

    def _wait_ns(self) -> int:
        """Return for how long the lease is left to others, who may know better what was decided.

        The holder of the term that was seen may have renewed since, and until a moment ago. A former leader whose own
        trust ended first may have been followed by one that it never saw: that one renews soon, if it lives.
        """
        if self.memory.trusted_until_ns > 0:
            return self.timing.duration_ns
        is_lapsed = self.state is State.LAPSED or (
            self.state is State.LEADER and not self.board.term().is_trusted(self.now())
        )
        return self.timing.renewal_ms * MILLISECOND_NS if is_lapsed else 0

    def answered(self, operation: str, view: LeaseView, asked_at_ns: int, *, mode: str = "") -> None:
        """Count one answer."""
        self.failures = 0
        wall_ms = self.clock.wall_ms()
        took_ns = self.now() - asked_at_ns
        self._measure(self.skew.measured(wall_ms=wall_ms, redis_ms=view.now_ms, round_trip_ns=took_ns))
        self.saw(view)
        result = view.code.name.lower()
        self.report("election_answer", operation=operation, result=result, seconds=took_ns / SECOND_NS, mode=mode)

    def _measure(self, skew: Skew) -> None:
        before, self.skew = self.skew, skew
        self.board.header.clock_skew_ms = skew.ms
        if skew.is_over != before.is_over:
            self.report("clock_skewed" if skew.is_over else "clock_right", skew_s=skew.ms / 1000)

    def unanswered(self, operation: str, error: Exception) -> int:
        """Count one error; return the pause before the next attempt."""
        self.failures += 1
        self.broken_ms = self.broken_ms or self.clock.wall_ms() - self.skew.ms
        self.report("election_unanswered", operation=operation, failures=self.failures, error=str(error))
        return retry_delay_ns(self.failures, self.rng.random())
