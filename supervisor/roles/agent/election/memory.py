"""Memory of one replica in the election: its state, what Redis showed, losses of data, errors, the skew of its clock.

Guarantees
    Nothing else writes here: the other classes of the election call the verbs below.
    A loss of data is found by comparing each reply with the one before, and reported once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from supervisor.core.election.clock_skew import SKEW_MS_MAX, Skew
from supervisor.core.election.lease import DataLoss, ElectorEvent, Loss, Memory, Sight, State, retry_delay_ns, step
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.store.election.leases import RENEWALS, LeaseCode, LeaseView
from supervisor.store.wire.codec import foreign_number

NONCES_MAX = 16
"""Of so many questions a late copy is known again: each is followed by others only after it was answered."""

_RENEWING = RENEWALS | {LeaseCode.SAME}  # answers to what raised the sequence number


class ElectionMemory:
    """Whatever changes of a replica in the election, but for the term that it holds."""

    def __init__(self, context: ElectionContext) -> None:
        self._at = context
        self.state = State.FOLLOWER
        self.lease = Memory()
        self.loss: Loss | None = None  # found, and no term was granted since
        self.lost_genesis = ""  # the data set that was there before the loss
        self.hold = ""  # why the next or the present term must not fire; Redis was not told yet
        self.wait_until_ns = 0  # after a loss: the highest term may be believed in until then
        self.disputed_until_ns = 0
        """After a loss: no own term is trusted before, since another may believe in an older one."""
        self._furthest = (0, 0)  # epoch and sequence number of the latest record that was seen
        self.last_event = "0-0"
        self.roster = -1  # number of the list of candidates that Redis has
        self.is_unreadable = False  # the record, as last seen, and said so
        self.expected_ms = 0  # Redis' time at the latest answer, by those before it
        self.answered_ns = 0  # elapsed time of the last answer to this process; 0: none yet
        self.broken_ms = 0  # Redis' time when it stopped answering; 0: it answers
        self.held_until_ms = 0
        """Redis' time until which nobody else can have led, as last answered; 0: another may."""
        self.led_until_ms = 0
        """Redis' time of the last renewal of another's term, as last answered; it may stand still since. 0: none."""
        self.failures = 0  # unanswered questions in a row
        self.skew = Skew()  # of this machine's wall clock
        self.stepped_until_ns = 0
        """Redis' clock was set ahead: until then it does not tell how long another's term lasts."""
        self._nonces: deque[str] = deque(maxlen=NONCES_MAX)  # that this replica asked with, the latest last

    def asking(self, nonce: str) -> None:
        """Note a nonce that a question is about to be sent with."""
        if nonce not in self._nonces:
            self._nonces.append(nonce)

    def has_asked(self, nonce: str) -> bool:
        """Return whether this replica ever asked with ``nonce``, as far as it remembers."""
        return nonce in self._nonces

    def move(self, event: ElectorEvent) -> None:
        """Let ``event`` happen to the state."""
        self.state = step(self.state, event)

    def resumed(self) -> None:
        """Remember what a predecessor of this agent saw: the term of this replica, else the latest of another."""
        header, term = self._at.board.header, self._at.board.term()
        epoch = term.epoch or header.foreign_epoch
        for nonce in (term.nonce, self._at.board.next_nonce):
            self.asking(nonce or "")
        is_anothers = epoch > term.epoch
        self.lease = Memory(floor=epoch, epoch=epoch, believed_ns=self._at.timing.duration_ns if is_anothers else 0)
        if term.trusted_until_ns:
            self.held_until_ms = header.answered_ms + self._at.timing.duration_ms
        if header.data_loss_epoch == 1:
            self.loss = Loss.DATA  # it found one that no term had followed yet

    def saw(self, view: LeaseView) -> None:
        """Note the facts common to every reply; detect a loss of data in Redis."""
        header, timing = self._at.board.header, self._at.timing
        self.expected_ms = self._redis_ms() if self.answered_ns else self._at.clock.wall_ms()
        answered_ms, broken_ms, held_until_ms = header.answered_ms, self.broken_ms, self.held_until_ms
        sighted_ms = min(answered_ms, self.led_until_ms or answered_ms)
        duration_ns = (view.duration_ms or timing.duration_ms) * MILLISECOND_NS
        if self.answered_ns and (view.now_ms - self.expected_ms) * MILLISECOND_NS > timing.margin_ns:
            self.stepped_until_ns = self._at.now() + duration_ns  # a living holder renews by the new time meanwhile
        header.answered_ms, self.answered_ns, self.broken_ms = view.now_ms, self._at.now(), 0
        silent_ms = min(broken_ms or view.now_ms, view.now_ms)
        self._tell_unreadable(view)
        self._doubt(view.doubtful_until_ms)
        if {"epoch", "seq"} & set(view.unreadable):  # it says nothing of the term: neither of its age nor of a loss
            self.last_event = view.last_event or self.last_event
            return
        # Also what a question won whose answer was lost: its nonce is on the board, the term not yet.
        is_ours = view.is_ours or (
            view.nonce != "" and view.nonce in {self._at.board.term().nonce, self._at.board.next_nonce}
        )
        self.held_until_ms = max(view.now_ms + view.remaining_ms, 0) if is_ours and view.holder else 0
        renewed_ms = view.now_ms + view.remaining_ms - view.duration_ms
        if not view.holder or is_ours:
            self.led_until_ms = 0
        elif not {"until", "duration"} & set(view.unreadable):  # else it says nothing of when that was
            self.led_until_ms = max(renewed_ms, 0)
        before = self.lease
        sight = Sight(
            epoch=view.epoch,
            seq=view.seq,
            genesis=view.genesis,
            duration_ns=duration_ns,
            is_held=view.holder != "",
            is_ours=is_ours,
            is_renewal=view.code in _RENEWING,
        )
        self.lease, loss = before.learn(sight)
        if view.code is LeaseCode.OUTDATED and self.loss is None:
            loss = Loss.ROLLED_BACK
        self.last_event = view.last_event or self.last_event
        self.roster = view.roster
        if view.epoch >= before.floor:
            self.wait_until_ns = 0  # a later term stands: nothing older can be believed in for longer
            if not is_ours:
                self._saw_another(view, before.floor)
        self._furthest = max(self._furthest, (view.epoch, view.seq))
        if loss is not None:
            self.lost_genesis = self.lost_genesis or before.genesis
            if before.believed_ns > 0:
                # Whatever Redis lost was granted or renewed before this answer, perhaps a moment before. No later term
                # shortens that, nor does its end: its holder may not have known, or may have waited in vain.
                self.disputed_until_ns = self._at.now() + max(before.believed_ns, timing.duration_ns)
            self._bound(sighted_ms, held_until_ms, silent_ms)
            self._lost(loss, view)
        elif self.loss is Loss.DATA and silent_ms - answered_ms > timing.duration_ms + timing.renewal_ms:
            header.lost_until_ms = silent_ms  # another may have led unseen for so long, and its data be lost too

    def _saw_another(self, view: LeaseView, floor: int) -> None:
        """Note a term of another replica, which may be over: a loss is behind it if that is later than what was seen.

        The holder of a record that came back, as it was at some moment before, may be dead.
        """
        if view.holder or view.epoch > floor:
            self.led(view.epoch)
            self._note_data_loss(view.epoch)
        if view.epoch > floor or (view.holder and (view.epoch, view.seq) > self._furthest):
            self.recovered()
            self.hold = ""

    def _bound(self, sighted_ms: int, held_until_ms: int, silent_ms: int) -> None:
        """Note what is known of data that are lost, in Redis' time; of several losses in a row, that of the first.

        They are in a row until the scheduler has written watermarks back, or another replica leads and does. Whatever
        was decided since the first was decided by the holder of the lease, or before it by others that led since.
        """
        header = self._at.board.header
        has_followed = 1 < header.data_loss_epoch <= header.foreign_epoch
        is_another = has_followed and self._at.board.term().epoch < header.foreign_epoch
        if header.data_loss_epoch == header.restored_epoch or is_another:
            header.sighted_ms, header.held_until_ms, header.lost_until_ms = sighted_ms, held_until_ms, silent_ms
        elif has_followed or silent_ms > held_until_ms:
            header.lost_until_ms = silent_ms

    def told_ms(self, remaining_ms: int) -> int:
        """Return how long a term lasts yet by Redis' clock; 0: it was set ahead since the term was renewed, perhaps."""
        return remaining_ms if self._at.now() >= self.stepped_until_ns else 0

    def _doubt(self, until_ms: int) -> None:
        """Note that schedules due until then may have run before Redis lost data."""
        self._at.board.header.doubtful_until_ms = max(until_ms, self._at.board.header.doubtful_until_ms)

    def led(self, epoch: int) -> None:
        """Note that another replica holds or held the term ``epoch``."""
        self._at.board.header.foreign_epoch = max(epoch, self._at.board.header.foreign_epoch)

    def _note_data_loss(self, epoch: int) -> None:
        """Note the first term since Redis lost its data, as far as it is known: the agent may die before one is won."""
        if self.loss is Loss.DATA:
            self._at.board.header.data_loss_epoch = max(1, epoch)

    def _tell_unreadable(self, view: LeaseView) -> None:
        """Report once that the record holds values no replica writes. Nobody can renew it, so it ends by silence."""
        if view.unreadable and not self.is_unreadable:
            self._at.report("lease_unreadable", fields=list(view.unreadable), epoch=view.epoch, holder=view.holder)
        self.is_unreadable = bool(view.unreadable)

    @property
    def known_genesis(self) -> str:
        """The data set as this replica knew it, before a loss that no term has followed yet."""
        return self.lost_genesis or self.lease.genesis

    def recovered(self) -> None:
        """Note that a term was granted since the loss."""
        self.loss, self.lost_genesis = None, ""

    def hold_noted(self) -> None:
        """Note that Redis knows of the hold."""
        self.hold = ""

    def _lost(self, loss: Loss, view: LeaseView) -> None:
        """Redis lost data: report it once, and let nobody act on its replies before that is safe."""
        self.loss = loss
        if view.epoch < self.lease.floor:
            self.wait_until_ns = self._at.now() + self._wait_ns()
        self._note_data_loss(view.epoch)
        # Of the clocks the later one, as far as Redis lets it decide: either may have. Never the same again: the
        # scheduler compares it.
        wall_ms = min(self._at.clock.wall_ms(), self.expected_ms + SKEW_MS_MAX)
        self._doubt(max(view.now_ms, wall_ms, self._at.board.header.doubtful_until_ms + 1))
        if self._at.on_data_loss is DataLoss.HOLD:
            self.hold = loss.value
        self._at.report(
            "redis_lost_data", kind=loss.value, epoch=view.epoch, floor=self.lease.floor, genesis=view.genesis
        )

    def _wait_ns(self) -> int:
        """Return for how long the lease is left to others, who may know better what was decided.

        The holder of the term that was seen may have renewed since, and until a moment ago. A former leader whose own
        trust ended first may have been followed by one that it never saw: that one renews soon, if it lives.
        """
        if self.lease.believed_ns > 0:
            return max(self.lease.believed_ns, self._at.timing.duration_ns)  # programs have leases of their own length
        is_lapsed = self.state is State.LAPSED or (
            self.state is State.LEADER and not self._at.board.term().is_trusted(self._at.now())
        )
        return self._at.timing.renewal_ms * MILLISECOND_NS if is_lapsed else 0

    def heard(self, event_id: str, fields: Mapping[str, str]) -> None:
        """Note an event of the election."""
        self.last_event = event_id
        epoch = foreign_number(fields.get("epoch", "")) or 0
        if fields.get("kind") == "released":
            self.lease = self.lease.heard_release(epoch)
        elif fields.get("kind") == "acquired" and fields.get("who") != self._at.me.replica:
            self.led(epoch)

    def viewed(self, view: LeaseView) -> None:
        """Note a reply that was read without asking for the lease."""
        self.failures = 0
        self.saw(view)

    def answered(self, operation: str, view: LeaseView, asked_at_ns: int, *, mode: str = "") -> None:
        """Count one answer."""
        self.failures = 0
        wall_ms = self._at.clock.wall_ms()
        took_ns = self._at.now() - asked_at_ns
        self._measure(self.skew.measured(wall_ms=wall_ms, redis_ms=view.now_ms, round_trip_ns=took_ns))
        self.saw(view)
        result = view.code.name.lower()
        self._at.report("election_answer", operation=operation, result=result, seconds=took_ns / SECOND_NS, mode=mode)

    def _measure(self, skew: Skew) -> None:
        before, self.skew = self.skew, skew
        self._at.board.header.clock_skew_ms = skew.ms
        if skew.is_over != before.is_over:
            self._at.report("clock_skewed" if skew.is_over else "clock_right", skew_s=skew.ms / 1000)

    def unanswered(self, operation: str, error: Exception) -> int:
        """Count one error; return the pause before the next attempt."""
        self.failures += 1
        self.broken_ms = self.broken_ms or self._redis_ms()
        self._at.report("election_unanswered", operation=operation, failures=self.failures, error=str(error))
        return retry_delay_ns(self.failures, self._at.rng.random())

    def _redis_ms(self) -> int:
        """Return Redis' time by this machine's elapsed time since the last answer, else by its wall clock."""
        if self.answered_ns:
            return self._at.board.header.answered_ms + (self._at.now() - self.answered_ns) // MILLISECOND_NS
        return self._at.clock.wall_ms() - self.skew.ms
