"""Operator actions on queues and runs: cancel, pause, purge, move, requeue, drop.

Guarantees
    Each call is one atomic step with a bound, and may be sent again when its reply was lost: a step done is
    found done. Every run that ends by one of them leaves a line in its queue's history, with who asked and why.
    A request to end a running run names the attempt it means, and hits no other.

Does not guarantee
    That a run which is asked to end does so at once: its agent hears of it within a second, and then it has the
    time that its code takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from supervisor.core.model import PRIORITIES
from supervisor.core.names import check_name
from supervisor.store.keys import Keys
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, number, text
from supervisor.store.wire.envelope import check_run_id
from supervisor.store.wire.poll import HISTORY_MAX

BATCH_MAX = 100
"""Most runs, or entries of a list, in one call."""

PAGE = 25
"""How many of them keep the server busy for about 2 ms; what works through a whole queue takes so many."""

REASON_MAX = 200
_BY_MAX = 100
Run = tuple[str, str]
"""Queue and id of a run. An empty queue: wherever it is found."""

JudgedRun = tuple[str, str, str]
"""The same with the job by which a request was permitted: a run of another job is unknown. An empty one: any."""


class CancelCode(StrEnum):
    """Result code of cancelling one run."""

    CANCELLED = "CANCELLED"  # it waited; now it is gone
    ASKED = "ASKED"  # it runs, and is asked to end
    DEAD = "DEAD"  # it was given up before; drop it instead
    UNKNOWN = "UNKNOWN"  # it ended, or never was


class RequeueCode(StrEnum):
    """Result code of requeueing one dead run."""

    REQUEUED = "REQUEUED"
    ABSENT = "ABSENT"  # it is not dead
    BROKEN = "BROKEN"  # nothing that could run is left of it
    DUPLICATE = "DUPLICATE"  # another run holds its unique key


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of cancelling one run. ``attempt``: the one that is asked to end, else 0."""

    code: CancelCode
    queue: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Purged:
    """Result of purging one page. ``position``: of the next page; empty at the end."""

    position: str
    seen: int
    ended: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of moving one page. ``stayed``: the target has runs of their ids already."""

    seen: int
    moved: int
    stayed: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Place of a run: later, ready, suspect, blocked, running or dead. Empty: it is unknown."""

    queue: str
    place: str
    priority: int | None = None  # its former one, if the call changes it


@dataclass(frozen=True, slots=True)
class Requeued:
    """Result of requeueing one dead run, and the holder of its unique key if that prevented it."""

    code: RequeueCode
    holder: str


