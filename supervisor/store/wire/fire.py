"""Wire format of fires: the scheduler's requests about schedules, and the parsers of the replies and of their log.

The scripts are ``schedule_due``, ``schedule_plan``, ``fire`` and ``schedule_expectations``; their headers are the
contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Any, NamedTuple

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.checks import FireRefusal
from supervisor.core.schedules.triggers import after_completion_ms
from supervisor.store.scripts import Argument
from supervisor.store.wire.codec import chunks, foreign_moment, foreign_number, number, text
from supervisor.store.wire.envelope import Packed

NOTHING = Packed("", "", b"")
"""Stands for the run of an item that enqueues none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The numbers in the first line of a stored state, in their order there."""

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


NO_COUNTERS = Counters()


def counters_of(head: bytes | str) -> Counters:
    """Return the counters in the first line of a state."""
    words = head.split()
    numbers = [found for word in words if (found := foreign_number(word)) is not None]
    if not len(numbers) == len(words) == len(Counters.__slots__):
        return NO_COUNTERS
    return Counters(**dict(zip(Counters.__slots__, numbers, strict=True)))


class FireCode(StrEnum):
    """Result code of one item."""

    FIRED = "FIRED"
    SKIPPED = "SKIPPED"  # as many runs as may be are unfinished: decided, nothing enqueued
    BUFFERED = "BUFFERED"  # the same, and it waits for one of them to end
    DROPPED = "DROPPED"  # the same, and the buffer is full; or what waited was too old
    REPLACED = "REPLACED"  # what waited gave way to a newer one
    MISSED = "MISSED"  # decided, nothing was to be enqueued
    COMPLETED = "COMPLETED"  # it had all the runs it may have
    INITIAL = "INITIAL"  # in the log only: the run that a new schedule begins with
    HELD = "HELD"  # what waits must go on waiting
    DUP = "DUP"  # the watermark is not what was expected
    STALE = "STALE"  # the definition changed or is gone
    PAUSED = "PAUSED"
    SKEWED = "SKEWED"  # the due time, or the caller's clock that decided, is too far ahead of Redis' time
    REFUSED = "REFUSED"  # not by the script: Redis refuses this schedule's items, also alone; nothing written


class PlanCode(StrEnum):
    """Result code of one plan."""

    PLANNED = "PLANNED"
    MOVED = "MOVED"  # somebody asked to look again
    DUP = "DUP"
    STALE = "STALE"
    SKEWED = "SKEWED"  # by Redis' time it is too early for it
    GONE = "GONE"


class What(StrEnum):
    """Kind of an item."""

    DUE = "due"  # this nominal time is due
    MISSED = "missed"  # nominal times passed, and none of them runs
    START = "start"  # the first in the buffer may start
    FORCE = "force"  # the same, and what was asked to stop has had its time
    DROP = "drop"  # the first in the buffer is too old
    INITIAL = "initial"  # the run that a new schedule begins with


class FireItem(NamedTuple):
    """One decision to make. A tuple, because thousands are made in a second."""

    schedule: str
    revision: int
    mark_ms: int  # the watermark that the planner saw
    nominal_ms: int  # the due time that runs; of MISSED: the latest
    new_mark_ms: int  # the latest due time
    next_ms: int | None  # when to look again
    run: Packed
    policy: str = "skip 1 0 30000 - - -"  # see policy_text
    what: What = What.DUE
    missed: int = 0
    why: str = ""  # letters of schedule_state.REASONS
    job: str = ""  # for reports
    refusal: FireRefusal | None = None  # what kept ``nominal_ms`` from being fired, for reports
    delay_ms: int = 0  # of its jitter, for reports
    is_doubtful: bool = False  # it may have been fired before Redis lost data, for reports

    def arguments(self) -> tuple[str, str, bytes]:
        """Return line, shape and data, as the script takes them."""
        next_ms = "-" if self.next_ms is None else self.next_ms
        run = self.run
        line = (
            f"{self.what.value} {self.revision} {self.mark_ms} {self.nominal_ms} {self.new_mark_ms} {next_ms} "
            f"{self.missed}{self.why if self.missed else ''} {self.schedule} {run.run_id or '-'}"
        )
        return line, f"{self.policy} {run.queue or '-'}", run.data


class FireResult(NamedTuple):
    """Result of an item, and the watermark now."""

    code: FireCode
    mark_ms: int


@dataclass(frozen=True, slots=True)
class FireReply:
    """One result for each item, in their order."""

    results: list[FireResult]
    now_ms: int


class Seen(NamedTuple):
    """A schedule as it was read."""

    schedule: str
    score: int | None  # when to look at it; 0 or less: somebody asked to; None: not planned
    revision: int | None  # None: there is no definition
    set: str  # digest of its set, or ``dynamic``
    mark_ms: int
    state: bytes  # the first line
    pause: bytes  # JSON; empty: not paused
    live: int  # unfinished runs, as far as known
    waiting: tuple[int, ...]  # the first of the buffer

    @property
    def counters(self) -> Counters:
        """The counters."""
        return counters_of(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReply:
    """Reply with the schedules to evaluate, and counts of the plan."""

    now_ms: int
    planned: int
    defined: int
    overdue: int
    next_ms: int | None  # first due time after those asked for
    is_full: bool  # there may be more of the soon ones
    last_change: str  # id of the newest entry in the stream of changes
    is_late_full: bool  # there may be more of the late ones
    paused: int = 0
    invalid: int = 0  # schedules whose definition cannot be used
    foreign: str = ""  # streams that only inform and whose keys hold another type
    backfills: int = 0  # on record, most of them ended
    seen: list[Seen]


class PlanItem(NamedTuple):
    """Plan for a schedule that was read: its next due time and its new state."""

    seen: Seen
    next_ms: int | None
    new_mark_ms: int | None = None
    wait: str = ""  # what the end of a run causes
    set_pause: str = ""  # empty: as it is; "-" ends it; else the pause
    completed: str = ""  # empty: as it is; since when; "0": not; "-" deletes the schedule
    invalid: str = ""  # why its definition cannot be used; empty: it can

    def arguments(self) -> Iterator[Argument]:
        """Yield the fields in the order of the script."""
        seen = self.seen
        yield seen.schedule
        yield "" if seen.revision is None else seen.revision
        yield seen.mark_ms
        yield "" if seen.score is None else seen.score
        yield seen.pause
        yield "" if self.next_ms is None else self.next_ms
        yield "" if self.new_mark_ms is None else self.new_mark_ms
        yield from (self.wait, self.set_pause, self.completed, self.invalid)


def policy_text(definition: ScheduleDef, wait: str = "", keep_ms: int | None = None) -> str:
    """Return the policy of ``definition`` as ``fire`` takes it: schedules with equal ones share one text.

    Args:
        definition: has the policies for overlap and for completion.
        wait: the effects of the end of a run; empty: none.
        keep_ms: how long it is kept when it is completed; None: for ever.
    """
    limit, runs = definition.buffer_limit, definition.max_runs
    if limit is None:
        limit = 1 if definition.overlap == "buffer_one" else 1000
    unfinished = f"{definition.overlap} {definition.max_running} {limit} {definition.cancel_grace_ms}"
    return intern(f"{unfinished} {'-' if runs is None else runs} {wait or '-'} {'-' if keep_ms is None else keep_ms}")


def wait_text(definition: ScheduleDef) -> str:
    """Return what the end of a run causes, as ``lib/live.lua`` reads it."""
    delay = after_completion_ms(definition)
    parts = [] if delay is None else [f"c{delay}"]
    if definition.pause_after_failures:
        # Under `allow` no list of unfinished runs is kept for them: failures are counted by the ids of the runs.
        parts.append(f"{'F' if definition.overlap == 'allow' else 'f'}{definition.pause_after_failures}")
    if definition.finish_within_ms is not None:
        parts.append(f"w{definition.finish_within_ms}")
    return ",".join(parts)


def parse_fired(reply: Any) -> FireReply:
    """Parse the reply of ``fire``."""
    flat = iter(reply)
    now_ms = int(next(flat))
    return FireReply([FireResult(_CODES[code], int(mark)) for code, mark in zip(flat, flat, strict=True)], now_ms)


def parse_planned(reply: Any) -> list[PlanCode]:
    """Parse the reply of ``schedule_plan``."""
    return [PlanCode(text(code)) for code in reply[1:]]


def parse_due(reply: Any) -> DueReply:
    """Parse the reply of ``schedule_due``."""
    now_ms, planned, defined, overdue, next_ms, is_full, last_change, is_late_full, paused, invalid = reply[:10]
    foreign, backfills, *flat = reply[10:]
    return DueReply(
        now_ms=number(now_ms),
        planned=number(planned),
        defined=number(defined),
        overdue=number(overdue),
        next_ms=foreign_moment(next_ms),
        is_full=is_full == b"1",
        last_change=text(last_change),
        is_late_full=is_late_full == b"1",
        paused=number(paused),
        invalid=number(invalid),
        foreign=text(foreign).strip(),
        backfills=number(backfills),
        seen=list(_seen(flat)),
    )


def _seen(flat: Sequence[Any]) -> Iterator[Seen]:
    at = 0
    while at < len(flat):
        name, score, revision, digest, mark, state, pause, live, count = flat[at : at + 9]
        at += 9 + int(count)
        yield Seen(
            text(name),
            foreign_moment(score),
            foreign_number(revision),
            text(digest),
            int(mark),
            state,
            pause,
            int(live),
            tuple(int(nominal) for nominal in flat[at - int(count) : at]),
        )


_CODES = {code.value.encode(): code for code in FireCode}


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


def parse_lateness(reply: Any) -> LatenessReply:
    """Parse the reply of ``schedule_expectations``."""
    changes = [
        LatenessChange(text(member), int(float(score)), number(since), number(ok))
        for member, score, since, ok in chunks(reply[2:], 4)
    ]
    return LatenessReply(number(reply[1]), changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One decision that was made."""

    schedule: str
    nominal_ms: int
    epoch: int
    run_id: str  # empty when nothing was enqueued
    code: FireCode
    missed: int
    at_ms: int

    @classmethod
    def parse(cls, line: str) -> LogEntry | None:
        """Return the decision in one line of the log; None when no version up to this one wrote it."""
        try:
            schedule, nominal, epoch, run, code, missed, at = line.split(" ")
            return cls(
                schedule=schedule, nominal_ms=int(nominal), epoch=int(epoch), run_id="" if run == "-" else run,
                code=FireCode(code), missed=int(missed), at_ms=int(at),
            )  # fmt: skip
        except ValueError:
            return None
