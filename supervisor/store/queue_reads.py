"""Queues, as people look at them: counts, history, one run. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.model import Envelope, Kind
from supervisor.store.codec import (
    charges,
    chunks,
    fence_parts,
    number,
    optional_number,
    pairs,
    text,
    texts,
    unpack,
    unpack_json,
)
from supervisor.store.keys import Keys, check_name
from supervisor.store.scripts import Call, script

FSCK_LIMIT = 20_000
HISTORY_SCAN = 1000
_SLOTS = [(kind, priority) for kind in (Kind.ASYNC, Kind.SYNC) for priority in (0, 1, 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One ended attempt. ``outcome``: ok, retry, dead; crashed, interrupted or lost where it was reclaimed."""

    run_id: str
    outcome: str
    attempt: int
    session: str
    started_ms: int
    ended_ms: int
    job: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How a queue stands."""

    queue: str
    ready: dict[tuple[Kind, int], int]  # by kind and priority
    suspects: dict[Kind, int]
    running: int
    later: int
    dead: int
    paused: str | None  # the reason
    oldest_ready_ms: int | None  # when the first in line was enqueued, by its producer's clock
    next_due_ms: int | None
    stats: dict[str, int]
    now_ms: int

    @property
    def ready_total(self) -> int:
        """All that may start."""
        return sum(self.ready.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRun:
    """A run that a session works on."""

    queue: str
    run_id: str
    session: str
    attempt: int
    fetched_ms: int
    envelope: Envelope | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPage:
    """Some of the running runs. ``cursor`` "0": the last page."""

    cursor: str
    items: list[RunningRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRun:
    """A run that was given up."""

    queue: str
    run_id: str
    died_ms: int
    attempts: int
    crashes: int
    interrupts: int
    error: dict[str, Any]
    envelope: Envelope | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Everything known about one run. ``state``: queued, later, running, dead or finished."""

    run_id: str
    state: str
    queue: str
    envelope: Envelope | None
    attempts: int
    crashes: int
    interrupts: int
    session: str
    fetched_ms: int
    due_ms: int | None
    died_ms: int | None
    error: dict[str, Any]
    result: bytes | None
    history: list[HistoryEntry]  # newest first


class QueueReads:
    """Builds the calls."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._prefix = {"prefix": keys.prefix}

    def names(self) -> Call[list[str]]:
        """Read the name of every queue that ever held a run, sorted."""
        return script("set_read").call(keys={"set": self._keys.queues}, args={}, parse=lambda r: sorted(texts(r)))

    def counts(self, queue: str) -> Call[QueueCounts]:
        """Read how a queue stands."""
        args = {"queue": check_name("queue", queue)}
        return script("queue_counts").call(keys=self._prefix, args=args, parse=lambda r: _counts(queue, r))

    def running(self, queue: str, cursor: str = "0") -> Call[RunningPage]:
        """Read what runs; begin with "0", end when the reply's cursor is "0"."""
        args = {"queue": check_name("queue", queue), "cursor": cursor}
        return script("queue_running").call(keys=self._prefix, args=args, parse=lambda r: _running(queue, r))

    def dead(self, queue: str, count: int = 100) -> Call[list[DeadRun]]:
        """Read the newest runs that were given up."""
        assert count > 0
        args = {"queue": check_name("queue", queue), "count": count}
        return script("queue_dead").call(keys=self._prefix, args=args, parse=lambda r: _dead(queue, r))

    def recent(self, queue: str, count: int = 100) -> Call[list[HistoryEntry]]:
        """Read the newest ended attempts, newest first."""
        assert count > 0
        keys = {"hist": self._keys.queue(queue).hist}
        return script("queue_recent").call(keys=keys, args={"count": count}, parse=_entries)

    def show(self, run_id: str, queues: Sequence[str] | None = None) -> Call[RunView | None]:
        """Read everything known about a run; None when nothing is. Looks into ``queues``, or into all."""
        args = {"id": run_id, "scan": HISTORY_SCAN, "queues": list(queues or ())}
        return script("run_show").call(keys=self._prefix, args=args, parse=lambda r: _run(run_id, r))

    def locate(self, run_id: str) -> Call[str | None]:
        """Read which queue a run is in, or was in as far as history tells."""
        args = {"id": run_id, "scan": HISTORY_SCAN, "queues": []}
        return script("run_show").call(keys=self._prefix, args=args, parse=lambda r: text(r[1]) or None)

    def fsck(self, queue: str) -> Call[list[str]]:
        """Verify a queue's invariants; one line for each violation. Holds the server for milliseconds."""
        args = {"queue": check_name("queue", queue), "limit": FSCK_LIMIT}
        return script("queue_fsck").call(keys=self._prefix, args=args, parse=texts)


def _envelope(data: bytes) -> Envelope | None:
    try:
        return unpack(data) if data else None
    except msgspec.DecodeError:
        return None


def _counts(queue: str, reply: Any) -> QueueCounts:
    now, *ready = reply[:7]
    async_suspects, sync_suspects, running, later, dead, due, is_paused, reason = reply[7:15]
    heads = [envelope.enqueued_ms for data in reply[15:21] if (envelope := _envelope(data)) is not None]
    return QueueCounts(
        queue=queue,
        ready={slot: number(count) for slot, count in zip(_SLOTS, ready, strict=True)},
        suspects={Kind.ASYNC: number(async_suspects), Kind.SYNC: number(sync_suspects)},
        running=number(running),
        later=number(later),
        dead=number(dead),
        paused=text(reason) if is_paused else None,
        oldest_ready_ms=min(heads, default=None),
        next_due_ms=optional_number(due),
        stats={text(name): number(count) for name, count in pairs(reply[21:])},
        now_ms=number(now),
    )


def _running(queue: str, reply: Any) -> RunningPage:
    items = []
    for run_id, token, data in chunks(reply[1:], 3):
        session, attempt, fetched = fence_parts(token)
        run = RunningRun(
            queue=queue,
            run_id=text(run_id),
            session=session,
            attempt=attempt,
            fetched_ms=fetched,
            envelope=_envelope(data),
        )
        items.append(run)
    return RunningPage(cursor=text(reply[0]), items=items)


def _dead(queue: str, reply: Any) -> list[DeadRun]:
    found = []
    for run_id, died, data, charged, error in chunks(reply, 5):
        attempts, crashes, interrupts = charges(charged)
        run = DeadRun(
            queue=queue,
            run_id=text(run_id),
            died_ms=number(died),
            attempts=attempts,
            crashes=crashes,
            interrupts=interrupts,
            error=unpack_json(error),
            envelope=_envelope(data),
        )
        found.append(run)
    return found


def _entries(reply: Any) -> list[HistoryEntry]:
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


def _run(run_id: str, reply: Any) -> RunView | None:
    state, queue, data, charged, token, due, died, error, result, *lines = reply
    if state == b"unknown":
        return None
    attempts, crashes, interrupts = charges(charged)
    session, _, fetched = fence_parts(token)
    return RunView(
        run_id=run_id,
        state=text(state),
        queue=text(queue),
        envelope=_envelope(data),
        attempts=attempts,
        crashes=crashes,
        interrupts=interrupts,
        session=session,
        fetched_ms=fetched,
        due_ms=optional_number(due),
        died_ms=optional_number(died),
        error=unpack_json(error),
        result=result or None,
        history=sorted(_entries(lines), key=lambda entry: entry.ended_ms, reverse=True),
    )
