"""The elector: gets the lease for this replica, keeps it, gives it back.

Guarantees
    The term on the board is trusted only while Redis cannot have given it to another.
    It ends in one way only, when it is asked to stop. Losing the lease makes a follower,
    and a follower always contends again.
    A scheduler that makes no progress loses the lease by the hand of its own replica.

Does not guarantee
    That nothing is sent after trust ended: a paused scheduler may still send. The fire
    script refuses it.

A generator of steps (supervisor.roles.steps): no thread, socket or clock of its own.
"""

from __future__ import annotations

from supervisor.core.board import NO_TERM, Term
from supervisor.core.lease import MS, Event, State, granted
from supervisor.roles.agent.candidacy import Candidacy, Won
from supervisor.roles.agent.standing import UNANSWERED, Standing
from supervisor.roles.steps import Ask, Sleep, Steps
from supervisor.store.leases import LeaseCode, LeaseView

SCHEDULER_EXIT_NS = 50 * MS  # how long a release waits for the scheduler's last batch
RELEASE_TRIES_MAX = 3
COOL_DOWN_FIRST_NS = 10_000 * MS
COOL_DOWN_LAST_NS = 300_000 * MS
LOOK_AGAIN_NS = 1000 * MS


class Elector:
    """One replica's part in the election."""

    def __init__(self, standing: Standing) -> None:
        self._at = standing
        self._candidacy = Candidacy(standing)
        self._term = NO_TERM
        self._renew_at_ns = 0
        self._cool_downs = 0
        self._cool_until_ns = 0

    def run(self) -> Steps[None]:
        """Contend until asked to stop; then give back what is held."""
        at = self._at
        self._resume()
        while not at.around.is_stopping():
            if at.state in {State.LEADER, State.LAPSED}:
                yield from self._hold()
            else:
                yield from self._follow()
        if at.state is not State.FOLLOWER:
            yield from self._resign("shutdown")
        yield from self._withdraw()
        at.move(Event.STOP)

    def _resume(self) -> None:
        """Take over the term of an agent that died: it is renewed before anything else."""
        term = self._at.board.term()
        if term.epoch > 0:
            self._term, self._at.floor = term, term.epoch
            self._candidacy.forget()
            self._at.move(Event.RESUMED)
            self._at.report("leader_resumed", epoch=term.epoch)

    def _follow(self) -> Steps[None]:
        at = self._at
        if at.now() < self._cool_until_ns or not at.around.can_schedule():
            self._candidacy.forget()
            yield Sleep(max(self._cool_until_ns, at.now() + LOOK_AGAIN_NS))
            return
        won = yield from self._candidacy.contend()
        if won is None:
            return
        if won.asked_at_ns is None:
            self._adopt(won)
        else:
            self._confirm(won.view, won.asked_at_ns)

    def _adopt(self, won: Won) -> None:
        """Hold a term of unknown age: renew before trusting it."""
        at = self._at
        self._term = Term(won.view.epoch, won.view.nonce, 0)
        at.publish(self._term)
        at.board.next_nonce = None
        self._renew_at_ns = at.now()
        at.move(Event.ADOPTED)

    def _hold(self) -> Steps[None]:
        """Wait until the next renewal is due or trust ends, then act on whichever came."""
        at = self._at
        until_ns = self._renew_at_ns
        if at.state is State.LEADER:
            until_ns = min(until_ns, self._term.trusted_until_ns)
        if at.now() < until_ns:
            yield Sleep(min(until_ns, at.now() + LOOK_AGAIN_NS))  # the scheduler is looked at in between
        if at.around.is_stopping():
            return
        if not at.around.can_schedule():
            yield from self._resign("no_progress")
            self._cool_down()
            return
        if at.state is State.LEADER and not self._term.is_trusted(at.now()):
            self._lapse()
        if at.now() >= self._renew_at_ns:
            yield from self._renew()

    def _renew(self) -> Steps[None]:
        at, term = self._at, self._term
        asked_at_ns = at.now()
        timeout_ns = at.timing.timeout_ns
        if at.state is State.LEADER:
            timeout_ns = min(timeout_ns, max(MS, term.trusted_until_ns - asked_at_ns))
        call = at.leases.renew(epoch=term.epoch, nonce=term.nonce, duration_ms=at.timing.duration_ms)
        try:
            view = yield Ask(call, timeout_ns)
        except UNANSWERED as error:
            self._renew_at_ns = at.now() + at.unanswered("renew", error)
            return
        at.answered("renew", view, asked_at_ns)
        if view.code in {LeaseCode.RENEWED, LeaseCode.RECLAIMED}:
            self._confirm(view, asked_at_ns)
        else:
            self._lose(view)

    def _confirm(self, view: LeaseView, asked_at_ns: int) -> None:
        """Publish the term that a reply confirmed; trust counts from the question."""
        at, was_leader = self._at, self._at.state is State.LEADER
        self._term = granted(
            epoch=view.epoch,
            nonce=view.nonce,
            asked_at_ns=asked_at_ns,
            duration_ns=at.timing.duration_ns,
            margin_ns=at.timing.margin_ns,
        )
        self._renew_at_ns = asked_at_ns + int(at.timing.period_ns * (0.9 + 0.2 * at.rng.random()))
        at.publish(self._term)
        at.board.next_nonce = None
        at.move(Event.GRANTED)
        if not was_leader:
            at.report("leader_acquired", epoch=view.epoch, reason=view.code.name.lower())
            at.around.term_changed()

    def _lapse(self) -> None:
        # The term stays on the board, untrusted: if nobody replaced it, a renewal reclaims it.
        at = self._at
        at.move(Event.TRUST_EXPIRED)
        at.board.header.is_leading = 0
        at.report("leader_lapsed", epoch=self._term.epoch)

    def _lose(self, view: LeaseView) -> None:
        at = self._at
        at.report("leader_lost", epoch=self._term.epoch, reason=view.code.name.lower(), holder=view.holder)
        self._drop_term()
        at.move(Event.REFUSED)
        self._candidacy.observe(view)

    def _resign(self, reason: str) -> Steps[None]:
        """Give the term back, after the scheduler's last batch if that comes soon enough."""
        at, term = self._at, self._term
        is_unanswered = at.state is State.CAMPAIGNING
        at.move(Event.RESIGN)
        if is_unanswered:
            term = yield from self._candidacy.find_unanswered()
        elif reason == "shutdown":
            yield from self._await_scheduler()
        self._drop_term()
        if term.epoch > 0:
            yield from self._release(term, reason)
        self._candidacy.forget()
        at.move(Event.RELEASED)

    def _await_scheduler(self) -> Steps[None]:
        at = self._at
        limit_ns = at.now() + SCHEDULER_EXIT_NS
        while not at.around.is_scheduler_gone() and at.now() < limit_ns:
            yield Sleep(min(limit_ns, at.now() + 2 * MS))

    def _release(self, term: Term, reason: str) -> Steps[None]:
        """Tell Redis, so that a standby leads at once. Idempotent, hence tried again."""
        at = self._at
        call = at.leases.release(epoch=term.epoch, nonce=term.nonce, reason=reason)
        for _ in range(RELEASE_TRIES_MAX):
            asked_at_ns = at.now()
            try:
                view = yield Ask(call, at.timing.timeout_ns)
            except UNANSWERED as error:
                at.unanswered("release", error)
                continue
            at.answered("release", view, asked_at_ns)
            at.report("leader_released", epoch=term.epoch, reason=reason, answer=view.code.name.lower())
            return
        at.report("release_unanswered", epoch=term.epoch, reason=reason)

    def _cool_down(self) -> None:
        """Let others lead: the scheduler of this replica does not schedule."""
        at = self._at
        pause_ns = min(COOL_DOWN_LAST_NS, COOL_DOWN_FIRST_NS << min(self._cool_downs, 10))
        self._cool_downs += 1
        self._cool_until_ns = at.now() + pause_ns
        at.report("ineligible", seconds=pause_ns / 1e9)

    def _drop_term(self) -> None:
        self._term = NO_TERM
        self._at.publish(NO_TERM)
        self._at.around.term_changed()

    def _withdraw(self) -> Steps[None]:
        try:
            yield Ask(self._at.leases.withdraw(self._at.me.replica), self._at.timing.timeout_ns)
        except UNANSWERED:
            return  # the age of the entry tells others that we are gone
