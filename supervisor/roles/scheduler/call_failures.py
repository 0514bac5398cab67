"""Calls of the scheduler that Redis refuses or does not answer, while the agent renews the lease: another is to lead.

Guarantees
    The fault may be of this replica alone: its rights, its version, its network. It gives way once, and an hour later
    once more, so that replicas that all meet the same do not pass the lease around.
    An outage that the agent meets as well counts for nothing, however long the lease is trusted.
"""

from __future__ import annotations

from supervisor.clock import Clock
from supervisor.core.election.lease import Term
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS

VAIN_NS = 45_000 * MILLISECOND_NS
"""How long Redis may refuse every call of one script, or answer none at all, before another replica is to lead.

Silence may last a whole lease at least: without a renewal, which proves that Redis is there, trust ends sooner."""

STAY_NS = 3_600_000 * MILLISECOND_NS
"""How long after that no other is asked for again, unless Redis accepts a fire."""

_ALL = ""  # in the place of a script


class CallFailures:
    """Counts for how long calls under a term have failed."""

    def __init__(self, board: Board, clock: Clock, *, lease_ns: int) -> None:
        self._board = board
        self._clock = clock
        self._silent_max_ns = max(VAIN_NS, lease_ns)
        self._epoch = 0
        self._since_ns: dict[str, int] = {}  # by script
        self._stays_until_ns = 0
        self._cause: str | None = None  # why another was asked for in the term ``_epoch``

    def answered(self, term: Term, script: str) -> None:
        """Note an answer to ``script``."""
        for each in (script, _ALL):
            self._since_ns.pop(each, None)
        if script == "fire":
            self._stays_until_ns = 0
        if self._cause in {script, _ALL} and term.epoch == self._epoch:
            # Nobody else could lead. Who comes much later need not, for what is over.
            self._cause, self._stays_until_ns = None, 0
            self._board.header.vain_epoch = 0

    def refused(self, term: Term, script: str) -> None:
        """Note that Redis refused ``script``: it is there."""
        self._since_ns.pop(_ALL, None)
        self._note(term, script)

    def unanswered(self, term: Term) -> None:
        """Note that a call had no answer."""
        self._note(term, _ALL)

    def lapsed(self) -> None:
        """Note that the term is not trusted: Redis is away for the agent as well, or nothing may fire."""
        self._since_ns.clear()

    def _note(self, term: Term, script: str) -> None:
        now_ns = self._clock.elapsed_ns()
        if term.epoch != self._epoch:
            self._since_ns, self._epoch, self._cause = {}, term.epoch, None
        since_ns = self._since_ns.setdefault(script, now_ns)
        limit_ns = self._silent_max_ns if script == _ALL else VAIN_NS
        if now_ns >= self._stays_until_ns and now_ns - since_ns >= limit_ns:
            self._stays_until_ns, self._cause = now_ns + STAY_NS, script
            self._since_ns.clear()
            self._board.header.vain_epoch = term.epoch
