"""Queues, as people look at them: counts, history, one run. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from supervisor.core.model import Envelope, Kind
from supervisor.core.names import check_name, is_valid_name, valid_names
from supervisor.store.keys import LETTER_KIND
from supervisor.store.queues.run_records import RunEnd, parse_end
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, foreign_moment, foreign_number, number, pairs, text, texts, unpack_json
from supervisor.store.wire.envelope import limits_text, unpack
from supervisor.store.wire.poll import HistoryEntry, charges, fence_parts, parse_history

Need = Literal["history", "job", "end"]
FSCK_LIMIT = 20_000
HISTORY_SCAN, DEAD_PAGE_MAX = 1000, 10_000
PARTS = ("later", "suspect:a", "suspect:s", *(f"ready:{kind}:{priority}" for kind in "as" for priority in (0, 1, 2)))
"""The places of a queue in which runs wait, as calls that work through one of them name it."""

_SLOTS = [(kind, priority) for kind in (Kind.ASYNC, Kind.SYNC) for priority in (0, 1, 2)]
T = TypeVar("T")
ServedKinds: TypeAlias = dict[str, tuple[Kind, ...]]
"""Kinds of runs that live workers take, by queue; a queue that is not in it is served by none."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the items of a long list. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[T]


class Served(IntEnum):
    """Presence of live workers for a queue."""

    NO_CLUSTER = -1
    """No replica of the cluster was ever seen."""

    NO = 0
    YES = 1


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """Runs that wait where no live worker of any replica takes them."""

    queue: str
    kind: Kind
    waiting: int  # some of them may have been cancelled since

    def __str__(self) -> str:
        return f"{self.waiting} {self.kind.value} runs in queue {self.queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Counts of one queue."""

    queue: str
    ready: dict[tuple[Kind, int], int]  # by kind and priority
    suspects: dict[Kind, int]
    running: int
    later: int
    dead: int
    blocked: int  # wait until a run with their concurrency key ends
    paused: str | None  # the reason
    paused_by: str
    paused_ms: int | None
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
    """Everything known about one run. ``state``: queued, blocked, later, running, dead or finished."""

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
    progress: bytes | None  # JSON, as its code last said
    limits: str  # parted by semicolons, as they stand in front of its envelope (core/jobs/limits.py)
    waits_for: str  # the concurrency key, while it is blocked
    holders: list[tuple[str, str]]  # queue and id of some runs that hold a slot of that key
    history: list[HistoryEntry]  # newest first
    ended: RunEnd | None = None  # of a finished one for whose end somebody waited
    job_card: bytes = b""  # of its job, where it finished and left no result
    ok_queues: tuple[str, ...] = ()  # where runs of its id ended ok, as far as the histories tell; not all of many

    @property
    def is_live(self) -> bool:
        """True while it has not ended; a dead run has, until somebody requeues it."""
        return self.state not in {"finished", "dead"}


class QueueReads(CallBuilder):
    """Builds the calls."""

    def names(self) -> Call[list[str]]:
        """Read the name of every queue that ever held a run, sorted."""
        return self._call("set_read", {}, lambda r: valid_names(texts(r)), keys={"set": self.keys.queues})

    def counts(self, queue: str) -> Call[QueueCounts]:
        """Read the state of a queue."""
        return self._call("queue_counts", {"queue": check_name("queue", queue)}, lambda r: _counts(queue, r))

    def running(self, queue: str, cursor: str = "0") -> Call[Page[RunningRun]]:
        """Read the running runs; begin with "0", end when the reply's cursor is "0"."""
        args = {"queue": check_name("queue", queue), "cursor": cursor}
        return self._call("queue_running", args, paged(3, partial(_running, queue)))

    def blocked(self, queue: str, cursor: str = "0") -> Call[Page[tuple[str, str]]]:
        """Read which runs wait for which concurrency key; begin with "0", end when the reply's cursor is "0"."""
        args = {"queue": check_name("queue", queue), "cursor": cursor}
        return self._call("queue_blocked", args, paged(3, lambda run_id, key, _: (text(run_id), text(key))))

    def dead(self, queue: str, count: int = 100) -> Call[list[DeadRun]]:
        """Read the newest runs that were given up, at most 10,000."""
        args = _dead_page(queue, count, "newest", "0")
        return self._call("queue_dead", args, lambda r: paged(5, partial(_dead, queue))(r).items)

    def dead_page(
        self, queue: str, cursor: str = "0", *, count: int = 200, is_newest_first: bool = False
    ) -> Call[Page[DeadRun]]:
        """Read some of the runs that were given up; begin with "0", end when the reply's cursor is "0".

        Args:
            queue: which.
            cursor: of this page.
            count: about how many.
            is_newest_first: in that order; deaths and requeues meanwhile then shift the pages. Else in no order,
                and none that is dead all the while is missed.
        """
        args = _dead_page(queue, count, "newest" if is_newest_first else "any", cursor)
        return self._call("queue_dead", args, paged(5, partial(_dead, queue)))

    def recent(self, queue: str, count: int = 100) -> Call[list[HistoryEntry]]:
        """Read the newest ended attempts, newest first."""
        assert count > 0
        return self._call("queue_recent", {"count": count}, parse_history, keys={"hist": self.keys.queue(queue).hist})

    def show(
        self, run_id: str, queues: Sequence[str] = (), *, scan: int = HISTORY_SCAN, need: Need = "history"
    ) -> Call[RunView | None]:
        """Read everything known about a run in ``queues``, or on the first page of all; None when nothing is.

        Args:
            run_id: which.
            queues: where to look; none: see ``search`` in run_search.py.
            scan: how many of the newest ended attempts of each queue are searched; 10,000 take milliseconds. Of all
                queues together no more than 200,000 are.
            need: ``job``: they are searched only where nothing else names its job; ``end``: only where nothing else
                tells that it ended.
        """
        args = {"id": run_id, "scan": scan, "position": "0", "need": need, "queues": list(queues)}
        return self._call("run_show", args, lambda r: _run(run_id, r[1:]))

    def show_page(self, run_id: str, position: str, *, need: Need = "history") -> Call[Page[RunView | None]]:
        """Read what some 2,000 of all queues know about a run; begin with "0", end when the reply's cursor is "0"."""
        args = {"id": run_id, "scan": HISTORY_SCAN, "position": position, "need": need, "queues": []}
        return self._call("run_show", args, lambda r: Page(text(r[0]), [_run(run_id, r[1:])]))

    def fsck(self, queue: str) -> Call[list[str]]:
        """Verify a queue's invariants; one line for each violation. Holds the server for milliseconds."""
        return self._call("queue_fsck", {"queue": check_name("queue", queue), "limit": FSCK_LIMIT}, texts)


