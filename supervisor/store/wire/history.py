"""Lines of the histories: one for each attempt that ended, and one for each decision about a schedule.

Most lines of attempts are made by workers (``history_line``), the others by scripts: runs that were reclaimed, replaced
or ended by a person. Lines of decisions are made by ``lib/fire_write.lua``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor.store.wire.codec import text

if TYPE_CHECKING:
    from supervisor.store.wire.fire import FireCode
    from supervisor.store.wire.poll import Ack

_NOTE_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One ended attempt, or a person's action on a run.

    ``outcome``: as its worker reported it; crashed, interrupted or lost where it was reclaimed; duplicate where it
    never began; cancel_asked, cancelled, purged, requeued or dropped where a person did it, who is named in ``note``.
    """

    run_id: str
    outcome: str
    attempt: int
    session: str
    started_ms: int
    ended_ms: int
    job: str
    note: str


def history_line(session: str, ack: Ack) -> str:
    """Return the line of an attempt, as ``parse_history`` reads it. The note is last: it may hold bars.

    The script reads id, outcome and attempt from it.
    """
    note = " ".join(ack.history_note.split())[:_NOTE_MAX] if ack.history_note else ""
    job = ack.job.replace("|", "/") if "|" in ack.job else ack.job
    outcome = ack.outcome.value
    return f"{ack.run_id}|{outcome}|{ack.attempt}|{session}|{ack.started_ms}|{ack.ended_ms}|{job}|{note}"


def parse_history(reply: Any) -> list[HistoryEntry]:
    """Return the entries in the lines of a history; without those that no version of ours wrote."""
    return [entry for line in reply if (entry := _entry(text(line))) is not None]


def _entry(line: str) -> HistoryEntry | None:
    """Return the entry in ``line``; None when no version of ours wrote it."""
    parts = line.split("|", 7)
    if len(parts) != 8 or not all(parts[i].isdigit() for i in (2, 4, 5)):
        return None
    run_id, outcome, attempt, session, started, ended, job, note = parts
    return HistoryEntry(
        run_id=run_id,
        outcome=outcome,
        attempt=int(attempt),
        session=session,
        started_ms=int(started),
        ended_ms=int(ended),
        job=job,
        note=note,
    )


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
    def parse(cls, line: str) -> LogEntry:
        """Return the decision in one line of the log."""
        from supervisor.store.wire.fire import FireCode  # noqa: PLC0415 - it loads cron, which no producer needs

        schedule, nominal, epoch, run, code, missed, at = line.split(" ")
        return cls(
            schedule=schedule,
            nominal_ms=int(nominal),
            epoch=int(epoch),
            run_id="" if run == "-" else run,
            code=FireCode(code),
            missed=int(missed),
            at_ms=int(at),
        )
