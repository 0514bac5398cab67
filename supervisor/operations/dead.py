"""Operations on dead runs: those that were given up, kept for inspection.

Guarantees
    A change reaches the runs that its filter selected when it was read, and no run that died since.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.core.effects import Call
from supervisor.core.errors import TenureError
from supervisor.operations import InvalidRequestError, Operation, Tell, pages, slices, untold
from supervisor.operations.queues import TellRefused, known, of_each
from supervisor.operations.runs import RunPermit, checked_runs, permitted
from supervisor.store.keys import Keys
from supervisor.store.queues.control import PAGE, QueueControl, RequeueCode, Requeued
from supervisor.store.queues.reads import DeadRun, QueueReads, RunView
from supervisor.store.queues.run_search import search
from supervisor.store.wire.envelope import is_run_id
from supervisor.telemetry.masking import mask_text

REQUEUED, DROPPED = "requeued", "dropped"
_NOT_DEAD = "is not dead any more"
_NO_ID = "no run can have this id: another program or a hand wrote it"
_RESULTS = {
    RequeueCode.REQUEUED: REQUEUED,
    RequeueCode.ABSENT: _NOT_DEAD,
    RequeueCode.BROKEN: "nothing that could run is left of it",
}
_DROP_RESULTS = {True: DROPPED, False: _NOT_DEAD}
Selected = Mapping[str, Sequence[str]]
"""Ids of dead runs by their queue."""

Result = tuple[str, str, str]
"""Queue and id of a run, and what became of it."""


@dataclass(frozen=True, slots=True)
class DeadChange:
    """Change of dead runs."""

    done: str  # the result of those that it changed
    call: Callable[..., Call[list[Any]]]
    word: Callable[[Any], str]  # result of one in a reply to ``call``


class NotDeadError(TenureError):
    """The run is unknown, or in another state."""

    http_status = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Selection of dead runs."""

    ids: tuple[str, ...] = ()
    queue: str | None = None
    job: str | None = None
    reason: str | None = None
    error: str | None = None
    before_ms: int | None = None
    everything: bool = False

    def must_select(self) -> None:
        """Refuse a change of whatever is dead that nobody asked for; a queue alone selects nothing.

        Raises:
            InvalidRequestError: nothing selects runs.
        """
        if not (self.ids or self.job or self.reason or self.error or self.before_ms or self.everything):
            raise InvalidRequestError("dead runs", "are selected by id, job, reason, error, before, or all: give one")

    def takes(self, dead: DeadRun) -> bool:
        """Return whether ``dead`` is one of them. Reason and error match any part, whatever the case of letters."""
        job = dead.envelope.template.job if dead.envelope else ""
        said = " ".join(map(str, dead.error.values())).lower()
        return (
            (not self.ids or dead.run_id in self.ids)
            and (self.job is None or job == self.job)
            and (self.reason is None or self.reason.lower() in reason_of(dead.error).lower())
            and (self.error is None or self.error.lower() in said)
            and (self.before_ms is None or dead.died_ms < self.before_ms)
        )


def reason_of(error: Mapping[str, Any]) -> str:
    """Return in one line why a run died: ``crashed: SIGSEGV``, ``lost``, ``ValueError: no such tenant``."""
    fields = ("reason", "detail") if "reason" in error else ("type", "message")
    parts = [error.get(name) for name in fields]
    return mask_text(" ".join(": ".join(str(part) for part in parts if part).split()))


def find(
    keys: Keys, which: DeadFilter, *, count: int, configured: Collection[str] = (), tell_refused: TellRefused
) -> Operation[list[DeadRun]]:
    """Read at most ``count`` dead runs of ``which``, newest first.

    Raises:
        UnknownQueueError: there is no such queue.
    """
    found: dict[tuple[str, str], DeadRun] = {}

    def read(queue: str) -> Operation[None]:
        here: list[DeadRun] = yield from _read(keys, queue, which, is_newest_first=True, count=count)
        for each in here:  # the first is the newer one, where deaths meanwhile shifted the pages
            found.setdefault((queue, each.run_id), each)

    yield from _queues(keys, which, configured)
    yield from of_each(keys, which.queue, read, tell_refused=tell_refused)
    return sorted(found.values(), key=lambda each: each.died_ms, reverse=True)[:count]