def _envelope(data: bytes) -> Envelope | None:
    try:
        return unpack(data) if data else None
    except msgspec.DecodeError:
        return None


def _counts(queue: str, reply: Any) -> QueueCounts:
    now, *ready = reply[:7]
    async_suspects, sync_suspects, running, later, dead, due, is_paused, reason = reply[7:15]
    why, by, since = [*text(reason).split("\n"), "", ""][:3]
    heads = [envelope.enqueued_ms for data in reply[15:21] if (envelope := _envelope(data)) is not None]
    return QueueCounts(
        queue=queue,
        ready={slot: number(count) for slot, count in zip(_SLOTS, ready, strict=True)},
        suspects={Kind.ASYNC: number(async_suspects), Kind.SYNC: number(sync_suspects)},
        running=number(running),
        later=number(later),
        dead=number(dead),
        paused=why if is_paused else None,
        paused_by=by,
        paused_ms=foreign_number(since),
        oldest_ready_ms=min(heads, default=None),
        next_due_ms=foreign_moment(due),
        blocked=number(reply[21]),
        stats={text(name): foreign_number(count) or 0 for name, count in pairs(reply[22:])},
        now_ms=number(now),
    )


def _running(queue: str, run_id: Any, token: Any, data: Any) -> RunningRun:
    session, attempt, fetched = fence_parts(token)
    return RunningRun(
        queue=queue,
        run_id=text(run_id),
        session=session,
        attempt=attempt,
        fetched_ms=fetched,
        envelope=_envelope(data),
    )


def _dead_page(queue: str, count: int, order: str, position: str) -> dict[str, object]:
    assert 0 < count <= DEAD_PAGE_MAX
    return {"queue": check_name("queue", queue), "count": count, "order": order, "position": position}


def _dead(queue: str, run_id: Any, died: Any, data: Any, charged: Any, error: Any) -> DeadRun:  # noqa: PLR0917 - a reply's
    attempts, crashes, interrupts = charges(charged)
    return DeadRun(
        queue=queue,
        run_id=text(run_id),
        died_ms=foreign_moment(died) or 0,
        attempts=attempts,
        crashes=crashes,
        interrupts=interrupts,
        error=unpack_json(error),
        envelope=_without_values(_envelope(data)),
    )


def _without_values(envelope: Envelope | None) -> Envelope | None:
    """Return it with the names of its arguments alone: the values of a page would take ten times its bytes."""
    if envelope is None:
        return None
    template = msgspec.structs.replace(envelope.template, args=dict.fromkeys(envelope.template.args))
    return msgspec.structs.replace(envelope, template=template)


def _run(run_id: str, reply: Any) -> RunView | None:
    state, queue, data, charged, token, due, died, error, result, progress, key, holders, end, card, ok, *lines = reply
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
        due_ms=foreign_moment(due),
        died_ms=foreign_moment(died),
        error=unpack_json(error),
        result=result or None,
        progress=progress.partition(b" ")[2] or None,
        limits=limits_text(data),
        waits_for=text(key),
        holders=[(queue, run_id) for queue, _, run_id in (each.partition(" ") for each in text(holders).splitlines())],
        history=sorted(parse_history(lines), key=lambda entry: entry.ended_ms, reverse=True),
        ended=parse_end(end) if state == b"finished" else None,
        job_card=card or b"",
        ok_queues=tuple(text(ok).splitlines()),
    )


def paged(size: int, item: Callable[..., T]) -> Callable[[Any], Page[T]]:
    """Return a parser of replies that hold a cursor and then ``size`` values for each item, of which it is made."""
    return lambda reply: Page(text(reply[0]), [item(*values) for values in chunks(reply[1:], size)])


def parse_served_kinds(reply: Any) -> ServedKinds:
    """Parse the reply of ``queues_served``."""
    found: dict[str, list[Kind]] = {}
    for queue, letter in chunks(reply, 2):
        found.setdefault(text(queue), []).append(LETTER_KIND[text(letter)])
    return {queue: tuple(sorted(kinds)) for queue, kinds in found.items()}


def parse_unserved(reply: Any) -> Page[UnservedQueue]:
    """Parse the reply of ``queues_unserved``; a queue that no version of Tenure names so is left out."""
    queues = paged(3, lambda queue, kind, count: UnservedQueue(text(queue), LETTER_KIND[text(kind)], number(count)))
    found = queues(reply)
    return Page(found.cursor, [each for each in found.items if is_valid_name(each.queue)])


def parse_queues(reply: Any) -> Page[str]:
    """Parse the reply of ``queues_executing``."""
    cursor, *names = reply
    return Page(text(cursor), valid_names(texts(names)))
