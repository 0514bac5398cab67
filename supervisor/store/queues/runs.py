"""Queues: the calls that move runs. Those that only read them are in ``reads``, a worker's turn is in ``wire.poll``.

Guarantees
    A run that was taken stays in Redis until its worker acknowledged it under its fence,
    session, attempt and when it was fetched. Each call may be sent twice.

Does not guarantee
    That a run's code executes once: a run whose worker vanished runs again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from supervisor.core.model import Envelope, Outcome, Release
from supervisor.core.names import check_name
from supervisor.store.queues.reads import (
    Page,
    QueueReads,
    Served,
    ServedKinds,
    UnservedQueue,
    paged,
    parse_queues,
    parse_served_kinds,
    parse_unserved,
)
from supervisor.store.scripts import Argument, Call
from supervisor.store.wire.codec import chunks, is_text, number, text
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import DEAD_CAP, HISTORY, FetchedRun, TurnCalls

ENQUEUE_MAX = 500
RELEASE_MAX = 200
DETAIL_BYTES_MAX = 200
CHOSEN_MS = 3_600_000
"""How long an id that a caller chose is remembered, counted from the call that enqueued it."""

QUEUE_IDLE_MS = 86_400_000
JOBS_MS = 7 * 86_400_000


class Enqueued(NamedTuple):
    """Result of enqueueing one run. Not new and not refused: a run of its id was there."""

    run_id: str  # the id that stands: its own, or that of the run which holds its unique key
    is_new: bool
    is_duplicate: bool = False  # refused, because another unfinished run holds its unique key
    is_full: bool = False  # refused, because as many runs wait in its queue as may
    is_taken: bool = False  # refused: its id is that of a schedule's or another job's run, or has other arguments
    schedule: str = ""  # the one whose ids begin so


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended when it was taken from its session, or let go of: it is not to run again."""

    queue: str
    run_id: str
    reason: str  # crashed, lost, cancelled or replaced
    attempt: int
    job: str  # empty: its envelope cannot be read
    schedule: str  # empty: of none

    @property
    def outcome(self) -> Outcome:
        """The same as the end of an attempt."""
        return Outcome(self.reason) if self.reason in {"cancelled", "replaced"} else Outcome.DEAD


@dataclass(frozen=True, slots=True)
class Released:
    """Result of giving runs back."""

    count: int  # how many the session still held
    ended: list[EndedRun]  # those of them that did not go back


@dataclass(frozen=True, slots=True)
class UnwantedRun:
    """A run that must end: in favour of a newer one of its schedule, or because a person asked for it."""

    queue: str
    run_id: str
    session: str
    is_killed: bool  # its time to stop is over: Redis has let go of it already
    is_cancelled: bool = False  # a person asked
    fetched_ms: int = 0  # which execution of it
    ended: EndedRun | None = None  # how it ended, if Redis let go of it just now


class UnwantedPage(list[UnwantedRun]):
    """Some of the runs that must end. ``position``: where the next page begins; None: this is the last."""

    position: tuple[str, str] | None = None


