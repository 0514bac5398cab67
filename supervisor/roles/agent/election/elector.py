"""The elector: gets the lease for this replica, keeps it, gives it back.

Guarantees
    The term on the board is trusted only while Redis cannot have given it to another.
    It ends in one way only, when it is asked to stop. Losing the lease makes a follower,
    and a follower always contends again.
    A scheduler that died is followed by one with a later term, so that nothing the dead
    one sent late is accepted. One that makes no progress gets no renewal: its replica
    ends it or loses the lease. One that keeps dying costs its replica the lease at once.

Does not guarantee
    That nothing is sent after trust ended: a paused scheduler may still send. The fire
    script refuses it.

A generator of steps (supervisor.core.effects): no thread, socket or clock of its own.
"""

from __future__ import annotations

from supervisor.core.effects import RunScript, Sleep, Steps
from supervisor.core.election.lease import ElectorEvent, State, Term, granted, is_named
from supervisor.core.signing import without_mark
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.election.candidates import CandidateList, SkewPolicy
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext
from supervisor.roles.agent.election.follower import ElectionFollower, Won
from supervisor.roles.agent.election.held_term import HeldTerm, Resignation
from supervisor.roles.agent.election.memory import ElectionMemory
from supervisor.store.election.leases import RENEWALS, LeaseCode, LeaseView
from supervisor.store.wire.codec import cut

COOL_DOWN_FIRST_NS = 10_000 * MILLISECOND_NS
COOL_DOWN_LAST_NS = 300_000 * MILLISECOND_NS
AWAY_NS = 60_000 * MILLISECOND_NS  # a quarter more than the next leader may wait in vain for answers to its scheduler
STABLE_NS = 60_000 * MILLISECOND_NS  # a term that lasted so long proves that this replica can lead
LOOK_AGAIN_NS = 1000 * MILLISECOND_NS
WITHHELD_LOOK_NS = 200 * MILLISECOND_NS  # how often a leader that does not renew looks at its scheduler
HEIR_NS = 5 * MILLISECOND_NS  # from a release to the write that takes a stopping replica off the list
CRASHES_MAX = 3  # of the scheduler within a minute: then another replica leads


