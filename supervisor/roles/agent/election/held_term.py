"""The term that this replica holds, as the board shows it to the scheduler.

Guarantees
    A term is on the board as trusted only for the process of the scheduler that it was
    issued to; the next process gets another one. While the lease is held for a person to
    look at it (``election.on_data_loss: hold``), it is renewed and never trusted. Nor is it
    while another replica may believe in a term that Redis lost, as far as this one knows.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.election.lease import ElectorEvent, Loss, State
from supervisor.core.election.term import NO_TERM, Term
from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.store.election.leases import LeaseView
from supervisor.store.scripts import Call


class Tenancy:
    """Term that this replica holds, and its publication on the board."""

    def __init__(self, standing: ElectionContext) -> None:
        self._at = standing
        self._issued_epoch = 0  # the term that the words beside it on the board belong to
        self.term = NO_TERM

    @property
    def is_outlived(self) -> bool:
        """True if the parent has reaped the process of the scheduler that the term was issued to."""
        is_issued = self._issued_epoch == self.term.epoch
        return is_issued and self._at.board.header.scheduler_generation != self._at.around.incarnation()

    def resume(self, term: Term) -> None:
        """Hold the term published by a predecessor of this agent."""
        at = self._at
        self.term = term
        self._issued_epoch = term.epoch if term.trusted_until_ns else 0  # it may have died before it wrote the rest
        if at.board.next_nonce == term.nonce:
            at.board.next_nonce = None  # the question was answered, and the answer published
        at.presence.show(term.epoch)

    def adopt(self, term: Term) -> None:
        """Hold a term that nothing may be done with yet."""
        self.term = term
        self._at.publish(term)
        self._at.board.next_nonce = None

    def confirm(self, term: Term, view: LeaseView, *, mode: str) -> None:
        """Publish ``term``, which ``view`` confirmed; ``mode`` names the way it was won, if it just was."""
        at, header = self._at, self._at.board.header
        was_leader, was_held = at.state is State.LEADER, bool(header.is_held)
        was_trusted = at.board.term().trusted_until_ns > 0
        is_promotion = at.state is State.PROMOTING
        if term.epoch != self._issued_epoch:
            self._issue(term)
        if view.hold:
            at.hold = ""  # Redis knows
        self.term = term
        header.is_held = int(bool(view.hold or at.hold))
        is_trusted = not header.is_held and at.now() >= at.disputed_until_ns
        at.publish(term if is_trusted else replace(term, trusted_until_ns=0))
        at.board.next_nonce = None
        at.move(ElectorEvent.GRANTED)
        if header.is_held and not was_held:
            at.report("fires_held", epoch=term.epoch, reason=view.hold or at.hold)
        if is_promotion:
            at.report("leader_promoted", epoch=term.epoch, generation=header.scheduler_generation)
        elif not was_leader:
            reason = view.code.name.lower()
            at.report("leader_acquired", epoch=term.epoch, reason=reason, mode=mode, gap_ms=view.gap_ms)
            if at.now() < at.disputed_until_ns:
                at.report("trust_deferred", epoch=term.epoch, seconds=(at.disputed_until_ns - at.now()) / SECOND_NS)
        if not was_leader or (is_trusted and not was_trusted):
            at.around.term_changed()

    def _issue(self, term: Term) -> None:
        """Write the data of a new term before the term, so that whoever sees the term sees them too."""
        at, header = self._at, self._at.board.header
        self._issued_epoch = term.epoch
        header.scheduler_generation = at.around.incarnation()
        header.acquired_ns = at.now()
        header.ineligible_until_ns = 0
        if at.loss is Loss.DATA:
            header.data_loss_epoch = term.epoch
        hold = at.hold
        at.recovered()
        at.hold = hold  # until Redis has it
        at.presence.show(term.epoch)

    def promotion(self) -> Call[LeaseView]:
        """Return the question for a later epoch of this term. The term is not trusted until it is answered.

        The nonce is on the board before it is sent: an agent that dies now is followed by one that asks the same.
        """
        at = self._at
        at.move(ElectorEvent.PROMOTE)
        nonce = at.board.next_nonce or at.new_nonce()
        at.board.next_nonce = nonce
        self.term = replace(self.term, trusted_until_ns=0)
        at.publish(self.term)
        return at.leases.promote(
            epoch=self.term.epoch,
            nonce=self.term.nonce,
            new_nonce=nonce,
            duration_ms=at.timing.duration_ms,
            is_rolled_back=at.loss is Loss.ROLLED_BACK,
        )

    def lapse(self) -> None:
        """Trust ended. The term stays on the board, untrusted: if nobody replaced it, a renewal reclaims it."""
        at = self._at
        at.move(ElectorEvent.TRUST_EXPIRED)
        at.board.header.is_leading = 0
        at.report("leader_lapsed", epoch=self.term.epoch)

    def drop(self) -> None:
        """Take the term off the board, and wake the scheduler."""
        self.term = NO_TERM
        self._at.publish(NO_TERM)
        self._at.board.header.is_held = 0
        self._at.presence.show(0)
        self._at.around.term_changed()