class Queues(TurnCalls, QueueReads):
    """Builds the calls."""

    def enqueue(
        self, *, nonce: str, envelopes: Sequence[Envelope], delays_ms: Sequence[int] | None = None
    ) -> Call[list[Enqueued]]:
        """Put runs into their queues; the reply has the result of each, in their order.

        Args:
            nonce: of this call, drawn once and kept for its retries, at most ten minutes.
            envelopes: at most 500.
            delays_ms: how long each waits before it may start.

        Raises:
            PayloadTooLargeError: an envelope is over 64 KiB.
            ValueError: an id or a queue name cannot be carried.
        """
        assert nonce
        assert 0 < len(envelopes) <= ENQUEUE_MAX
        delays = [0] * len(envelopes) if delays_ms is None else delays_ms
        runs: list[Argument] = []
        for envelope, delay in zip(envelopes, delays, strict=True):
            assert delay >= 0
            packed = pack(envelope)
            runs += [packed.run_id, packed.queue, delay, packed.data]
        return self.enqueue_flat(nonce=nonce, ids=[envelope.id for envelope in envelopes], runs=runs)

    def enqueue_flat(
        self, *, nonce: str, ids: Sequence[str], runs: Sequence[Argument], is_chosen: bool = False
    ) -> Call[list[Enqueued]]:
        """Put packed runs into their queues, as ``enqueue`` does.

        Args:
            nonce: as for ``enqueue``.
            ids: of the runs.
            runs: id, queue, delay in ms and data of each; with ``is_chosen`` also its ``content_of``.
            is_chosen: a caller chose the ids, so that each is new to its queue once in ``CHOSEN_MS``.
        """
        assert nonce
        assert len(runs) == (5 if is_chosen else 4) * len(ids)
        args = {"nonce": nonce, "memory_ms": CHOSEN_MS if is_chosen else 0, "runs": runs}
        return self._call("enqueue", args, lambda reply: _enqueued(ids, reply))

    def release_runs(
        self,
        *,
        session: str,
        items: Sequence[tuple[str, str, str]],
        dead_cap: int = DEAD_CAP,
        history: int = HISTORY,
        detail: str = "",
    ) -> Call[Released]:
        """Give back runs that ``session`` holds, as (queue, run id, why); returns what became of those it still held.

        Why is a ``Release``, or the result of ``only``.

        ``detail`` describes the end of their process, for people; its first ``DETAIL_BYTES_MAX`` bytes count.

        Condemn the session first: only then is it certain that its worker does not acknowledge them meanwhile.
        """
        assert 0 < len(items) <= RELEASE_MAX
        cut = detail.encode()[:DETAIL_BYTES_MAX].decode(errors="ignore")  # no half of a character
        flat = [str(value) for item in items for value in item]
        args = {"session": session, "history": history, "dead_cap": dead_cap, "detail": cut, "items": flat}
        return self._call("release_runs", args, _released)

    def held(self, *, session: str, queue: str, cursor: str = "0") -> Call[Page[tuple[str, int, int]]]:
        """Read id, attempt and ``fetched_ms`` of the runs of ``queue`` that a session holds; begin with "0"."""
        assert session
        args = {"session": session, "queue": check_name("queue", queue), "cursor": cursor}
        return self._call("held", args, paged(4, lambda _, run_id, at, ms: (text(run_id), number(at), number(ms))))

    def orphans(self, *, queue: str, cursor: str = "0") -> Call[Page[tuple[str, str, int]]]:
        """Read session, id and attempt of the runs of ``queue`` that no open or dying session holds.

        Names that no call can carry back are left out: nobody could give these back, and each sweep would try.
        """
        args = {"session": "", "queue": check_name("queue", queue), "cursor": cursor}
        return self._call("held", args, _orphans)

    def executing(self, cursor: str = "0") -> Call[Page[str]]:
        """Read of which queues something is executed."""
        return self._call("queues_executing", {"cursor": cursor}, parse_queues)

    def forget(self, cursor: str = "0", *, idle_ms: int = QUEUE_IDLE_MS, jobs_ms: int = JOBS_MS) -> Call[Page[str]]:
        """Forget queues that are empty, unserved and idle, old jobs and removed schedules; return which queues."""
        return self._call("queues_forget", {"cursor": cursor, "idle_ms": idle_ms, "jobs_ms": jobs_ms}, parse_queues)

    def served(self, queue: str) -> Call[Served]:
        """Read whether an open session takes runs from ``queue``, and if not, whether there ever was a replica."""
        return self._call("queue_served", {"queue": check_name("queue", queue)}, lambda reply: Served(number(reply)))

    def served_kinds(self) -> Call[ServedKinds]:
        """Read from which queues open sessions take runs, and of which kinds."""
        return self._call("queues_served", {}, parse_served_kinds)

    def unserved(self, cursor: str = "0") -> Call[Page[UnservedQueue]]:
        """Read in which queues runs wait that no open session takes."""
        return self._call("queues_unserved", {"cursor": cursor}, parse_unserved)

    def unwanted(
        self, sessions: Sequence[str], *, history: int = HISTORY, position: tuple[str, str] = ("", "0")
    ) -> Call[UnwantedPage]:
        """Read which runs of ``sessions`` must end, let go of those that did not in time, forget ended ones."""
        queue, cursor = position
        args = {"history": history, "last_queue": queue, "last_cursor": cursor, "sessions": list(sessions)}
        return self._call("queue_unwanted", args, _unwanted)

    def trim(
        self,
        queue: str,
        *,
        history: int = HISTORY,
        dead_cap: int = DEAD_CAP,
        dead_before_ms: int = 0,
        dead_age_ms: int = 0,
        history_age_ms: int = 0,
    ) -> Call[int]:
        """Drop old history and dead runs; returns how many entries went, by their age at most 500 of each a call."""
        args = {
            "queue": check_name("queue", queue), "history": history, "dead_cap": dead_cap,
            "dead_before_ms": dead_before_ms, "dead_age_ms": dead_age_ms, "history_age_ms": history_age_ms,
        }  # fmt: skip
        return self._call("queue_trim", args, int)


def only(release: Release, run: FetchedRun) -> str:
    """Return ``release`` for just this execution of a run, and none that the session may have begun since."""
    return f"{release.value} {run.attempt}|{run.fetched_ms}"


def _enqueued(ids: Sequence[str], reply: bytes) -> list[Enqueued]:
    """Read a digit for each run, then the holders of the unique keys of those that have a 2, one a line."""
    digits, *holders = text(reply).split("\n")
    left = iter(holders)
    return [
        Enqueued(next(left), is_new=False, is_duplicate=True)
        if digit == "2"
        else Enqueued(
            run_id,
            is_new=digit == "1",
            is_full=digit == "3",
            is_taken=digit in {"4", "5"},
            schedule=re.split("[@!]", run_id)[0] if digit == "5" else "",
        )
        for run_id, digit in zip(ids, digits, strict=True)
    ]


def _orphans(reply: Any) -> Page[tuple[str, str, int]]:
    items = [
        (text(session), text(run_id), number(attempt))
        for session, run_id, attempt, _ in chunks(reply[1:], 4)
        if is_text(session) and is_text(run_id)
    ]
    return Page(text(reply[0]), items)


def _released(reply: Any) -> Released:
    ended = [
        EndedRun(text(queue), text(run_id), text(reason), number(attempt), text(job), text(schedule))
        for queue, run_id, reason, attempt, job, schedule in chunks(reply[1:], 6)
    ]
    return Released(number(reply[0]), ended)


def _unwanted(reply: Any) -> UnwantedPage:
    page = UnwantedPage()
    for queue, run_id, how, session, why, fetched, attempt, job, schedule in chunks(reply[2:], 9):
        run, reason = (text(queue), text(run_id)), text(why)
        ended = EndedRun(*run, reason, number(attempt), text(job), text(schedule)) if attempt else None
        is_killed, is_cancelled = how == b"kill", reason == "cancelled"
        page.append(UnwantedRun(*run, text(session), is_killed, is_cancelled, number(fetched), ended))
    page.position = (text(reply[0]), text(reply[1])) if reply[0] else None
    return page
