"""Promises of schedules about their runs: success within a period, an end within a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from supervisor.core.election.lease import Term
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, number, text

TOLD_MAX = 250
"""Most changes that one call answers."""

LATE_MS = 2**53 - 1
"""Score of a schedule that is late, in ``schedule:promised``."""


class Expected(NamedTuple):
    """Expectations of one schedule and their state, as ``lib/queue.lua`` writes them. Times in ms by Redis' clock."""

    every_ms: int  # 0: no success is expected by time
    since_ms: int  # from when that is counted
    ok_ms: int  # end of the last run that ended ok; 0: none did since the schedule was defined
    ok_nominal_ms: int  # its nominal time, the newest of all
    late_ms: int  # nominal time of the newest run that did not end ok in time, and was not followed by one; 0: none

    @classmethod
    def parse(cls, stored: Any) -> Expected | None:
        """Return the row in ``stored``; None without one that can be read."""
        words = text(stored or b"").split()
        is_row = len(words) == len(cls._fields) and all(word.isdigit() for word in words)
        return cls(*map(int, words)) if is_row else None

    def lateness(self, now_ms: int) -> str:
        """Return in words what is late at ``now_ms``; empty for nothing."""
        if self.every_ms and self.since_ms + self.every_ms < now_ms:
            return "no success in time"
        return "a run has not ended in time" if self.late_ms else ""


class LatenessChange(NamedTuple):
    """A promise that is broken, or kept again."""

    member: str  # id of a schedule: no success in time; of a run: not ended in time; + and a schedule: kept again
    score: int
    since_ms: int
    ok_ms: int

    @property
    def schedule(self) -> str:
        """Id of the schedule."""
        return self.member.removeprefix("+").partition("@")[0]

    @property
    def is_over(self) -> bool:
        """True if the schedule keeps its promises again."""
        return self.member.startswith("+")

    @property
    def run(self) -> str:
        """Id of the run that has not ended in time; empty for none."""
        return self.member if "@" in self.member else ""


class LatenessReply(NamedTuple):
    """Changes to tell, and how many schedules are late, up to 1,000."""

    late: int
    changes: list[LatenessChange]


class Expectations(CallBuilder):
    """Builds the calls."""

    def check(self, term: Term, *, told: Sequence[LatenessChange]) -> Call[LatenessReply]:
        """Read what changed, and settle the changes of the last reply, which the caller has ``told``.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        assert len(told) <= TOLD_MAX
        items = [value for each in told for value in (each.member, each.score)]
        args = {"epoch": term.epoch, "nonce": term.nonce, "limit": TOLD_MAX, "items": items}
        return self._call("schedule_expectations", args, _parse)


def _parse(reply: Any) -> LatenessReply:
    changes = [
        LatenessChange(text(member), int(float(score)), number(since), number(ok))
        for member, score, since, ok in chunks(reply[2:], 4)
    ]
    return LatenessReply(number(reply[1]), changes)
