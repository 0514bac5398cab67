"""The follower's half of the election: watch the holder, ask for the lease when it is free.

Guarantees
    The lease is asked for only when it was seen released, or its holder was silent for as
    long as the record allows by this replica's own clock. An error starts the wait anew.
    Where Redis lost data, the highest term that was ever seen is waited out first.
    The nonce is on the board before it is sent, so whoever comes after a crash of the
    agent asks again with it, and no term is orphaned.

Does not guarantee
    That a holder which seems gone by its presence is gone. Such a hint costs a hand-over
    at worst: the script looks again, and writes of the old holder are fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from supervisor.core.effects import Call, Listen, RunScript, Sleep, Steps
from supervisor.core.election.lease import ElectorEvent, Observation, State, Term, is_named
from supervisor.core.election.presence import CONFIRM_NS, PresenceWatch, Sighting
from supervisor.core.errors import StoreRefusedError
from supervisor.roles.agent.election.candidates import CandidateList
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext
from supervisor.roles.agent.election.memory import ElectionMemory
from supervisor.store.election.leases import LeaseCode, LeaseView, Mode
from supervisor.store.wire.codec import foreign_number


@dataclass(frozen=True, slots=True)
class Won:
    """The lease is ours."""

    view: LeaseView
    asked_at_ns: int | None  # None: an earlier, unanswered question won it; when is not known
    mode: Mode | Literal[""] = ""


class ElectionFollower:
    """Follower: observes the lease and campaigns for it."""

    def __init__(self, context: ElectionContext, memory: ElectionMemory, candidates: CandidateList) -> None:
        self._at = context
        self._memory = memory
        self._candidates = candidates
        self._observation: Observation | None = None
        self._at_silence: Mode = "expired"  # what to ask as when nothing changed until the observation ends
        self._is_new = True  # has never seen the lease
        self._is_vacant = False
        self._holder = ""
        self._presence = PresenceWatch(context.timing.duration_ns)
        self._presence_due_ns = 0
        self._register_due_ns = 0

    def contend(self) -> Steps[Won | None]:
        """Take the next step of a follower; return the lease if that won it."""
        at = self._at
        if at.now() < self._memory.wait_until_ns and self._memory.state is State.FOLLOWER:
            return (yield from self._wait_out())
        if self._is_new and self._memory.lease.floor == 0:  # a predecessor of this agent may have watched a term
            return (yield from self._campaign("cold"))
        if self._is_vacant:
            return (yield from self._campaign("free"))
        if self._observation is None or self._memory.state is State.CAMPAIGNING:
            return (yield from self._look())
        return (yield from self._stand_by(self._observation))

    def register(self) -> Steps[None]:
        """Be listed without asking for the lease, about once in a lease duration."""
        at = self._at
        if at.now() < self._register_due_ns:
            yield Sleep(self._register_due_ns)
            return
        asked_at_ns = at.now()
        try:
            view = yield RunScript(self._call("register", at.new_nonce()), at.timing.timeout_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("register", error)
            return
        self._memory.answered("register", view, asked_at_ns)
        self.observe(view)
        if self._candidates.is_due():
            yield from self._candidates.learn(view.roster)
        self._register_due_ns = at.now() + int(at.timing.duration_ns * (0.9 + 0.2 * at.rng.random()))

    def observe(self, view: LeaseView) -> None:
        """Remember an observation from its own moment."""
        at, was_new = self._at, self._is_new
        self._is_new = False
        self._is_vacant = view.holder == ""
        # A replica that starts on a term that is over by Redis' clock waits only until a living leader had renewed,
        # which one with a longer lease does less often.
        is_over = was_new and view.remaining_ms <= 0 and view.duration_ms <= at.timing.duration_ms
        self._at_silence = "cold" if is_over else "expired"
        self._observation = Observation.of(
            epoch=view.epoch,
            seq=view.seq,
            remaining_ms=at.timing.renewal_ms if is_over else self._memory.told_ms(view.remaining_ms),
            duration_ms=view.duration_ms or at.timing.duration_ms,
            now_ns=at.now(),
        )
        self._candidates.noticed(view.roster)
        if view.holder == at.me.replica:
            self._take_back(view)
        if view.holder and view.holder != self._holder:
            at.report("standby", holder=view.holder, epoch=view.epoch)
        self._holder = view.holder

    def _take_back(self, view: LeaseView) -> None:
        """Ask at once for a term that is ours by the record, though this replica does not hold it.

        A late copy of an old question was granted: its nonce asks again, and adopts it. Or the record is of an
        earlier term, because Redis went back in time: only a later epoch will do then. A nonce that this replica never
        asked with is another's, whatever name stands beside it: who has it renews, or the term ends by silence.
        """
        if view.nonce and view.epoch >= self._memory.lease.floor and not self._memory.has_asked(view.nonce):
            return
        self._is_vacant = True
        self._at.board.next_nonce = view.nonce if view.epoch >= self._memory.lease.floor else None

    def glance(self) -> Steps[tuple[int, int, str] | None]:
        """Read the lease without asking for it; return its epoch, sequence number and holder, None if unanswered."""
        at = self._at
        try:
            view = yield RunScript(at.leases.view(), at.timing.timeout_ns)
        except UNANSWERED as error:
            self._memory.unanswered("view", error)
            return None
        self._memory.viewed(view)
        return view.epoch, view.seq, view.holder

    def is_called(self, until_ns: int) -> Steps[bool]:
        """Wait until ``until_ns``, or until the holder releases the lease to this very replica; whether it did."""
        at = self._at
        try:
            heard = yield from self._listen(until_ns)
        except UNANSWERED as error:
            yield Sleep(min(until_ns, at.now() + self._memory.unanswered("listen", error)))
            return False
        released = self._release_in(heard)
        self._is_vacant = released is not None and is_named(at.me.replica, released.get("prefer", ""))
        return self._is_vacant

    def forget(self) -> None:
        """Let nothing seen so far count as silence of the holder."""
        self._observation, self._is_vacant, self._is_new = None, False, False
        self._presence.interrupted(self._at.now())

    def find_unanswered(self, known: Term) -> Steps[Term]:
        """Return the term that an unanswered question may have won, untrusted; ``known`` if that one still holds."""
        try:
            view = yield RunScript(self._at.leases.view(), self._at.timing.timeout_ns)
        except UNANSWERED:
            return known
        return Term(view.epoch, view.nonce, 0) if self._is_ours(view) else known

    def _stand_by(self, observation: Observation) -> Steps[Won | None]:
        """Wait for the holder to release, to be silent for too long, or to be gone visibly."""
        at = self._at
        if self._candidates.is_due():
            yield from self._candidates.learn(self._memory.roster)
        until_ns = observation.dead_at_ns
        if at.timing.presence_poll_ns:
            until_ns = min(until_ns, max(self._presence_due_ns, at.now()))
        try:
            heard = yield from self._listen(until_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("listen", error)
            return None
        released = self._release_in(heard)
        if released is not None:
            yield from self._let_better_ones_pass(released)
            return (yield from self._campaign("free"))
        if at.now() >= observation.dead_at_ns:
            return (yield from self._campaign(self._at_silence))
        if not heard and at.timing.presence_poll_ns:
            return (yield from self._look_for_holder())
        return None

    def _listen(self, until_ns: int) -> Steps[Sequence[tuple[str, dict[str, str]]]]:
        """Wait for events of the lease. Where their key is none of ours nothing is heard: the record alone tells."""
        try:
            heard: Sequence[tuple[str, dict[str, str]]] = yield Listen(self._memory.last_event, until_ns)
        except StoreRefusedError as error:
            if error.concerns_client:
                raise
            yield Sleep(until_ns)
            return ()
        return heard

    def _release_in(self, heard: Sequence[tuple[str, dict[str, str]]]) -> dict[str, str] | None:
        """Return the release among ``heard``, unless the lease was granted again since."""
        found = None
        for event_id, fields in heard:
            self._memory.heard(event_id, fields)
            if fields.get("kind") in {"released", "acquired"}:
                found = fields if fields["kind"] == "released" else None
        return found

    def _let_better_ones_pass(self, released: dict[str, str]) -> Steps[None]:
        """Wait for those who go first. Who they are is asked only if that has changed since it was read."""
        number = foreign_number(released.get("roster", ""))
        self._candidates.noticed(-1 if number is None else number)
        if self._candidates.is_due() and number is not None:
            yield from self._candidates.learn(number)
        wait_ns = self._candidates.wait_ns(holder=released.get("who", ""), prefer=released.get("prefer", ""))
        until_ns = self._at.now() + int(wait_ns * (0.9 + 0.2 * self._at.rng.random()))
        # A wake-up that came while this replica listened ends the first sleep at once: it must not jump the queue.
        while self._at.now() < until_ns and not self._at.around.is_stopping():
            yield Sleep(until_ns)

    def _look_for_holder(self) -> Steps[Won | None]:
        """Ask whether the holder's connection is there; campaign when it was gone twice."""
        at = self._at
        self._presence_due_ns = at.now() + int(at.timing.presence_poll_ns * (1.1 + 0.1 * at.rng.random()))
        view = yield from self._read(with_presence=True)
        if view is None:
            return None
        is_watched = self._observation is not None and view.epoch == self._observation.epoch
        if not view.holder or not is_watched:
            self.observe(view)
            return None
        sighting = self._presence.look(epoch=view.epoch, count=view.presence, now_ns=at.now())
        if sighting is Sighting.ABSENT_ONCE:
            self._presence_due_ns = at.now() + CONFIRM_NS
        if sighting is not Sighting.ABSENT:
            return None
        self._presence.interrupted(at.now())  # whatever the answer, it is not asked again at once
        self.observe(view)
        won = yield from self._campaign("presence")
        at.report("leader_suspected", epoch=view.epoch, holder=view.holder, confirmed=won is not None)
        return won

    def _campaign(self, mode: Mode) -> Steps[Won | None]:
        at = self._at
        if at.around.is_stopping():
            return None
        nonce = at.board.next_nonce or at.new_nonce()
        at.board.next_nonce = nonce
        self._memory.asking(nonce)
        self._memory.move(ElectorEvent.CAMPAIGN)
        asked_at_ns, hold = at.now(), self._memory.hold
        try:
            view = yield RunScript(self._call(mode, nonce), at.timing.timeout_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("campaign", error)
            return None
        self._memory.answered("campaign", view, asked_at_ns, mode=mode)
        if view.code is LeaseCode.GRANTED:
            if hold and not view.hold:
                self._memory.hold_noted()  # another went through the loss
            return Won(view, asked_at_ns, mode)
        if view.code is LeaseCode.SAME and view.epoch >= self._memory.lease.floor:
            return Won(view, None)
        self._memory.move(ElectorEvent.REFUSED)
        self.observe(view)
        return None

    def _call(self, mode: Mode, nonce: str) -> Call[LeaseView]:
        at, observation = self._at, self._observation
        return at.leases.campaign(
            replica=at.me.replica,
            nonce=nonce,
            duration_ms=at.timing.duration_ms,
            floor=self._memory.lease.floor,
            mode=mode,
            observed_epoch=observation.epoch if observation else 0,
            observed_seq=observation.seq if observation else 0,
            info=self._candidates.described(),
            genesis=self._memory.known_genesis,
            hold=self._memory.hold,
        )

    def _look(self) -> Steps[Won | None]:
        """Find out the state of the lease, and whether an unanswered question won it."""
        view = yield from self._read()
        if view is None:
            return None
        if self._memory.state is State.CAMPAIGNING:
            if self._is_ours(view) and view.epoch >= self._memory.lease.floor:
                return Won(view, None)
            self._memory.move(ElectorEvent.REFUSED)
        self.observe(view)
        return None

    def _read(self, *, with_presence: bool = False) -> Steps[LeaseView | None]:
        """Read the lease without asking for it; None after an error, which starts the wait anew."""
        at = self._at
        try:
            view: LeaseView = yield RunScript(at.leases.view(with_presence=with_presence), at.timing.timeout_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("view", error)
            return None
        self._memory.viewed(view)
        return view

    def _wait_out(self) -> Steps[Won | None]:
        """Let the highest term ever seen end, of which Redis knows nothing any more; look when something happens."""
        try:
            heard = yield from self._listen(self._memory.wait_until_ns)
        except UNANSWERED as error:
            yield from self._start_afresh("listen", error)
            return None
        self._release_in(heard)
        return (yield from self._look())

    def _start_afresh(self, operation: str, error: Exception) -> Steps[None]:
        """Pause after an error. Redis may have been away for all, so the silence before it proves nothing."""
        self.forget()
        yield Sleep(self._at.now() + self._memory.unanswered(operation, error))

    def _is_ours(self, view: LeaseView) -> bool:
        return view.nonce != "" and view.nonce == self._at.board.next_nonce
