"""One program in an election: the replicas' elector, without a process tree around it.

Guarantees
    The elector, its state machine, scripts and trust are those of the replicas (supervisor.roles.agent.election); a
    program that only observes asks for nothing and is no candidate.
    The record of a leadership expires ``KEEP_MS`` after the last contender asked.

Generators of steps: no thread, socket or clock of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from supervisor.clock import Clock
from supervisor.core.effects import Listen, RunScript, Sleep, Step, Steps
from supervisor.core.election.lease import NO_TERM, Term, retry_delay_ns
from supervisor.core.errors import TenureError
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext, ElectionTiming, Surroundings
from supervisor.roles.agent.election.elector import Elector
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases, LeaseView
from supervisor.store.keys import LeaseKeys
from supervisor.version import __version__

KEEP_MS = 30 * 86_400_000
_KEEP_PERIOD_NS = 3600 * SECOND_NS
_LISTEN_NS = SECOND_NS  # how soon a standby that waits for events notices that it is to end
_LOGGED = {"leader_acquired", "leader_lost", "leader_lapsed", "leader_released", "redis_lost_data", "lease_unreadable"}

log = logging.getLogger("tenure.leadership")


class LeaderSeen(NamedTuple):
    """State of a leadership at one moment."""

    epoch: int  # of the term that this program may act on; 0: none
    leader: str | None  # as last seen


class TermRegister(Board):
    """A scoreboard of one process, which other threads read without meeting a half-written term."""

    def __init__(self) -> None:
        super().__init__(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
        self.current: Term = NO_TERM

    def publish_term(self, term: Term) -> None:
        """Write the term."""
        super().publish_term(term)
        self.current = term


class ProgramSurroundings(Surroundings):
    """A program as the elector sees it: instead of a scheduler's process it has callbacks, which never hold it up."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.is_ending = False

    def is_stopping(self) -> bool:
        """Return whether the lease is to be given back."""
        return self.is_ending

    def term_changed(self) -> None:
        """Look again at who leads."""
        self._changed()


class Contender:
    """Part of one program in the election of one lease."""

    def __init__(
        self,
        keys: LeaseKeys,
        *,
        clock: Clock,
        timing: ElectionTiming,
        me: CandidateInfo,
        rng: Random,
        new_nonce: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        leases = self._leases = Leases(keys)
        self.keys = keys
        self._changed = changed
        self._keep_due_ns = 0
        self._holder = ""
        self._holder_until_ns = 0  # then nothing is known of it
        self.board = TermRegister()
        self.around = ProgramSurroundings(changed)
        self.context = ElectionContext(
            leases=leases,
            board=self.board,
            clock=clock,
            me=me,
            timing=timing,
            around=self.around,
            report=self._report,
            rng=rng,
            new_nonce=new_nonce,
        )

    def leader_seen(self) -> LeaderSeen:
        """Return who leads, as far as this program knows now."""
        now_ns, term = self.context.now(), self.board.current
        if term.is_trusted(now_ns) and not self.around.is_ending:
            return LeaderSeen(term.epoch, self.context.me.replica)
        is_known = self._holder not in {"", self.context.me.replica} and now_ns < self._holder_until_ns
        return LeaderSeen(0, self._holder if is_known else None)

    def next_ns(self) -> int:
        """Return until when ``leader_seen`` stays as it is if no step is made."""
        now_ns, term = self.context.now(), self.board.current
        ends = (term.trusted_until_ns, self._holder_until_ns)
        return min((at for at in ends if at > now_ns), default=now_ns + self.context.timing.duration_ns)

    def steps(self) -> Steps[None]:
        """Contend, or only observe, until asked to end; then give the lease back, if held."""
        return self._watched(Elector(self.context).run() if self.context.me.participates else self._observe())

    def _observe(self) -> Steps[None]:
        at, failures = self.context, 0
        while not self.around.is_ending:
            try:
                view = yield RunScript(self._leases.view(), at.timing.timeout_ns)
                yield Listen(view.last_event, at.now() + at.timing.duration_ns)
                failures = 0
            except UNANSWERED:
                failures += 1
                yield Sleep(at.now() + retry_delay_ns(failures, at.rng.random()))

    def _watched(self, steps: Steps[None]) -> Steps[None]:
        """Make ``steps``, learn from their answers who leads, and keep the record of the lease."""
        answer: Any = None
        error: TenureError | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            answer, error = None, None
            try:
                answer = (yield from self._listen(step)) if isinstance(step, Listen) else (yield step)
            except UNANSWERED as raised:
                error = raised
            if isinstance(answer, LeaseView):
                yield from self._saw(answer)

    def _listen(self, step: Listen) -> Generator[Step, Any, Any]:
        """Listen as ``step`` says, and end soon after the program does."""
        while True:
            until_ns = min(step.until_ns, self.context.now() + _LISTEN_NS)
            heard = yield Listen(step.last_id, until_ns)
            if heard or self.around.is_ending or self.context.now() >= step.until_ns:
                return heard

    def _saw(self, view: LeaseView) -> Generator[Step, Any, None]:
        at = self.context
        self._holder = view.holder
        left_ms = max(0, min(view.remaining_ms, view.duration_ms)) + at.timing.duration_ms
        self._holder_until_ns = at.now() + left_ms * MILLISECOND_NS
        self._changed()
        if at.me.participates and (view.code is LeaseCode.GRANTED or at.now() >= self._keep_due_ns):
            with suppress(*UNANSWERED):  # another contender, or this one in an hour
                yield RunScript(self._leases.keep(KEEP_MS), at.timing.timeout_ns)
            self._keep_due_ns = at.now() + _KEEP_PERIOD_NS

    def _report(self, event: str, **fields: Any) -> None:
        if event in _LOGGED:
            said = " ".join(f"{name}={value}" for name, value in fields.items())
            log.info("%s lease=%s %s", event, self.keys.name, said)


def candidate(identity: str, *, pid: int, host: str, started_ms: int, participates: bool) -> CandidateInfo:
    """Return a program as others see it."""
    return CandidateInfo(
        replica=identity, host=host, pid=pid, version=__version__, started_ms=started_ms, participates=participates
    )