class Elector:
    """One replica's part in the election."""

    look_ns = LOOK_AGAIN_NS
    """How often a holder looks at its scheduler between two renewals."""

    def __init__(self, context: ElectionContext) -> None:
        self._at = context
        self.memory = self._memory = ElectionMemory(context)
        self._candidates = CandidateList(context, self._memory)
        self._follower = ElectionFollower(context, self._memory, self._candidates)
        self._held = HeldTerm(context, self._memory)
        self._resignation = Resignation(context, self._memory, self._held, self._follower)
        self._skew_policy = SkewPolicy(context, self._memory, self._candidates)
        self._renew_at_ns = 0
        self._is_withheld = False  # renewals, because the scheduler stands still
        self._cool_downs = 0
        self._cool_until_ns = 0
        self._glance: tuple[int, int, str] | None = None  # at the lease, while the others may have it
        self._glance_due_ns = 0
        self._refused = (0, "")  # term and words of the last request to hand over that was no operator's
        self._incarnation = 0  # of the scheduler, when a follower last looked

    def bring(self, schedules_digest: str) -> None:
        """Announce another set of schedules from the next campaign or renewal on."""
        self._candidates.bring(schedules_digest)

    def run(self) -> Steps[None]:
        """Contend until asked to stop; then give back the lease, if held."""
        at = self._at
        self._resume()
        while not at.around.is_stopping():
            if self._memory.state in {State.LEADER, State.PROMOTING, State.LAPSED}:
                yield from self._hold()
            else:
                yield from self._follow()
        if self._memory.state is not State.FOLLOWER:
            yield from self._resignation.resign("shutdown")
            yield from self._let_heir_pass()
        yield from self._withdraw()
        self._memory.move(ElectorEvent.STOP)

    def _resume(self) -> None:
        """Take over the term of an agent that died: it is renewed, or its promotion repeated, before anything else."""
        at, term = self._at, self._at.board.term()
        self._leave_it_until(at.board.header.ineligible_until_ns)
        self._memory.resumed()
        if term.epoch > 0:
            self._held.resume(term)
            self._follower.forget()
            self._memory.move(ElectorEvent.RESUMED)
            at.report("leader_resumed", epoch=term.epoch)

    # As a follower.

    def _follow(self) -> Steps[None]:
        at = self._at
        self._judge_scheduler()
        if not at.me.participates:
            yield from self._follower.register()
            return
        if not at.around.can_schedule():
            self._follower.forget()
            yield Sleep(at.now() + LOOK_AGAIN_NS)
            return
        if at.now() < self._cool_until_ns:
            yield from self._stand_back()
            return
        won = yield from self._follower.contend()
        if won is not None:
            self._adopt(won) if won.asked_at_ns is None else self._confirm(won.view, won.asked_at_ns, mode=won.mode)

    def _stand_back(self) -> Steps[None]:
        """Leave the lease to the others for a while; but not if none of them takes or renews it for a whole duration.

        Where the scheduler of every replica keeps dying, one that tries is better than none. A lease that lies free
        is wanted by nobody sooner: a standby takes it within milliseconds.
        """
        at = self._at
        self._follower.forget()
        if at.now() < self._glance_due_ns:
            if (yield from self._follower.is_called(min(self._cool_until_ns, self._glance_due_ns))):
                self._stand_again("named_heir")
            return
        self._glance_due_ns = at.now() + at.timing.duration_ns
        former = self._glance
        self._glance = yield from self._follower.glance()
        if self._glance is not None and self._glance[2] == "":  # it is free
            self._glance_due_ns = at.now() + LOOK_AGAIN_NS
        if former is not None and former == self._glance:
            self._stand_again("nobody_leads")

    def _stand_again(self, reason: str) -> None:
        self._cool_until_ns = self._at.board.header.ineligible_until_ns = 0
        self._at.report("eligible", reason=reason)

    def _judge_scheduler(self) -> None:
        """Step back for a while when the scheduler of this replica keeps dying."""
        incarnation = self._at.around.incarnation()
        has_died, self._incarnation = 0 < self._incarnation < incarnation, incarnation
        is_cooling = self._at.now() < self._cool_until_ns
        if has_died and not is_cooling and self._at.around.crashes() >= CRASHES_MAX:
            self._cool_down("scheduler_crashes")

    def _adopt(self, won: Won) -> None:
        """Hold a term of unknown age: renew before trusting it."""
        self._held.adopt(Term(won.view.epoch, won.view.nonce, 0))
        self._renew_at_ns = self._at.now()
        self._memory.move(ElectorEvent.ADOPTED)

    # As a holder.

    def _hold(self) -> Steps[None]:
        """Wait until the next renewal is due or trust ends, then act on whichever came."""
        at = self._at
        until_ns = self._renew_at_ns
        if self._memory.state is State.LEADER:
            until_ns = min(until_ns, self._held.term.trusted_until_ns)
        if at.now() < until_ns and (self._memory.state is State.PROMOTING or not self._held.is_outlived):
            yield Sleep(min(until_ns, at.now() + self.look_ns))  # the scheduler is looked at in between
        if at.around.is_stopping():
            return
        if self._held.is_outlived or at.board.next_nonce is not None:
            yield from self._follow_up_death()
        elif not at.around.can_schedule() and at.around.is_scheduler_gone():
            yield from self._resign("no_progress")
        else:
            yield from self._keep()

    def _keep(self) -> Steps[None]:
        """Renew, if that is due and the scheduler makes progress."""
        at = self._at
        if self._memory.state is State.LEADER and not self._held.term.is_trusted(at.now()):
            self._held.lapse()
        if at.now() < self._renew_at_ns:
            return
        if not at.around.can_schedule():
            # It may be stopped in the middle of a write, so nothing is given back before the parent has reaped it.
            if not self._is_withheld:
                at.report("renewal_withheld", epoch=self._held.term.epoch)
            self._is_withheld = True
            self._renew_at_ns = at.now() + WITHHELD_LOOK_NS
            return
        self._is_withheld = False
        yield from self._renew()
        if self._memory.state is State.LEADER and self._memory.failures == 0:
            yield from self._look_around()

    def _look_around(self) -> Steps[None]:
        """Learn who else there is; give way if this machine's clock is wrong, or Redis refuses its scheduler."""
        at = self._at
        heir = yield from self._skew_policy.heir(self._held.term.epoch)
        if heir:
            at.report("clock_skew_resigned", epoch=self._held.term.epoch, skew_s=self._memory.skew.ms / 1000, to=heir)
            yield from self._give_way("clock_skew", heir)
        elif at.board.header.vain_epoch == self._held.term.epoch and not self._candidates.is_alone():
            at.report("refusals_resigned", epoch=self._held.term.epoch)
            yield from self._give_way("refusals", "", away_ns=max(AWAY_NS, at.timing.duration_ns + AWAY_NS // 4))
        elif self._candidates.is_due():
            yield from self._candidates.learn(self._memory.roster)

    def _follow_up_death(self) -> Steps[None]:
        """Promote the term for the scheduler to come; or let another replica lead, when this one keeps dying."""
        at = self._at
        if at.around.crashes() >= CRASHES_MAX and self._held.is_outlived:
            yield from self._resign("scheduler_crashes")
        elif self._memory.state is not State.PROMOTING or at.now() >= self._renew_at_ns:
            yield from self._promote()

    def _promote(self) -> Steps[None]:
        at = self._at
        call = self._held.promotion()
        if pause_ns := (yield from self._held.probe()):
            self._renew_at_ns = at.now() + pause_ns
            return
        asked_at_ns = at.now()
        try:
            view = yield RunScript(call, at.timing.timeout_ns)
        except UNANSWERED as error:
            self._renew_at_ns = at.now() + self._memory.unanswered("promote", error)
            return
        self._memory.answered("promote", view, asked_at_ns)
        if view.code in {LeaseCode.GRANTED, LeaseCode.SAME}:
            self._confirm(view, asked_at_ns)
        else:
            self._lose(view)

    def _renew(self) -> Steps[None]:
        at, term = self._at, self._held.term
        if pause_ns := (yield from self._held.probe()):
            self._renew_at_ns = at.now() + pause_ns
            return
        asked_at_ns = at.now()
        timeout_ns = at.timing.timeout_ns
        if self._memory.state is State.LEADER:
            timeout_ns = min(timeout_ns, max(MILLISECOND_NS, term.trusted_until_ns - asked_at_ns))
        is_present = at.presence.is_shown(term.epoch)
        call = at.leases.renew(
            term,
            duration_ms=at.timing.duration_ms,
            info=self._candidates.described(),
            hold=self._memory.hold,
            is_present=is_present,
        )
        try:
            view = yield RunScript(call, timeout_ns)
        except UNANSWERED as error:
            self._renew_at_ns = at.now() + self._memory.unanswered("renew", error)
            return
        self._memory.answered("renew", view, asked_at_ns)
        if view.code not in RENEWALS:
            self._lose(view)
            return
        self._confirm(view, asked_at_ns)
        if self._memory.loss is not None and not self._memory.hold:
            # Redis went back within this very term. What fires from now on is of a later one.
            yield from self._promote()
            return
        if is_present and view.presence == 0:
            at.presence.refresh()
            at.report("presence_hidden", epoch=term.epoch)
        if view.is_resign_requested and not is_named(at.me.replica, view.resign_to) and self._may_ask(view):
            at.report("resign_requested", epoch=view.epoch, to=view.resign_to, by=without_mark(view.resign_by))
            yield from self._obey(view.resign_to)

    def _may_ask(self, view: LeaseView) -> bool:
        """Return whether the requester of a hand-over is an operator; a refusal is logged once."""
        at = self._at
        fault = at.signer and view.fault_of_resign(at.signer, at.clock.wall_ms())
        if fault and self._refused != (view.epoch, view.resign_by):
            self._refused = (view.epoch, view.resign_by)
            at.report("resign_refused", epoch=view.epoch, to=view.resign_to, by=cut(view.resign_by), reason=fault)
        return not fault

    def _confirm(self, view: LeaseView, asked_at_ns: int, *, mode: str = "") -> None:
        """Publish the term that a reply confirmed; trust counts from the question."""
        at = self._at
        term = granted(
            epoch=view.epoch,
            nonce=view.nonce,
            asked_at_ns=asked_at_ns,
            duration_ns=at.timing.duration_ns,
            margin_ns=at.timing.margin_ns,
        )
        self._renew_at_ns = asked_at_ns + int(at.timing.period_ns * (0.9 + 0.2 * at.rng.random()))
        if at.now() - at.board.header.acquired_ns > STABLE_NS:
            self._cool_downs = 0
        self._held.confirm(term, view, mode=mode)
        if self._memory.hold:
            self._renew_at_ns = at.now()  # found with this very answer: Redis must be told
        elif at.now() < self._memory.disputed_until_ns:
            self._renew_at_ns = min(
                self._renew_at_ns, self._memory.disputed_until_ns
            )  # its answer makes the term a trusted one
        self._candidates.noticed(view.roster)

    def _lose(self, view: LeaseView) -> None:
        at = self._at
        at.report("leader_lost", epoch=self._held.term.epoch, reason=view.code.name.lower(), holder=view.holder)
        at.board.next_nonce = None  # a promotion that was refused
        self._incarnation = at.around.incarnation()
        self._held.drop()
        self._memory.move(ElectorEvent.REFUSED)
        self._follower.observe(view)

    def _obey(self, heir: str) -> Steps[None]:
        """Hand over because a person asked; then let others lead for a lease duration, if there are any."""
        yield from self._candidates.learn(self._memory.roster)
        yield from self._give_way("requested", heir)

    def _give_way(self, reason: str, heir: str, *, away_ns: int = 0) -> Steps[None]:
        is_alone = self._candidates.is_alone()
        yield from self._resignation.resign(reason, prefer=heir)
        if not is_alone:
            self._leave_it_until(self._at.now() + max(away_ns, self._at.timing.duration_ns))

    def _resign(self, reason: str) -> Steps[None]:
        """Hand over because the scheduler of this replica does not work, which others need not suffer from."""
        yield from self._resignation.resign(reason)
        self._incarnation = self._at.around.incarnation()  # the death that led here is judged
        self._cool_down(reason)

    def _leave_it_until(self, until_ns: int) -> None:
        self._cool_until_ns = until_ns
        self._glance, self._glance_due_ns = None, self._at.now() + self._at.timing.duration_ns

    def _cool_down(self, reason: str) -> None:
        """Let others lead: the scheduler of this replica does not schedule."""
        at = self._at
        pause_ns = min(COOL_DOWN_LAST_NS, COOL_DOWN_FIRST_NS << min(self._cool_downs, 10))
        self._cool_downs += 1
        at.board.header.ineligible_until_ns = at.now() + pause_ns
        self._leave_it_until(at.now() + pause_ns)
        self._glance_due_ns = at.now() + LOOK_AGAIN_NS
        at.report("ineligible", reason=reason, seconds=pause_ns / SECOND_NS)

    def _let_heir_pass(self) -> Steps[None]:
        """Leave Redis to the campaigns that the release began: a durable server syncs each write before the next."""
        until_ns = self._at.now() + HEIR_NS
        while self._at.now() < until_ns:
            yield Sleep(until_ns)

    def _withdraw(self) -> Steps[None]:
        try:
            yield RunScript(self._at.leases.withdraw(self._at.me.replica), self._at.timing.timeout_ns)
        except UNANSWERED:
            return  # the age of the entry tells others that we are gone