def selected(
    keys: Keys, which: DeadFilter, *, configured: Collection[str] = (), tell_refused: TellRefused
) -> Operation[Selected]:
    """Read the ids of all dead runs of ``which``.

    Raises:
        UnknownQueueError: there is no such queue.
    """
    found: dict[str, Sequence[str]] = {}

    def read(queue: str) -> Operation[None]:
        here: list[DeadRun] = yield from _read(keys, queue, which)
        found[queue] = list(dict.fromkeys(each.run_id for each in here))

    yield from _queues(keys, which, configured)
    yield from of_each(keys, which.queue, read, tell_refused=tell_refused)
    return found


def show(keys: Keys, run_id: str, queue: str = "") -> Operation[RunView]:
    """Read one dead run of ``queue``, or of any.

    Raises:
        InvalidRunError: no run can have the id, or no queue the name.
        NotDeadError: it is unknown, or in another state.
    """
    checked_runs([(queue, run_id)])
    view = yield from search(QueueReads(keys), run_id, queue)
    if view is None or view.state != "dead":
        state = "unknown" if view is None else f"{view.state}, not dead"
        raise NotDeadError(f"run {run_id[:200]!r} is {state}; `tenure dead list` shows the dead ones")
    return view


def requeueing(delay_ms: int = 0) -> DeadChange:
    """Return the change that lets runs run again, with all their attempts, from the tail of their queue.

    Not sooner than after ``delay_ms``. Its other results are why a run stays.
    """

    def word(result: Requeued) -> str:
        return _RESULTS.get(result.code) or f"run {result.holder.partition(' ')[2]} holds its unique key"

    return DeadChange(REQUEUED, functools.partial(QueueControl.requeue, delay_ms=delay_ms), word)


def dropping(reason: str = "") -> DeadChange:
    """Return the change that forgets runs."""
    return DeadChange(DROPPED, functools.partial(QueueControl.drop, reason=reason), _DROP_RESULTS.__getitem__)


def apply(
    keys: Keys,
    change: DeadChange,
    which: Selected,
    *,
    by: str,
    history: int,
    permit: RunPermit | None = None,
    tell: Tell = untold,
) -> Operation[list[Result]]:
    """Apply ``change`` to dead runs, and return queue, id and result of each.

    A page of a queue at a time, or with ``permit``, which is called with job, queue and labels of each run and raises
    to refuse, one, as a run of its job. ``history``: how many ended attempts each queue remembers. What no run can be
    called is left alone.
    """
    control = QueueControl(keys, history=history)
    done: list[Result] = []
    for queue, ids in which.items():
        done += [(queue, run_id, _NO_ID) for run_id in ids if not is_run_id(run_id)]
        for group in slices([run_id for run_id in ids if is_run_id(run_id)], PAGE if permit is None else 1):
            ((_, _, job), *_) = yield from permitted(keys, [(queue, run_id) for run_id in group], permit)
            results = yield change.call(control, queue, group, by=by, job=job)
            done += [(queue, run_id, change.word(result)) for run_id, result in zip(group, results, strict=True)]
            tell(len(done))
    return done


def _queues(keys: Keys, which: DeadFilter, configured: Collection[str]) -> Operation[list[str]]:
    return known(keys, [] if which.queue is None else [which.queue], configured)


def _read(
    keys: Keys, queue: str, which: DeadFilter, *, is_newest_first: bool = False, count: int | None = None
) -> Operation[list[DeadRun]]:
    def read(cursor: str) -> Any:
        return QueueReads(keys).dead_page(queue, cursor, is_newest_first=is_newest_first)

    return pages(read, keep=which.takes, count=count)
