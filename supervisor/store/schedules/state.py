"""Stored state of a schedule: counters, the latest decisions as stretches, and promises about its runs.

``lua/lib/state.lua`` writes it, in the step that decides. A healthy schedule has one short
stretch, however often it fired; only a difference from the decision before costs a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from supervisor.core.schedules import checks
from supervisor.store.wire.codec import text
from supervisor.store.wire.fire import NO_COUNTERS, Counters, counters_of

_STRETCH = re.compile(r"([A-Z][a-z]*)(\d+) (\d+) (\d+) (-?\d+) (\d+)")
ENQUEUED = {"F", "U", "I"}
MEANINGS = {
    "F": "fired",
    "U": "started from the buffer",
    "I": "initial",
    "S": "skipped: an earlier run was unfinished",
    "B": "buffered",
    "D": "dropped from the buffer",
    "R": "replaced by a newer due time",
    "M": "missed",
}
LOST = "l"
REASONS = {
    "p": "policy",
    "w": "window",
    "c": "cap",
    LOST: "data_loss",
    **{letter: hook for hook, letter in checks.LETTERS.items()},
}


LATE_MS = 2**53 - 1
"""Score of a schedule that is late, in ``schedule:promised``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Like decisions about nominal times that followed one another."""

    code: str  # a letter of MEANINGS
    reasons: tuple[str, ...]  # why they were missed
    from_ms: int  # of a missed stretch: exclusive
    to_ms: int
    count: int
    at_ms: int  # of the last of them, by Redis' clock
    revision: int  # of the definition


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """Counters and stretches, newest first."""

    counters: Counters = NO_COUNTERS
    stretches: tuple[Stretch, ...] = field(default=())

    @classmethod
    def parse(cls, packed: bytes | str | None) -> ScheduleState:
        """Parse ``packed``; an unreadable part counts as nothing."""
        text = packed.decode("utf-8", "replace") if isinstance(packed, bytes) else packed or ""
        head, *lines = text.split("\n")
        found = (_STRETCH.fullmatch(line) for line in lines)
        return cls(counters_of(head), tuple(_stretch(match) for match in found if match))

    def enqueued(self, nominal_ms: int) -> bool:
        """Return whether a run of ``nominal_ms`` is known to have been enqueued. As far as the stretches reach."""
        return any(
            stretch.code in ENQUEUED and stretch.from_ms <= nominal_ms <= stretch.to_ms for stretch in self.stretches
        )


def _stretch(match: re.Match[str]) -> Stretch:
    code, from_ms, span, count, at, revision = match.groups()
    to_ms = int(from_ms) + int(span)
    return Stretch(
        code=code[0],
        reasons=tuple(REASONS.get(letter, letter) for letter in code[1:]),
        from_ms=int(from_ms),
        to_ms=to_ms,
        count=int(count),
        at_ms=to_ms + int(at),
        revision=int(revision),
    )


class Expected(NamedTuple):
    """Expectations of one schedule and their state, as ``lib/live.lua`` writes them. Times in ms by Redis' clock."""

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
