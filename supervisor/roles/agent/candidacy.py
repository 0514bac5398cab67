"""The follower's half of the election: watch the holder, ask for the lease when it is free.

Guarantees
    The lease is asked for only when it was seen released, or its holder was silent for as
    long as the record allows by this replica's own clock. An error starts the wait anew.
    The nonce is on the board before it is sent, so whoever comes after a crash of the
    agent asks again with it, and no term is orphaned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.board import NO_TERM, Term
from supervisor.core.lease import MS, Event, Observation, Rank, State, stagger_ns
from supervisor.roles.agent.standing import UNANSWERED, Standing
from supervisor.roles.steps import Ask, Listen, Sleep, Steps
from supervisor.store.leases import CandidateInfo, LeaseCode, LeaseView, Mode

RANKS_PERIOD_NS = 60_000 * MS
FRESH_LEASES = 3  # candidates that campaigned within so many lease durations are alive


@dataclass(frozen=True, slots=True)
class Won:
    """The lease is ours."""

    view: LeaseView
    asked_at_ns: int | None  # None: an earlier, unanswered question won it; when is not known


class Candidacy:
    """What a follower knows about the lease, and what it does about it."""

    def __init__(self, standing: Standing) -> None:
        self._at = standing
        self._observation: Observation | None = None
        self._is_new = True  # has never seen the lease
        self._is_vacant = False
        self._holder = ""
        self._ranks: list[Rank] = []
        self._ranks_at_ns = 0

    def contend(self) -> Steps[Won | None]:
        """Do what comes next for a follower; return the lease if that won it."""
        if self._is_new:
            return (yield from self._campaign("cold"))
        if self._is_vacant:
            return (yield from self._campaign("free"))
        if self._observation is None or self._at.state is State.CAMPAIGNING:
            return (yield from self._look())
        return (yield from self._stand_by(self._observation))

    def observe(self, view: LeaseView) -> None:
        """Remember what was seen, from the moment it was seen."""
        self._is_new = False
        self._is_vacant = view.holder == ""
        self._observation = Observation.of(
            epoch=view.epoch,
            seq=view.seq,
            remaining_ms=view.remaining_ms,
            duration_ms=view.duration_ms or self._at.timing.duration_ms,
            now_ns=self._at.now(),
        )
        if view.holder and view.holder != self._holder:
            self._at.report("standby", holder=view.holder, epoch=view.epoch)
            self._ranks_at_ns = self._at.now()
        self._holder = view.holder

    def forget(self) -> None:
        """Let nothing seen so far count as silence of the holder."""
        self._observation, self._is_vacant, self._is_new = None, False, False

    def find_unanswered(self) -> Steps[Term]:
        """Return the term that an unanswered campaign may have won, untrusted."""
        try:
            view = yield Ask(self._at.leases.view(), self._at.timing.timeout_ns)
        except UNANSWERED:
            return NO_TERM
        return Term(view.epoch, view.nonce, 0) if self._is_ours(view) else NO_TERM

    def _stand_by(self, observation: Observation) -> Steps[Won | None]:
        """Wait for the holder to release, or to be silent for too long."""
        at = self._at
        if at.now() >= self._ranks_at_ns:
            yield from self._learn_ranks()
        try:
            heard = yield Listen(at.last_event, observation.dead_at_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("listen", error)
            return None
        if self._hears_release(heard):
            yield from self._let_better_ones_pass()
            return (yield from self._campaign("free"))
        if at.now() >= observation.dead_at_ns:
            return (yield from self._campaign("expired"))
        return None

    def _hears_release(self, heard: Sequence[tuple[str, dict[str, str]]]) -> bool:
        """Whether the newest change of holder among ``heard`` is a release."""
        newest = ""
        for event_id, fields in heard:
            self._at.last_event = event_id
            if fields["kind"] in {"acquired", "released"}:
                newest = fields["kind"]
        return newest == "released"

    def _let_better_ones_pass(self) -> Steps[None]:
        wait_ns = stagger_ns(_rank(self._at.me), self._ranks)
        if wait_ns:
            yield Sleep(self._at.now() + int(wait_ns * (0.9 + 0.2 * self._at.rng.random())))

    def _campaign(self, mode: Mode) -> Steps[Won | None]:
        at, observation = self._at, self._observation
        if at.around.is_stopping():
            return None
        nonce = at.board.next_nonce or at.new_nonce()
        at.board.next_nonce = nonce
        at.move(Event.CAMPAIGN)
        asked_at_ns = at.now()
        call = at.leases.campaign(
            replica=at.me.replica,
            nonce=nonce,
            duration_ms=at.timing.duration_ms,
            floor=at.floor,
            mode=mode,
            observed_epoch=observation.epoch if observation else 0,
            observed_seq=observation.seq if observation else 0,
            info=at.me,
        )
        try:
            view = yield Ask(call, at.timing.timeout_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("campaign", error)
            return None
        at.answered("campaign", view, asked_at_ns)
        if view.code is LeaseCode.GRANTED:
            return Won(view, asked_at_ns)
        if view.code is LeaseCode.SAME:
            return Won(view, None)
        at.move(Event.REFUSED)
        self.observe(view)
        return None

    def _look(self) -> Steps[Won | None]:
        """Read the lease without asking for it."""
        at = self._at
        try:
            view = yield Ask(at.leases.view(), at.timing.timeout_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("view", error)
            return None
        at.failures = 0
        at.saw(view)
        if at.state is State.CAMPAIGNING:
            if self._is_ours(view):
                return Won(view, None)
            at.move(Event.REFUSED)
        self.observe(view)
        return None

    def _start_afresh(self, operation: str, error: Exception) -> Steps[None]:
        """Pause after an error. Redis may have been away for all, so the silence before it proves nothing."""
        self.forget()
        yield Sleep(self._at.now() + self._at.unanswered(operation, error))

    def _learn_ranks(self) -> Steps[None]:
        """Learn who else would follow a release, long before it comes."""
        at = self._at
        self._ranks_at_ns = at.now() + RANKS_PERIOD_NS
        try:
            candidates: list[CandidateInfo] = yield Ask(at.leases.candidates(), at.timing.timeout_ns)
        except UNANSWERED:
            return  # only the order of campaigns depends on it
        newest_ms = max((candidate.seen_ms for candidate in candidates), default=0)
        at.report(
            "candidates", count=sum(c.seen_ms >= newest_ms - FRESH_LEASES * at.timing.duration_ms for c in candidates)
        )
        oldest_ms = newest_ms - FRESH_LEASES * at.timing.duration_ms
        self._ranks = [
            _rank(candidate)
            for candidate in candidates
            if candidate.seen_ms >= oldest_ms and candidate.replica not in {at.me.replica, self._holder}
        ]

    def _is_ours(self, view: LeaseView) -> bool:
        return view.nonce != "" and view.nonce == self._at.board.next_nonce


def _rank(candidate: CandidateInfo) -> Rank:
    return Rank(candidate.draining, candidate.priority, candidate.started_ms, candidate.replica)