class QueueControl(CallBuilder):
    """Builds the calls."""

    def __init__(self, keys: Keys, *, history: int = HISTORY_MAX) -> None:
        """Build it; ``history``: how many ended attempts each queue remembers."""
        super().__init__(keys)
        self._history = history

    def cancel(
        self, runs: Sequence[Run | JudgedRun], *, by: str = "", reason: str = "", kill_ms: int = 0
    ) -> Call[list[Cancelled]]:
        """End at most 100 runs: one that waits at once, one that runs is asked. Sent again, the call hits no later run.

        Args:
            runs: which.
            by: who asks, for the history.
            reason: for people.
            kill_ms: a running one that has not ended after so long is let go of, and its process is killed where it
                executes nothing else; 0: never.
        """
        assert kill_ms >= 0
        args = {
            "history": self._history, "kill_ms": kill_ms, "note": note(by, reason), "nonce": uuid4().hex,
            "runs": _flat(runs),
        }  # fmt: skip
        return self._call("queue_cancel", args, _cancelled)

    def pause(self, queue: str, *, by: str = "", reason: str = "") -> Call[bool]:
        """Let nothing be fetched from ``queue``; the reply shows whether that is new."""
        args = {"queue": check_name("queue", queue), "reason": _line(reason, REASON_MAX), "by": _line(by, _BY_MAX)}
        return self._call("queue_pause", args, bool)

    def resume(self, queue: str) -> Call[bool]:
        """End the pause; the reply shows whether there was one."""
        return self._call("queue_resume", {"queue": check_name("queue", queue)}, bool)

    def purge(
        self,
        queue: str,
        part: str,
        *,
        job: str = "",
        position: str = "0",
        count: int = PAGE,
        by: str = "",
        reason: str = "",
    ) -> Call[Purged]:
        """End a page of the runs that wait in one place of a queue.

        Args:
            queue: which.
            part: one of ``PARTS``, or ``wait:`` and a concurrency key.
            job: only runs of this job; empty: all.
            position: "0" at first, then the one of the previous page.
            count: how many entries are looked at, at most 100.
            by: who asks, for the history.
            reason: for people.
        """
        assert 0 < count <= BATCH_MAX
        args = {
            "queue": check_name("queue", queue), "part": part, "job": job, "position": position, "count": count,
            "history": self._history, "note": note(by, reason),
        }  # fmt: skip
        return self._call("queue_purge", args, lambda r: Purged(text(r[0]), number(r[1]), number(r[2])))

    def move(self, queue: str, target: str, part: str, *, count: int = PAGE, offset: int = 0) -> Call[Moved]:
        """Move a page of the runs that wait in one place of ``queue`` to the same of ``target``, order kept.

        Args:
            queue: from where.
            target: to where.
            part: one of ``PARTS``, or ``wait:`` and a concurrency key.
            count: how many entries are looked at, at most 100.
            offset: with ``later``: how many stayed so far.
        """
        assert 0 < count <= BATCH_MAX
        assert queue != target
        args = {
            "queue": check_name("queue", queue), "target": check_name("queue", target), "part": part, "count": count,
            "offset": offset,
        }  # fmt: skip
        return self._call("queue_move", args, lambda r: Moved(*map(number, r)))

    def hasten(self, runs: Sequence[Run | JudgedRun]) -> Call[list[Placed]]:
        """Let at most 100 delayed runs start now; the reply has the former place of each."""
        parse = lambda reply: [Placed(text(queue), text(place)) for queue, place in chunks(reply, 2)]  # noqa: E731
        args = {"runs": _flat(runs)}
        return self._call("queue_hasten", args, parse)

    def set_priority(self, runs: Sequence[Run | JudgedRun], priority: int) -> Call[list[Placed]]:
        """Give at most 100 runs another priority; the reply has the place of each, and its former priority."""
        assert priority in PRIORITIES.values()
        return self._call("queue_priority", {"priority": priority, "runs": _flat(runs)}, _prioritised)

    def requeue(
        self, queue: str, ids: Sequence[str], *, delay_ms: int = 0, by: str = "", job: str = ""
    ) -> Call[list[Requeued]]:
        """Let at most 100 dead runs of ``job`` run again, with all their attempts, from the tail of their queue."""
        assert 0 < len(ids) <= BATCH_MAX
        assert delay_ms >= 0
        args = {
            "queue": check_name("queue", queue), "delay_ms": delay_ms, "history": self._history,
            "note": note(by, ""), "job": job, "ids": [check_run_id(run_id) for run_id in ids],
        }  # fmt: skip
        parse = lambda r: [Requeued(RequeueCode(text(code)), text(held)) for code, held in chunks(r, 2)]  # noqa: E731
        return self._call("queue_dead_requeue", args, parse)

    def drop(
        self, queue: str, ids: Sequence[str], *, by: str = "", reason: str = "", job: str = ""
    ) -> Call[list[bool]]:
        """Forget at most 100 dead runs of ``job``; the reply has for each whether it was dead."""
        assert 0 < len(ids) <= BATCH_MAX
        args = {
            "queue": check_name("queue", queue), "history": self._history, "note": note(by, reason), "job": job,
            "ids": [check_run_id(run_id) for run_id in ids],
        }  # fmt: skip
        return self._call("queue_dead_drop", args, lambda r: [bool(one) for one in r])


def note(by: str, reason: str) -> str:
    """Return who asks and why, as one line of a history."""
    return ": ".join(part for part in (_line(by, _BY_MAX), _line(reason, REASON_MAX)) if part)


def _line(words: str, length_max: int) -> str:
    return " ".join(words.split())[:length_max]


def _flat(runs: Sequence[Run | JudgedRun]) -> list[str]:
    assert 0 < len(runs) <= BATCH_MAX
    parts = (
        (queue and check_name("queue", queue), check_run_id(run_id), *(job or [""])) for queue, run_id, *job in runs
    )
    return [part for run in parts for part in run]


def _cancelled(reply: Any) -> list[Cancelled]:
    return [
        Cancelled(CancelCode(text(code)), text(queue), number(attempt)) for code, queue, attempt in chunks(reply, 3)
    ]


def _prioritised(reply: Any) -> list[Placed]:
    return [
        Placed(text(queue), text(place), number(former) if queue else None) for queue, place, former in chunks(reply, 3)
    ]
