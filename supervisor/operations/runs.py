"""Operations on runs, and on the output of their attempts.

Guarantees
    A change that ``permit`` allowed is one of the run that it was shown: in the queue where it was found, and of the
    job that it had, although other runs can have the same id, in another queue or after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_USAGE, StoreRefusedError, TenureError
from supervisor.core.names import check_name
from supervisor.operations import Delay, Operation, pages, slices
from supervisor.operations.queues import TellRefused, of_each
from supervisor.store.keys import Keys
from supervisor.store.producer.run_status import RunPhase as RunPhase  # noqa: PLC0414 - of answers
from supervisor.store.producer.run_status import result_of as result_of  # noqa: PLC0414 - of answers
from supervisor.store.producer.run_status import status_of as status_of  # noqa: PLC0414 - of answers
from supervisor.store.queues.control import PAGE, Cancelled, JudgedRun, Placed, QueueControl, Run
from supervisor.store.queues.control import CancelCode as CancelCode  # noqa: PLC0414 - of the answers
from supervisor.store.queues.reads import QueueReads, RunningRun, RunView
from supervisor.store.queues.run_records import AttemptLog as AttemptLog  # noqa: PLC0414 - of answers
from supervisor.store.queues.run_records import RunLogs, Tallies, Tally
from supervisor.store.queues.run_search import search
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.envelope import check_run_id
from supervisor.store.wire.poll import HISTORY, HistoryEntry
from supervisor.telemetry.masking import mask_text

T = TypeVar("T")
RunPermit = Callable[[str, str, Mapping[str, str]], None]
"""Raises unless the asker reaches the run of a job, in a queue, of a schedule with labels."""


class InvalidRunError(TenureError):
    """The id of a run or the name of a queue that none can have."""

    exit_code = EXIT_USAGE
    http_status = 400


class UnknownRunError(TenureError):
    """No unfinished run has the id, or none that is remembered."""

    http_status = 404

    def __init__(self, run_id: str, message: str = "") -> None:
        super().__init__(message or f"there is no unfinished run {run_id[:200]!r}")


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything known about one run. ``view`` None: newer runs have pushed it out of the history."""

    view: RunView | None
    below: Tally | None  # of its descendants
    steps: dict[str, dict[str, Any]]


def checked_runs(runs: Sequence[Run]) -> list[Run]:
    """Return ``runs``, each once, in their order.

    Raises:
        InvalidRunError: no run can have the id, or no queue the name.
    """
    try:
        for queue, run_id in runs:
            check_run_id(run_id)
            check_name("queue", queue or "any")
    except ValueError as error:
        raise InvalidRunError(str(error)) from error
    return list(dict.fromkeys(runs))


def cancel(
    keys: Keys,
    runs: Sequence[Run],
    *,
    history: int,
    by: str,
    reason: str = "",
    kill_ms: int = 0,
    permit: RunPermit | None = None,
) -> Operation[list[tuple[Run, Cancelled]]]:
    """End runs: those that wait at once, those that run are asked; answer for each in their order.

    An empty queue of a run is any. The process of one that goes on for longer than ``kill_ms`` is killed; 0: never.
    The reason is cut at 200 characters; ``history``: how many ended attempts each queue remembers. ``permit`` is called
    with job, queue and labels of each run, and raises to refuse.

    Raises:
        InvalidRunError: no run can have the id, or no queue the name. None is ended.
        UnknownRunError: with ``permit`` only: an unknown run cannot be permitted.
    """
    control = QueueControl(keys, history=history)
    change = functools.partial(control.cancel, by=by, reason=reason, kill_ms=kill_ms)
    return (yield from _changed(keys, runs, change, permit))


def hasten(keys: Keys, runs: Sequence[Run], *, permit: RunPermit | None = None) -> Operation[list[tuple[Run, Placed]]]:
    """Let delayed or retrying runs start now; the answer has the former place of each; for the rest see ``cancel``."""
    return (yield from _changed(keys, runs, QueueControl(keys).hasten, permit))


def set_priority(
    keys: Keys, runs: Sequence[Run], priority: int, *, permit: RunPermit | None = None
) -> Operation[list[tuple[Run, Placed]]]:
    """Give runs another priority; the answer has the place of each, and its former one; for the rest see ``cancel``."""
    change = functools.partial(QueueControl(keys).set_priority, priority=priority)
    return (yield from _changed(keys, runs, change, permit))


def _changed(
    keys: Keys,
    runs: Sequence[Run],
    change: Callable[[Sequence[Run | JudgedRun]], Call[list[T]]],
    permit: RunPermit | None,
) -> Operation[list[tuple[Run, T]]]:
    results: list[tuple[Run, T]] = []
    for batch in slices(checked_runs(runs), PAGE):
        done = yield change((yield from permitted(keys, batch, permit)))
        results += zip(batch, done, strict=True)
    return results


def latest(
    keys: Keys, *, count: int, queue: str | None = None, tell_refused: TellRefused
) -> Operation[list[tuple[str, HistoryEntry]]]:
    """Read at most ``count`` ended attempts with their queues, newest first, of all queues or of one."""
    found: list[tuple[str, HistoryEntry]] = []

    def read(name: str) -> Operation[None]:
        found.extend((name, entry) for entry in (yield QueueReads(keys).recent(name, count)))

    yield from of_each(keys, queue, read, tell_refused=tell_refused)
    return sorted(found, key=lambda each: each[1].ended_ms, reverse=True)[:count]


def running(
    keys: Keys, *, count: int, queue: str | None = None, tell_refused: TellRefused
) -> Operation[list[RunningRun]]:
    """Read at most ``count`` runs that are executed, of all queues or of one."""
    found: list[RunningRun] = []

    def read(name: str) -> Operation[None]:
        if len(found) < count:
            pages_of = functools.partial(QueueReads(keys).running, name)
            found.extend((yield from pages(pages_of, count=count - len(found))))

    yield from of_each(keys, queue, read, tell_refused=tell_refused)
    return found[:count]


