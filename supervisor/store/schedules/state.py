"""Stored state of a schedule's decisions: counters, and the latest decisions as stretches.

``lua/lib/state.lua`` writes it, in the step that decides. A healthy schedule has one short
stretch, however often it fired; only a difference from the decision before costs a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from supervisor.core.schedules import checks

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The numbers in the first line, in their order there."""

    fired: int = 0  # scheduled runs that were enqueued: what max_runs counts
    skipped: int = 0
    missed: int = 0
    buffered: int = 0
    dropped: int = 0
    replaced: int = 0
    failed: int = 0  # runs in a row
    waiting: int = 0  # nominal times in the buffer
    force_ms: int = 0  # until when a run that was asked to stop may take; 0: none was
    after_ms: int = 0  # when the end of the last run makes one due; 0: it does not
    completed_ms: int = 0  # since when; 0: it is not completed
    initial: int = 0  # 1: the run that it begins with was enqueued


_NONE = Counters()


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

    counters: Counters = _NONE
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


def counters_of(head: bytes | str) -> Counters:
    """Return the counters in the first line of a state."""
    words = head.split()
    if len(words) != len(Counters.__slots__) or not all(word.isdigit() for word in words):
        return _NONE
    return Counters(**dict(zip(Counters.__slots__, map(int, words), strict=True)))


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
