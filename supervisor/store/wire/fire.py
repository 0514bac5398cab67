"""The fire on the wire: the calls of a scheduler, their items, and the parsers of the replies.

The scripts are ``schedule_due``, ``fire``, ``schedule_expectations`` and ``schedule_audit``; their headers are the
contract. What else a scheduler asks, plans among it, is in ``schedules.fire``.

Guarantees
    No (schedule, nominal time) is enqueued twice, whoever asks and however often: the watermark advances in the step
    that enqueues. Only the newest term writes.

Does not guarantee
    That a schedule fires on time, or in which order; that is the planner's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from supervisor.core.election.lease import Term
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.core.schedules.checks import FireRefusal
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, foreign_moment, foreign_number, foreign_numbers, number, text, texts
from supervisor.store.wire.envelope import Packed

READ_MAX = 500
AUDIT_PAGE = 500
LOG_CAP = 10_000
TOLD_MAX = 250
"""Most changes of promises that one call answers."""

NOTHING = Packed("", "", b"")
"""Stands for the run of an item that enqueues none."""


ANOTHER_LIFE = 2
"""Of ``initial``: the id had a life before, which was completed, and this one has yet to begin."""


class Counters(NamedTuple):
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
    initial: int = 0  # 1: the run that it begins with was enqueued; 2: not yet, in a life after one that was completed

    @property
    def has_begun(self) -> bool:
        """True if the run that it begins with was enqueued."""
        return self.initial not in {0, ANOTHER_LIFE} or (self.is_another_life and self.fired > 0)

    @property
    def is_another_life(self) -> bool:
        """True if it has yet to begin, and its id had a life before, which was completed."""
        return self.initial == ANOTHER_LIFE


NO_COUNTERS = Counters()


def counters_of(head: bytes) -> Counters:
    """Return the counters in the first line of a state."""
    numbers = foreign_numbers(head, len(NO_COUNTERS))
    return NO_COUNTERS if numbers is None else Counters(*numbers)


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
    policy: str = "skip 1 0 30000 - - -"  # see policy_text of wire/definition
    what: What = What.DUE
    missed: int = 0
    why: str = ""  # letters of schedule_state.REASONS: of what is missed, or of the doubt about ``nominal_ms``
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
            f"{self.missed}{self.why} {self.schedule} {run.run_id or '-'}"
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
    applied: str = ""  # digest of the configured set in place; empty: none is, or one is being brought in
    seen: list[Seen]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePage:
    """Page of the plan to read. Limits of 0 leave a kind of schedules out."""

    after_ms: int  # due later than this, or at it and behind ``after_id``: where the page before ended
    until_ms: int  # due at this or earlier
    late_ms: int  # due at this or earlier counts as late
    after_id: str = ""  # the last id of the page before; empty: there was none
    limit: int = READ_MAX  # at most so many that are on time
    asked: int = 0  # at most so many that were asked for
    late: int = 0  # at most so many late ones, oldest first
    overdue_ms: int = 0  # how many are due earlier than this is counted


class FireCalls(CallBuilder):
    """Builds the calls of a scheduler that return while it has work."""

    def fire(
        self,
        term: Term,
        *,
        items: Sequence[FireItem],
        at_ms: int = 0,
        skew_limit_ms: int = 500,
        log_cap: int = LOG_CAP,
    ) -> Call[FireReply]:
        """Decide due times: enqueue, and advance watermarks, in one step.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        A repeated call answers DUP with ``mark_ms == new_mark_ms`` for the effects of the first one.
        ``at_ms`` is the wall clock that judged the items: where it is ahead of Redis', dependent items are SKEWED.
        """
        assert 0 < len(items) <= FIRE_BATCH_MAX
        args = {
            "epoch": term.epoch, "nonce": term.nonce, "skew_limit_ms": skew_limit_ms, "log_cap": log_cap,
            "at_ms": at_ms, "items": [value for item in items for value in item.arguments()],
        }  # fmt: skip
        return self._call("fire", args, parse_fired)

    def due(self, page: DuePage, ids: Sequence[str] = ()) -> Call[DueReply]:
        """Read which schedules to look at: those on time first, then those that somebody asked for, then late ones.

        ``ids`` are read too, whenever they are due.
        """
        assert page.limit + page.asked + page.late + len(ids) <= 4 * READ_MAX
        args = {name: getattr(page, name) for name in DuePage.__slots__}
        return self._call("schedule_due", args | {"ids": ids}, parse_due)

    def lateness(self, term: Term, *, told: Sequence[LatenessChange]) -> Call[LatenessReply]:
        """Read which promises are broken or kept since; settle the changes of the last reply, which were ``told``.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        assert len(told) <= TOLD_MAX
        items = [value for each in told for value in (each.member, each.score)]
        args = {"epoch": term.epoch, "nonce": term.nonce, "limit": TOLD_MAX, "items": items}
        return self._call("schedule_expectations", args, parse_lateness)

    def audit(self, cursor: str = "0") -> Call[tuple[str, list[str]]]:
        """Read a page of the schedules that nothing will ever look at; "0" ends, as in ``page``."""
        args = {"cursor": cursor, "count": AUDIT_PAGE}
        return self._call("schedule_audit", args, lambda reply: (text(reply[0]), texts(reply[1:])))


def parse_fired(reply: Any) -> FireReply:
    """Parse the reply of ``fire``."""
    flat = iter(reply)
    now_ms = int(next(flat))
    return FireReply([FireResult(_CODES[code], int(mark)) for code, mark in zip(flat, flat, strict=True)], now_ms)


def parse_due(reply: Any) -> DueReply:
    """Parse the reply of ``schedule_due``."""
    now_ms, planned, defined, overdue, next_ms, is_full, last_change, is_late_full, paused, invalid = reply[:10]
    foreign, backfills, applied, *flat = reply[10:]
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
        applied=text(applied),
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
