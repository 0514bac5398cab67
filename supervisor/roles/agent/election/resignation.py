"""Giving the lease back, so that another replica leads within milliseconds.

Guarantees
    The scheduler is notified first, and has a moment to end its batch; then Redis is. A
    question whose answer is not known is given back too, if it won.

Does not guarantee
    That the batch got through: one that comes after the release is refused, and fired by
    the next leader.
"""

from __future__ import annotations

from supervisor.core.election.lease import ElectorEvent, State
from supervisor.core.election.term import Term
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext
from supervisor.roles.agent.election.follower import Candidacy
from supervisor.roles.agent.election.held_term import Tenancy
from supervisor.roles.effects import RunScript, Sleep, Steps
from supervisor.store.election.leases import LeaseCode

SCHEDULER_EXIT_NS = 50 * MILLISECOND_NS  # how long a release waits for the scheduler's last batch when the tree stops
SCHEDULER_IDLE_NS = 20 * MILLISECOND_NS  # and when it goes on without the term
IDLE_TURNS = 2  # the first may have begun before the term left the board
LOOK_NS = 2 * MILLISECOND_NS
RELEASE_TRIES_MAX = 3
WHILE_SCHEDULING = {"requested", "clock_skew"}  # the scheduler works; it just goes on without the term


class Resignation:
    """The way out of every state that may hold a term."""

    def __init__(self, standing: ElectionContext, tenancy: Tenancy, candidacy: Candidacy) -> None:
        self._at = standing
        self._tenancy = tenancy
        self._candidacy = candidacy

    def resign(self, reason: str, *, prefer: str = "") -> Steps[None]:
        """Give the term back; ``prefer`` should lead next, empty: any."""
        at, term = self._at, self._tenancy.term
        is_known = at.state not in {State.CAMPAIGNING, State.PROMOTING}
        at.move(ElectorEvent.RESIGN)
        if is_known and reason == "shutdown":
            yield from self._await_exit()
        self._tenancy.drop()
        if is_known and reason in WHILE_SCHEDULING:
            yield from self._await_idleness()
        if not is_known:
            term = yield from self._candidacy.find_unanswered(term)
        if term.epoch > 0:
            yield from self._release(term, reason, prefer)
        self._candidacy.forget()
        at.move(ElectorEvent.RELEASED)

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
            call = at.leases.release(epoch=term.epoch, nonce=term.nonce, reason=reason, prefer=prefer)
            asked_at_ns = at.now()
            try:
                view = yield RunScript(call, at.timing.timeout_ns)
            except UNANSWERED as error:
                at.unanswered("release", error)
                continue
            at.answered("release", view, asked_at_ns)
            if view.code is LeaseCode.LOST and view.nonce and view.nonce == at.board.next_nonce:
                term = Term(view.epoch, view.nonce, 0)  # a late question was granted after we looked
                continue
            at.report("leader_released", epoch=term.epoch, reason=reason, answer=view.code.name.lower())
            return
        at.report("release_unanswered", epoch=term.epoch, reason=reason)
