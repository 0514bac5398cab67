"""Schedules in Redis for whoever plans them: definitions, plans, watermarks and the log. The fire is in ``wire.fire``.

The script of plans is ``schedule_plan``. Only the newest term writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from supervisor.core.election.lease import Term
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.store.schedules.reads import ScheduleState
from supervisor.store.scripts import Argument, Call
from supervisor.store.wire.codec import number, text, texts
from supervisor.store.wire.definition import StoredDefinition
from supervisor.store.wire.fire import AUDIT_PAGE, READ_MAX, FireCalls, FireCode, Seen

DECLARE_MAX = 1000


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


class PlanCode(StrEnum):
    """Result code of one plan."""

    PLANNED = "PLANNED"
    MOVED = "MOVED"  # somebody asked to look again
    DUP = "DUP"
    STALE = "STALE"
    SKEWED = "SKEWED"  # by Redis' time it is too early for it
    GONE = "GONE"


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


class Schedules(FireCalls):
    """Builds the calls."""

    def definitions(self, ids: Sequence[str]) -> Call[list[tuple[int, bytes] | None]]:
        """Read revision and JSON of the first of ``ids``, up to 512 KiB; None where there is no such schedule."""
        assert 0 < len(ids) <= 4 * READ_MAX
        return self._call("schedule_read", {"ids": ids}, _definitions, keys={"definitions": self.keys.schedule_def})

    def plan(self, term: Term, *, items: Sequence[PlanItem]) -> Call[list[PlanCode]]:
        """Put schedules into the plan or out of it, where they are still as they were read.

        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        assert 0 < len(items) <= FIRE_BATCH_MAX
        flat = [value for item in items for value in item.arguments()]
        return self._call("schedule_plan", {"epoch": term.epoch, "nonce": term.nonce, "items": flat}, _planned)

    def seed(self, term: Term, *, seeds: Sequence[Seed]) -> Call[Seeded]:
        """Write watermarks where there are none, after Redis lost them, unless a leader declared schedules since."""
        assert 0 < len(seeds) <= DECLARE_MAX
        args = {"epoch": term.epoch, "nonce": term.nonce, "items": [value for seed in seeds for value in seed]}
        parse = lambda reply: Seeded(number(reply[0]), number(reply[1]), reply[2] == 1)  # noqa: E731 - one expression
        return self._call("schedule_seed", args, parse)

    def rezone(self, term: Term, *, version: str, cursor: str = "0") -> Call[tuple[str, int]]:
        """Ask to look at a page of the schedules with a time zone, unless the plan was made under ``version``.

        Answers the next cursor, "0" at the end, and how many are to be looked at.
        Running the call raises ``FencedError`` when ``term`` is not the current one.
        """
        args = {"epoch": term.epoch, "nonce": term.nonce, "version": version, "cursor": cursor, "count": AUDIT_PAGE}
        return self._call("schedule_rezone", args, lambda reply: (text(reply[0]), number(reply[1])))

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


def _planned(reply: Any) -> list[PlanCode]:
    """Parse the reply of ``schedule_plan``."""
    return [PlanCode(text(code)) for code in reply[1:]]


def _definitions(reply: Any) -> list[tuple[int, bytes] | None]:
    found = []
    for stored in reply:
        revision, _, body = StoredDefinition.parse(stored or b"")
        found.append(None if revision is None else (revision, body))
    return found