def show(keys: Keys, run_id: str, *, is_thorough: bool = False) -> Operation[RunDetails]:
    """Read one run, its steps, and the sums of the runs below it.

    ``is_thorough``: the whole history is searched, one queue at a time to hold nobody up.

    Raises:
        UnknownRunError: nothing is known about it.
    """
    view = yield from search(QueueReads(keys), run_id)
    if is_thorough and (view is None or (view.state == "finished" and not view.history)):
        view = (yield from _long_ended(keys, run_id)) or view
    try:
        below = yield Tallies(keys).read(run_id)
        steps = yield Tallies(keys).steps(run_id)
    except ValueError:  # no run can have this id
        below, steps = None, {}
    if view is None and below is None and not steps:
        hint = "or its history is gone; `tenure runs list` shows the latest"
        raise UnknownRunError(run_id, f"no run is called {run_id[:200]!r}, {hint}")
    return RunDetails(view, below, steps)


def tally_row(tally: Tally) -> dict[str, Any]:
    """Return the sums of the runs below one, as they may be shown."""
    names = ("run", "code", "message")
    return {
        "total": tally.total,
        "remaining": tally.left,
        **tally.outcomes,
        "counts": tally.counts,
        "errors": tally.errors,
        "first_errors": [{name: mask_text(str(each.get(name, ""))) for name in names} for each in tally.first_errors],
        "then": tally.waiting,
    }


def _long_ended(keys: Keys, run_id: str) -> Operation[RunView | None]:
    for queue in (yield QueueReads(keys).names()):
        try:
            view: RunView | None = yield QueueReads(keys).show(run_id, [queue], scan=HISTORY)
        except StoreRefusedError as error:
            if error.concerns_client:
                raise
            continue  # a key that is not ours: the run may be in another queue
        if view is not None and view.history:
            return view
    return None


def permitted(keys: Keys, runs: Sequence[Run], permit: RunPermit | None) -> Operation[Sequence[JudgedRun]]:
    """Return ``runs`` with the queue and the job by which each was judged; without ``permit`` with no job.

    Raises:
        UnknownRunError: an unknown run cannot be permitted.
    """
    if permit is None:
        return [(queue, run_id, "") for queue, run_id in runs]
    found: list[JudgedRun] = []
    for queue, run_id in runs:
        shown = yield from search(QueueReads(keys), run_id, queue)
        if shown is None or shown.envelope is None:
            raise UnknownRunError(run_id)
        labels: Mapping[str, str] = {}
        if shown.envelope.schedule is not None:
            (schedule,) = yield Views(keys).inspect([shown.envelope.schedule])
            with suppress(msgspec.DecodeError):  # a newer version wrote it: its labels are unknown
                labels = {} if schedule.record is None else schedule.record.definition().labels
        job = shown.envelope.template.job
        permit(job, shown.queue, labels)
        found.append((shown.queue, run_id, job))
    return found


EVERY_S = 1.0
_ENDS = frozenset({"finished", "dead", "unknown"})


def logs(keys: Keys, run_id: str, *, attempt: int | None = None) -> Operation[list[AttemptLog]]:
    """Read the output that is kept of a run, or of one attempt, the oldest execution first.

    Raises:
        InvalidRunError: no run can have the id.
        UnknownRunError: nothing is known about the run.
    """
    checked_runs([("", run_id)])
    found: list[AttemptLog] = yield RunLogs(keys).read(run_id)
    if not found:
        yield from show(keys, run_id)
    return _of_attempt(found, attempt)


def _of_attempt(logs: list[AttemptLog], attempt: int | None) -> list[AttemptLog]:
    return [log for log in logs if attempt is None or log.attempt == attempt]


def follow_logs(
    keys: Keys, run_id: str, tell: Callable[[AttemptLog, str], object], *, attempt: int | None = None
) -> Operation[None]:
    """Tell the output of a run as it grows, until the run has ended; see ``logs``.

    ``tell`` is called with an output and the text that is new in it.
    """
    yield from logs(keys, run_id)
    told: dict[int, int] = {}
    is_over = False
    while not is_over:
        view = yield from search(QueueReads(keys), run_id, need="end")
        is_over = view is None or view.state in _ENDS  # asked before its output, which then is the last
        for log in _of_attempt((yield RunLogs(keys).read(run_id)), attempt):
            text, told[log.number] = text_after(log, told.get(log.number, 0))
            if text:
                tell(log, text)
        if not is_over:
            yield Delay(EVERY_S)


def text_after(log: AttemptLog, lines: int = 0) -> tuple[str, int]:
    """Return what follows the first ``lines`` lines of an output, and how many lines it has by now.

    A line may lie across the cut: ``head`` then ends and ``tail`` begins inside it. An output that has ended counts one
    line more, since nothing follows a last line without its end.
    """
    head, tail = log.head.splitlines(keepends=True), log.tail.splitlines(keepends=True)
    shown = head[lines:]
    first = log.head.count("\n") + log.cut_lines  # the line that the tail begins in
    if log.cut_chars:
        if lines < first or (lines == first and (tail or not log.is_open)):
            end_of_line = "\n" if shown and not shown[-1].endswith("\n") else ""
            missing = first - max(lines, log.head.count("\n"))
            shown.append(f"{end_of_line}… {missing} lines cut ({log.cut_chars} characters in all) …\n")
        tail = tail[max(0, lines - first) :]
    total = first + log.tail.count("\n") + (not log.is_open)
    return "".join(shown + tail), max(lines, total)
