"""Schedules in Redis: definitions, watermarks, and the fenced fire.

Guarantees
    No (schedule, nominal time) is enqueued twice, whoever asks and however often: the
    watermark advances in the step that enqueues. Only the newest term writes.

Does not guarantee
    That a schedule fires on time, or in which order; that is the planner's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from supervisor.core.election.lease import Term
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.store.schedules.reads import ScheduleState
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import number, text, texts
from supervisor.store.wire.definition import StoredDefinition
from supervisor.store.wire.fire import (
    DueReply,
    FireItem,
    FireReply,
    LatenessChange,
    LatenessReply,
    LogEntry,
    PlanCode,
    PlanItem,
    parse_due,
    parse_fired,
    parse_lateness,
    parse_planned,
)

DECLARE_MAX = 1000
READ_MAX = 500
AUDIT_PAGE = 500
LOG_CAP = 10_000
TOLD_MAX = 250
"""Most changes of promises that one call answers."""


class Seed(NamedTuple):
    """A watermark for a schedule that has none."""

    schedule: str
    mark_ms: int
    lost: int  # due times up to it that may have run or not, and will not run again


class Seeded(NamedTuple):
    """Result of writing seeds."""

    written: int
    lost: int  # due times, as the written ones say
    is_over: bool  # a leader has declared schedules since the loss; nothing was written


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


class Schedules(CallBuilder):
    """Builds the calls."""

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

    def definitions(self, ids: Sequence[str]) -> Call[list[tuple[int, bytes] | None]]:
        """Read revision and JSON of each of ``ids``; None where there is no such schedule."""
        assert 0 < len(ids) <= 4 * READ_MAX
        return self._call("schedule_read", {"ids": ids}, _definitions, keys={"definitions": self.keys.schedule_def})

    def plan(self, term: Term, *, items: Sequence[PlanItem]) -> Call[list[PlanCode]]:
        """Put schedules into the plan or out of it, where they are still as they were read.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        assert 0 < len(items) <= FIRE_BATCH_MAX
        flat = [value for item in items for value in item.arguments()]
        return self._call("schedule_plan", {"epoch": term.epoch, "nonce": term.nonce, "items": flat}, parse_planned)

    def seed(self, term: Term, *, seeds: Sequence[Seed]) -> Call[Seeded]:
        """Write watermarks where there are none, after Redis lost them, unless a leader declared schedules since."""
        assert 0 < len(seeds) <= DECLARE_MAX
        args = {"epoch": term.epoch, "nonce": term.nonce, "items": [value for seed in seeds for value in seed]}
        parse = lambda reply: Seeded(number(reply[0]), number(reply[1]), reply[2] == 1)  # noqa: E731 - one expression
        return self._call("schedule_seed", args, parse)

    def audit(self, cursor: str = "0") -> Call[tuple[str, list[str]]]:
        """Read a page of the schedules that nothing will ever look at; "0" ends, as in ``page``."""
        args = {"cursor": cursor, "count": AUDIT_PAGE}
        return self._call("schedule_audit", args, lambda reply: (text(reply[0]), texts(reply[1:])))

    def rezone(self, term: Term, *, version: str, cursor: str = "0") -> Call[tuple[str, int]]:
        """Ask to look at a page of the schedules with a time zone, unless the plan was made under ``version``.

        Answers the next cursor, "0" at the end, and how many are to be looked at.
        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        args = {"epoch": term.epoch, "nonce": term.nonce, "version": version, "cursor": cursor, "count": AUDIT_PAGE}
        return self._call("schedule_rezone", args, lambda reply: (text(reply[0]), number(reply[1])))

    def lateness(self, term: Term, *, told: Sequence[LatenessChange]) -> Call[LatenessReply]:
        """Read which promises are broken or kept since; settle the changes of the last reply, which were ``told``.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        assert len(told) <= TOLD_MAX
        items = [value for each in told for value in (each.member, each.score)]
        args = {"epoch": term.epoch, "nonce": term.nonce, "limit": TOLD_MAX, "items": items}
        return self._call("schedule_expectations", args, parse_lateness)

    def state(self, schedule: str) -> Call[ScheduleState]:
        """Read the stored state of the decisions about ``schedule``."""
        args = {"ids": [schedule]}
        return self._call(
            "schedule_read",
            args,
            lambda reply: ScheduleState.parse(reply[0]),
            keys={"definitions": self.keys.schedule_state},
        )

    def log(self, count: int, schedule: str | None = None) -> Call[list[LogEntry]]:
        """Read the newest decisions, newest first."""
        args = {"count": count, "schedule": schedule or ""}
        return self._call(
            "schedule_log",
            args,
            lambda reply: [entry for line in texts(reply) if (entry := LogEntry.parse(line)) is not None],
            keys={"log": self.keys.schedule_log},
        )


def _definitions(reply: Any) -> list[tuple[int, bytes] | None]:
    found = []
    for stored in reply:
        revision, _, body = StoredDefinition.parse(stored or b"")
        found.append(None if revision is None else (revision, body))
    return found
