"""Looking at schedules as they are stored. Writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from supervisor.core.json_values import read_json
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules import checks
from supervisor.core.schedules.diff import kept_mark_ms, unlisted_runs
from supervisor.core.schedules.manual_runs import changed_run_id
from supervisor.store.schedules.definitions import DYNAMIC, Change
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import (
    chunks,
    cut,
    foreign_moment,
    foreign_number,
    foreign_numbers,
    number,
    text,
    unpack_json,
)
from supervisor.store.wire.definition import StoredDefinition, timing_digest, unpack_definition
from supervisor.store.wire.fire import NO_COUNTERS, Counters, counters_of

PAGE = 250
BUFFERED_SHOWN = 20
PAUSE_WORDS_MAX = 500
_STRETCH = re.compile(r"([A-Z][a-z]*)(\d{1,15}) (\d{1,15}) (\d{1,15}) (-?\d{1,15}) (\d{1,15})", re.ASCII)
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
TAKEN = "t"
REASONS = {
    "p": "policy",
    "w": "window",
    "c": "cap",
    LOST: "data_loss",
    TAKEN: "id_taken",
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
    """Counters of a schedule, and its latest decisions as stretches, newest first.

    ``lua/lib/fire_schedules.lua`` writes it, in the step that decides. A healthy schedule has one short
    stretch, however often it fired; only a difference from the decision before costs a line.
    """

    counters: Counters = NO_COUNTERS
    stretches: tuple[Stretch, ...] = field(default=())

    @classmethod
    def parse(cls, packed: bytes | None) -> ScheduleState:
        """Parse ``packed``; an unreadable part counts as nothing."""
        head, *lines = (packed or b"").split(b"\n")
        found = (_STRETCH.fullmatch(text(line)) for line in lines)
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
        numbers = foreign_numbers(stored or b"", len(cls._fields))
        return None if numbers is None else cls(*numbers)

    def lateness(self, now_ms: int) -> str:
        """Return in words what is late at ``now_ms``; empty for nothing."""
        if self.every_ms and self.since_ms + self.every_ms < now_ms:
            return "no success in time"
        return "a run has not ended in time" if self.late_ms else ""


class Pause(msgspec.Struct, frozen=True):
    """An override that stops a schedule's starts."""

    reason: str = ""
    by: str = ""
    at_ms: int = 0
    until_ms: int | None = None

    def __post_init__(self) -> None:
        """Take no more of its texts than a pause may be given."""
        msgspec.structs.force_setattr(self, "reason", cut(self.reason, PAUSE_WORDS_MAX))
        msgspec.structs.force_setattr(self, "by", cut(self.by, PAUSE_WORDS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One schedule as it is stored: its definition not decoded, since most readers compare it only."""

    id: str
    revision: int
    set: str  # digest of its configuration when it was last changed, or ``dynamic``
    body: bytes  # the definition's JSON
    mark_ms: int
    next_ms: int | None  # None: not planned; 0 or less: somebody asked the leader to look at it
    pause: Pause | None
    completed_ms: int = 0  # since when; 0: it is not completed
    is_live: bool = False  # runs of it are unfinished
    expected: Expected | None = None  # what it expects of its runs; None: nothing
    invalid: str = ""  # why the leader cannot use its definition; empty: it can

    @property
    def is_dynamic(self) -> bool:
        """True if it was made while the cluster ran, by no configuration."""
        return self.set == DYNAMIC

    def lateness(self, now_ms: int) -> str:
        """Return in words what is late of what it expects of its runs; empty for nothing, or while it is idle."""
        is_silent = self.expected is None or self.pause is not None or self.completed_ms
        return "" if is_silent or self.expected is None else self.expected.lateness(now_ms)

    def definition(self) -> ScheduleDef:
        """Return its definition.

        Raises:
            msgspec.DecodeError: a newer version wrote it, or nobody.
        """
        return unpack_definition(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Some of the schedules. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[Record]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything that is stored about one schedule."""

    id: str
    record: Record | None  # None: there is none
    state: bytes = b""
    live: list[tuple[str, str]] = field(default_factory=list)  # (queue, run) of its unfinished runs
    buffered: int = 0
    first_buffered_ms: list[int] = field(default_factory=list)
    removed_ms: int | None = None
    now_ms: int = 0
    is_pause_over: bool = False  # the leader has yet to look: the watermark may lie before the pause


class Views(CallBuilder):
    """Builds the calls."""

    def browse(self, cursor: str = "0", *, count: int = PAGE) -> Call[RecordPage]:
        """Read some of the schedules; begin with "0", end when the reply's cursor is "0"."""
        return self._call("schedule_browse", {"cursor": cursor, "count": count}, _page)

    def inspect(self, ids: Sequence[str]) -> Call[list[Inspection]]:
        """Read everything about at most 250 schedules, in their order."""
        assert len(ids) <= PAGE
        return self._call("schedule_inspect", {"buffered": BUFFERED_SHOWN, "ids": ids}, lambda r: list(_inspections(r)))


def change_of(
    record: Record, definition: ScheduleDef, *, now_ms: int, expected_revision: int | None = None
) -> tuple[Change, ScheduleDef | None]:
    """Return the change from ``record`` to ``definition``, and the old one; None when another version wrote it."""
    try:
        old = record.definition()
    except msgspec.DecodeError:
        return Change(definition=definition, expected_revision=expected_revision), None
    change = Change(
        definition=definition,
        expected_revision=expected_revision,
        seen_revision=record.revision,
        kept_mark_ms=kept_mark_ms(old, definition, mark_ms=record.mark_ms, now_ms=now_ms),
        unlisted=_unlisted(old, definition, record.mark_ms),
    )
    return change, old


def addition_of(
    definition: ScheduleDef, *, former: Record | None = None, expected_revision: int | None = None
) -> Change:
    """Return the change that adds ``definition``; ``former`` is stored under the name that it had before."""
    try:
        runs = [] if former is None else _unlisted(former.definition(), definition, former.mark_ms)
    except msgspec.DecodeError:
        runs = []
    return Change(definition=definition, expected_revision=expected_revision, unlisted=runs)


def _unlisted(old: ScheduleDef, new: ScheduleDef, mark_ms: int) -> list[str]:
    """Return what ``unlisted_runs`` finds, and the run that the latest change of timing caused, with their queue."""
    runs = unlisted_runs(old, new, mark_ms=mark_ms)
    changed = [changed_run_id(old.id, timing_digest(old))] if runs else []
    return [f"{old.template.queue} {run}" for run in runs + changed]


def _record(name: Any, stored: bytes, *neighbours: Any, is_live: bool) -> Record:
    """Return the record of a stored definition with its neighbours, as they are in a reply."""
    mark, next_ms, pause, state, invalid, expected = neighbours
    revision, digest, body = StoredDefinition.parse(stored)
    return Record(
        id=text(name),
        revision=revision or 0,
        set=digest,
        body=body,
        mark_ms=number(mark),
        next_ms=foreign_moment(next_ms),
        pause=unpack_pause(pause),
        completed_ms=ScheduleState.parse(state).counters.completed_ms,
        is_live=is_live,
        invalid=text(invalid),
        expected=Expected.parse(expected),
    )


def unpack_pause(stored: bytes | None) -> Pause | None:
    """Return the override in ``stored``; None when there is none."""
    if not stored:
        return None
    try:
        pause = read_json(stored, Pause)
    except msgspec.DecodeError:
        return Pause(reason="written by another version")
    return None if pause.until_ms == pause.at_ms else pause  # it was resumed, and the leader has yet to look


def _page(reply: Any) -> RecordPage:
    items = [
        _record(name, stored, mark, next_ms, pause, state, invalid, expected, is_live=text(live) == "1")
        for name, stored, mark, next_ms, pause, state, live, invalid, expected in chunks(reply[2:], 9)
    ]
    return RecordPage(cursor=text(reply[0]), items=items, now_ms=number(reply[1]))


def _inspections(reply: Any) -> Iterator[Inspection]:
    now_ms = number(reply[0])
    for name, stored, mark, next_ms, pause, state, live, buffered, first, removed, invalid, expected in chunks(
        reply[1:], 12
    ):
        ends_ms = unpack_json(pause).get("until_ms")
        runs = [line.partition(" ") for line in text(live).split("\n") if line]
        record = None
        if stored:
            record = _record(name, stored, mark, next_ms, pause, state, invalid, expected, is_live=bool(runs))
        yield Inspection(
            id=text(name),
            record=record,
            state=state,
            live=[(queue, run) for queue, _, run in runs],
            buffered=number(buffered),
            first_buffered_ms=[at for each in text(first).split() if (at := foreign_number(each))],
            removed_ms=foreign_number(removed),
            now_ms=now_ms,
            is_pause_over=isinstance(ends_ms, int) and ends_ms <= now_ms,
        )
