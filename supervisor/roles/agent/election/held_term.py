"""The term that this replica holds, as the board shows it to the scheduler.

Guarantees
    A term is on the board as trusted only for the process of the scheduler that it was
    issued to; the next process gets another one. While the lease is held for a person to
    look at it (``election.on_data_loss: hold``), it is renewed and never trusted. Nor is it
    while another replica may believe in a term that Redis lost, as far as this one knows.
    A term is given back so that another replica leads within milliseconds: the scheduler is notified first, and has a
    moment to end its batch; then Redis is. A question whose answer is not known is given back too, if it won.

Does not guarantee
    That the last batch got through: one that comes after the release is refused, and fired by the next leader.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.effects import Call, RunScript, Sleep, Steps
from supervisor.core.election.lease import NO_TERM, ElectorEvent, Loss, State, Term
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext
from supervisor.roles.agent.election.follower import ElectionFollower
from supervisor.roles.agent.election.memory import ElectionMemory
from supervisor.store.election.leases import LeaseCode, LeaseView

SCHEDULER_EXIT_NS = 50 * MILLISECOND_NS  # how long a release waits for the scheduler's last batch when the tree stops
SCHEDULER_IDLE_NS = 20 * MILLISECOND_NS  # and when it goes on without the term
IDLE_TURNS = 2  # the first may have begun before the term left the board
LOOK_NS = 2 * MILLISECOND_NS
RELEASE_TRIES_MAX = 3
WHILE_SCHEDULING = {"requested", "clock_skew"}  # the scheduler works; it just goes on without the term


class HeldTerm:
    """Term that this replica holds, and its publication on the board."""

    def __init__(self, context: ElectionContext, memory: ElectionMemory) -> None:
        self._at = context
        self._memory = memory
        self._issued_epoch = 0  # the term that the words beside it on the board belong to
        self._over_ns = 0  # the end of the lease by the last answer; or a whole one after the term was taken over
        self.term = NO_TERM

    @property
    def is_outlived(self) -> bool:
        """True if the parent has reaped the process of the scheduler that the term was issued to."""
        is_issued = self._issued_epoch == self.term.epoch
        return is_issued and self._at.board.header.scheduler_generation != self._at.around.incarnation()

    def resume(self, term: Term) -> None:
        """Hold the term published by a predecessor of this agent."""
        at = self._at
        self.term, self._over_ns = term, at.now() + at.timing.duration_ns
        self._issued_epoch = term.epoch if term.trusted_until_ns else 0  # it may have died before it wrote the rest
        if at.board.next_nonce == term.nonce:
            at.board.next_nonce = None  # the question was answered, and the answer published
        at.presence.show(term.epoch)

    def adopt(self, term: Term) -> None:
        """Hold a term that nothing may be done with yet."""
        self.term, self._over_ns = term, self._at.now() + self._at.timing.duration_ns
        self._publish(term)
        self._at.board.next_nonce = None

    def confirm(self, term: Term, view: LeaseView, *, mode: str) -> None:
        """Publish ``term``, which ``view`` confirmed; ``mode`` names the way it was won, if it just was."""
        at, header = self._at, self._at.board.header
        was_leader, was_held = self._memory.state is State.LEADER, bool(header.is_held)
        was_trusted = at.board.term().trusted_until_ns > 0
        is_promotion = self._memory.state is State.PROMOTING
        if term.epoch != self._issued_epoch:
            self._issue(term)
        if view.hold:
            self._memory.hold_noted()
        self.term, self._over_ns = term, term.trusted_until_ns + at.timing.margin_ns
        header.is_held = int(bool(view.hold or self._memory.hold))
        is_trusted = not header.is_held and at.now() >= self._memory.disputed_until_ns
        self._publish(term if is_trusted else replace(term, trusted_until_ns=0))
        at.board.next_nonce = None
        self._memory.move(ElectorEvent.GRANTED)
        if header.is_held and not was_held:
            at.report("fires_held", epoch=term.epoch, reason=view.hold or self._memory.hold)
        if is_promotion:
            at.report("leader_promoted", epoch=term.epoch, generation=header.scheduler_generation)
        elif not was_leader:
            reason = view.code.name.lower()
            at.report("leader_acquired", epoch=term.epoch, reason=reason, mode=mode, gap_ms=view.gap_ms)
            if at.now() < self._memory.disputed_until_ns:
                at.report(
                    "trust_deferred", epoch=term.epoch, seconds=(self._memory.disputed_until_ns - at.now()) / SECOND_NS
                )
        if not was_leader or (is_trusted and not was_trusted):
            at.around.term_changed()

    def _issue(self, term: Term) -> None:
        """Write the data of a new term before the term, so that whoever sees the term sees them too."""
        at, header = self._at, self._at.board.header
        self._issued_epoch = term.epoch
        header.scheduler_generation = at.around.incarnation()
        header.acquired_ns = at.now()
        header.ineligible_until_ns = 0
        if self._memory.loss is Loss.DATA and header.data_loss_epoch <= 1:  # else another led first
            header.data_loss_epoch = term.epoch
        self._memory.recovered()
        at.presence.show(term.epoch)

    def promotion(self) -> Call[LeaseView]:
        """Return the question for a later epoch of this term. The term is not trusted until it is answered.

        The nonce is on the board before it is sent: an agent that dies now is followed by one that asks the same.
        """
        at = self._at
        self._memory.move(ElectorEvent.PROMOTE)
        nonce = at.board.next_nonce or at.new_nonce()
        at.board.next_nonce = nonce
        self._memory.asking(nonce)
        self.term = replace(self.term, trusted_until_ns=0)
        self._publish(self.term)
        return at.leases.promote(
            self.term,
            new_nonce=nonce,
            duration_ms=at.timing.duration_ms,
            is_rolled_back=self._memory.loss is Loss.ROLLED_BACK,
        )

    def probe(self) -> Steps[int]:
        """Return 0 when more of the lease may be asked for, else the pause before the next attempt.

        What Redis carries out and answers too late would keep the lease for good, and nobody would act on it. So once
        nothing was answered for a whole lease, reading it, which keeps nothing, has to be answered in time first. What
        it shows is not noted: a fail-over may undo renewals that nobody confirmed (``redis.durability``).
        """
        at = self._at
        if self._memory.failures == 0 or at.now() < self._over_ns:
            return 0
        try:
            yield RunScript(at.leases.view(), at.timing.timeout_ns)
        except UNANSWERED as error:
            return self._memory.unanswered("view", error)
        return 0

    def lapse(self) -> None:
        """Trust ended. The term stays on the board, untrusted: if nobody replaced it, a renewal reclaims it."""
        at = self._at
        self._memory.move(ElectorEvent.TRUST_EXPIRED)
        at.board.header.is_leading = 0
        at.report("leader_lapsed", epoch=self.term.epoch)

    def drop(self) -> None:
        """Take the term off the board, and wake the scheduler."""
        self.term = NO_TERM
        self._publish(NO_TERM)
        self._at.board.header.is_held = 0
        self._at.presence.show(0)
        self._at.around.term_changed()

    def _publish(self, term: Term) -> None:
        """Write ``term`` to the board."""
        self._at.board.publish_term(term)
        self._at.board.header.is_leading = int(term.is_trusted(self._at.now()))


class Resignation:
    """The way out of every state that may hold a term."""

    def __init__(
        self, context: ElectionContext, memory: ElectionMemory, held: HeldTerm, follower: ElectionFollower
    ) -> None:
        self._at = context
        self._memory = memory
        self._held = held
        self._follower = follower

    def resign(self, reason: str, *, prefer: str = "") -> Steps[None]:
        """Give the term back; ``prefer`` should lead next, empty: any."""
        term = self._held.term
        is_known = self._memory.state not in {State.CAMPAIGNING, State.PROMOTING}
        self._memory.move(ElectorEvent.RESIGN)
        if is_known and reason == "shutdown":
            yield from self._await_exit()
        self._held.drop()
        if is_known and reason in WHILE_SCHEDULING:
            yield from self._await_idleness()
        if not is_known:
            term = yield from self._follower.find_unanswered(term)
        if term.epoch > 0:
            yield from self._release(term, reason, prefer)
        self._follower.forget()
        self._memory.move(ElectorEvent.RELEASED)

    def _await_exit(self) -> Steps[None]:
        at = self._at
        limit_ns = at.now() + SCHEDULER_EXIT_NS
        while not at.around.is_scheduler_gone() and at.now() < limit_ns:
            yield Sleep(min(limit_ns, at.now() + LOOK_NS))

    def _await_idleness(self) -> Steps[None]:
        """Wait until the scheduler has looked at the board again, or for so long that the fence must do."""
        at = self._at
        limit_ns, turns = at.now() + SCHEDULER_IDLE_NS, at.around.progress() + IDLE_TURNS
        while not at.around.is_scheduler_gone() and at.around.progress() < turns and at.now() < limit_ns:
            yield Sleep(min(limit_ns, at.now() + LOOK_NS))

    def _release(self, term: Term, reason: str, prefer: str) -> Steps[None]:
        """Give the lease back in Redis, so that a standby leads at once. Idempotent, hence tried again."""
        at = self._at
        for _ in range(RELEASE_TRIES_MAX):
            call = at.leases.release(term, reason=reason, prefer=prefer)
            asked_at_ns = at.now()
            try:
                view = yield RunScript(call, at.timing.timeout_ns)
            except UNANSWERED as error:
                self._memory.unanswered("release", error)
                continue
            self._memory.answered("release", view, asked_at_ns)
            if view.code is LeaseCode.LOST and view.nonce and view.nonce == at.board.next_nonce:
                term = Term(view.epoch, view.nonce, 0)  # a late question was granted after we looked
                continue
            at.report("leader_released", epoch=term.epoch, reason=reason, answer=view.code.name.lower())
            return
        at.report("release_unanswered", epoch=term.epoch, reason=reason)
