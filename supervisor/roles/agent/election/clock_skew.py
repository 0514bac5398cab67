"""A leader whose wall clock is off gives way to a candidate whose clock is right.

Guarantees
    It gives way only to one that was seen to ask Redis since this replica noticed, with a clock that
    agrees with Redis'. So where Redis' own clock stepped, and all are as far from it, nobody does.

Does not guarantee
    That somebody with the right time leads: where nobody else has it, this replica goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.core.election.lease import Rank
from supervisor.roles.agent.election.candidates import Roster, rank
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.roles.effects import Steps
from supervisor.store.election.leases import CandidateInfo

RENEWALS_MIN = 3  # with a clock that is off, in a row, before the lease is given to another


class WallClock:
    """Response of a leader to skew of its own clock."""

    def __init__(self, standing: ElectionContext, roster: Roster) -> None:
        self._at = standing
        self._roster = roster
        self._epoch = 0
        self._renewals = 0  # of this term in a row with a clock that is off
        self._seen_at_first: dict[str, int] | None = None  # when each candidate had last asked, as it was noticed

    def heir(self, epoch: int) -> Steps[str]:
        """Return who should lead instead, after a renewal of the term ``epoch``; empty: nobody.

        An entry of the list is believed once it changed: an older one may have been written before Redis' clock
        stepped. Its readings of the writer's clock and of Redis' are of one moment.
        """
        at = self._at
        if epoch != self._epoch or not at.skew.is_over:
            self._epoch, self._renewals, self._seen_at_first = epoch, 0, None
        if not at.skew.is_over:
            return ""
        self._renewals += 1
        if self._seen_at_first is not None and self._renewals < RENEWALS_MIN:
            return ""
        listed = yield from self._roster.learn(at.roster)
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
            if is_new and is_other and skew_ms is not None and at.skew.is_worse_than(skew_ms):
                fit.append(rank(candidate))
        return min(fit, key=lambda each: each.key).replica if fit else ""
