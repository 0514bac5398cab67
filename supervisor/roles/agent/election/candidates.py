"""Other candidates, as Redis lists them: for the order after a release, for people, and for a name used twice.

Guarantees
    It is read when the list has changed, as the replies and the release itself show by a
    number, and now and then. Whoever was not seen for three lease durations does not count.
    A leader whose wall clock is off gives way only to a candidate that was seen to ask Redis since, with a clock that
    agrees with Redis'. So where Redis' own clock stepped, and all are as far from it, nobody does.

Does not guarantee
    That who is listed will answer. The others wait for a better candidate a few
    milliseconds, not for ever.
    That somebody with the right time leads: where nobody else has it, this replica goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from supervisor.core.effects import RunScript, Steps
from supervisor.core.election.clock_skew import SKEW_MS_MAX
from supervisor.core.election.lease import PREFER_NS, Rank, State, is_named, stagger_ns
from supervisor.core.errors import StoreRefusedError
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import UNANSWERED, ElectionContext
from supervisor.roles.agent.election.memory import ElectionMemory
from supervisor.store.election.leases import FRESH_LEASES, CandidateInfo

PERIOD_NS = 60_000 * MILLISECOND_NS  # of the leader, whose count is what alarms look at
STANDBY_PERIOD_NS = (
    300_000 * MILLISECOND_NS
)  # of the others: less than half a question a second is what a standby may cost
FORGET_MS = 86_400_000
WITHDRAWN_MAX = 100  # in one question
RENEWALS_MIN = 3  # with a clock that is off, in a row, before the lease is given to another


class CandidateList:
    """The candidates beside this replica."""

    def __init__(self, context: ElectionContext, memory: ElectionMemory) -> None:
        self._at = context
        self._memory = memory
        self._schedules_digest = context.me.schedules_digest
        self._others: list[CandidateInfo] = []
        self._number = -1  # of the list that was read
        self._due_ns = 0
        self._is_refused = False
        self._twins: dict[str, int] = {}  # replicas of this one's name, and when each was last seen
        self._reported: set[str] = set()

    def bring(self, schedules_digest: str) -> None:
        """Describe this replica from now on as one that brings another set of schedules."""
        self._schedules_digest = schedules_digest

    def described(self) -> CandidateInfo:
        """Return the public description of this replica now."""
        return structs.replace(self._at.me, schedules_digest=self._schedules_digest, wall_ms=self._at.clock.wall_ms())

    def noticed(self, number: int) -> None:
        """Take in which list Redis has now."""
        if number != self._number:
            self._due_ns = 0

    def is_due(self) -> bool:
        """Return whether the list should be read."""
        return self._at.now() >= self._due_ns

    def is_alone(self) -> bool:
        """Return whether nobody else would lead."""
        return not self._others

    def learn(self, number: int) -> Steps[Sequence[CandidateInfo] | None]:
        """Read the list, whose number is ``number``, and return all of it; None: Redis did not answer."""
        at = self._at
        self._due_ns = at.now() + (PERIOD_NS if self._memory.state is State.LEADER else STANDBY_PERIOD_NS)
        try:
            listed: list[CandidateInfo] = yield RunScript(at.leases.candidates(), at.timing.timeout_ns)
        except UNANSWERED as error:
            if isinstance(error, StoreRefusedError):
                at.report("duty_refused", duty="candidates", error=str(error), is_new=not self._is_refused)
                self._is_refused, self._number = True, number
            return None  # only the order of campaigns depends on it
        self._number, self._is_refused = number, False
        # What is far ahead of Redis' clock was written by a stranger, or before that clock was set back.
        now_ms = at.board.header.answered_ms
        dated = [each for each in listed if each.seen_ms <= now_ms + FORGET_MS]
        # Nor does a time ahead of that clock make the others old.
        newest_ms = max((each.seen_ms for each in dated if each.seen_ms <= now_ms), default=0)
        if self._memory.state is State.LEADER:
            known = {each.replica for each in dated if each.seen_ms >= newest_ms - FORGET_MS}
            yield from self._forget([each.replica for each in listed if each.replica not in known])
        oldest_ms = newest_ms - FRESH_LEASES * at.timing.duration_ms
        fresh = [candidate for candidate in dated if candidate.seen_ms >= oldest_ms]
        eligible = [candidate for candidate in fresh if candidate.participates]
        self._others = [candidate for candidate in eligible if candidate.replica != at.me.replica]
        at.report("candidates", count=len(eligible))
        self._look_for_twins(fresh)
        return listed

    def _forget(self, gone: Sequence[str]) -> Steps[None]:
        """Take off the list who was not seen for a day: killed, each start of a tree having a name of its own."""
        if not gone:
            return
        try:
            yield RunScript(self._at.leases.withdraw(*gone[:WITHDRAWN_MAX]), self._at.timing.timeout_ns)
        except UNANSWERED:
            return  # at the next reading

    def wait_ns(self, *, holder: str, prefer: str) -> int:
        """Return how long to let better candidates go first after ``holder`` released the lease.

        ``prefer`` was asked for: it waits for nobody, and everybody waits for it.
        """
        if is_named(self._at.me.replica, prefer):
            return 0
        others = [rank(other) for other in self._others if other.replica != holder]
        me = replace(rank(self._at.me), is_skewed=self._memory.skew.is_over)
        return stagger_ns(me, others) + (PREFER_NS if prefer else 0)

    def _look_for_twins(self, fresh: Sequence[CandidateInfo]) -> None:
        """Report once that a replica of this one's name lives: it was seen, and seen again later.

        The predecessor of a tree that was killed looks the same, but is never seen again.
        """
        at = self._at
        name = at.me.replica.rpartition(".")[0]
        known, self._twins = self._twins, {}
        for candidate in fresh:
            if candidate.replica == at.me.replica or candidate.replica.rpartition(".")[0] != name or not name:
                continue
            seen_ms = known.get(candidate.replica, candidate.seen_ms)
            self._twins[candidate.replica] = seen_ms
            if candidate.seen_ms == seen_ms:
                self._due_ns = min(self._due_ns, at.now() + 2 * at.timing.duration_ns)
            elif candidate.replica not in self._reported:
                self._reported.add(candidate.replica)
                at.report("name_used_twice", name=name, other=candidate.replica, host=candidate.host)
        self._reported &= set(self._twins)
        at.report("twins", count=len(self._reported))


def rank(candidate: CandidateInfo) -> Rank:
    """Return the rank of ``candidate`` among others."""
    return Rank(
        draining=candidate.draining,
        is_skewed=abs(candidate.skew_ms or 0) > SKEW_MS_MAX,
        priority=candidate.priority,
        version=candidate.version,
        started_ms=candidate.started_ms,
        replica=candidate.replica,
    )


class SkewPolicy:
    """Response of a leader to skew of its own clock."""

    def __init__(self, context: ElectionContext, memory: ElectionMemory, candidates: CandidateList) -> None:
        self._at = context
        self._memory = memory
        self._candidates = candidates
        self._epoch = 0
        self._renewals = 0  # of this term in a row with a clock that is off
        self._noticed_ms = 0  # own skew when it was noticed
        self._seen_at_first: dict[str, int] | None = None  # when each candidate had last asked, as it was noticed

    def heir(self, epoch: int) -> Steps[str]:
        """Return who should lead instead, after a renewal of the term ``epoch``; empty: nobody.

        An entry of the list is believed once it changed: an older one may have been written before Redis' clock
        stepped, which begins anew at each step. Its readings of the writer's clock and of Redis' are of one moment.
        """
        has_stepped = abs(self._memory.skew.ms - self._noticed_ms) > SKEW_MS_MAX
        if epoch != self._epoch or has_stepped or not self._memory.skew.is_over:
            self._epoch, self._renewals, self._seen_at_first = epoch, 0, None
            self._noticed_ms = self._memory.skew.ms
        if not self._memory.skew.is_over:
            return ""
        self._renewals += 1
        if self._seen_at_first is not None and self._renewals < RENEWALS_MIN:
            return ""
        listed = yield from self._candidates.learn(self._memory.roster)
        if listed is None:
            return ""
        if self._seen_at_first is None:
            self._seen_at_first = {candidate.replica: candidate.seen_ms for candidate in listed}
            return ""
        return self._best(listed, self._seen_at_first)

    def _best(self, listed: Sequence[CandidateInfo], seen_ms: Mapping[str, int]) -> str:
        at = self._at
        fit: list[Rank] = []
        for candidate in listed:
            is_new = candidate.seen_ms != seen_ms.get(candidate.replica)
            is_other = candidate.replica != at.me.replica and candidate.participates and not candidate.draining
            skew_ms = candidate.skew_ms
            if is_new and is_other and skew_ms is not None and self._memory.skew.is_worse_than(skew_ms):
                fit.append(rank(candidate))
        return min(fit, key=lambda each: each.key).replica if fit else ""
