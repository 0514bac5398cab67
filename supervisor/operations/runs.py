"""Operations on runs.

Guarantees
    A cancellation that ``permit`` allowed ends the run that it was shown: in the queue where it was found, although
    two queues can hold runs of the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from supervisor.core.errors import EXIT_USAGE, TenureError
from supervisor.operations import Operation, slices
from supervisor.store.keys import Keys, check_name
from supervisor.store.queues.control import PAGE, Cancelled, QueueControl, Run
from supervisor.store.queues.reads import QueueReads
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.envelope import check_run_id

RunPermit = Callable[[str, str, Mapping[str, str]], None]
"""Raises unless the asker reaches the run of a job, in a queue, of a schedule with labels."""


class InvalidRunError(TenureError):
    """The id of a run or the name of a queue that none can have."""

    exit_code = EXIT_USAGE
    http_status = 400


class UnknownRunError(TenureError):
    """No unfinished run has the id."""

    http_status = 404

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no unfinished run {run_id[:200]!r}")


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

    Args:
        keys: of the cluster.
        runs: queue and id of each; an empty queue is any.
        history: how many ended attempts each queue remembers.
        by: who asks, for the history.
        reason: for people, cut at 200 characters.
        kill_ms: how long one that runs may go on before its process is killed; 0: for ever.
        permit: called with job, queue and labels of each run; raises to refuse.

    Raises:
        InvalidRunError: no run can have the id, or no queue the name. None is ended.
        UnknownRunError: with ``permit`` only: an unknown run cannot be permitted.
    """
    results: list[tuple[Run, Cancelled]] = []
    for batch in slices(checked_runs(runs), PAGE):
        found = batch if permit is None else (yield from _permitted(keys, batch, permit))
        done = yield QueueControl(keys, history=history).cancel(found, by=by, reason=reason, kill_ms=kill_ms)
        results += zip(batch, done, strict=True)
    return results


def _permitted(keys: Keys, runs: Sequence[Run], permit: RunPermit) -> Operation[list[Run]]:
    """Return ``runs`` with the queue in which each was judged."""
    found: list[Run] = []
    for queue, run_id in runs:
        shown = yield QueueReads(keys).show(run_id, [queue] if queue else None)
        if shown is None or shown.envelope is None:
            raise UnknownRunError(run_id)
        labels: Mapping[str, str] = {}
        if shown.envelope.schedule is not None:
            (schedule,) = yield Views(keys).inspect([shown.envelope.schedule])
            with suppress(msgspec.DecodeError):  # a newer version wrote it: its labels are unknown
                labels = {} if schedule.record is None else schedule.record.definition().labels
        permit(shown.envelope.template.job, shown.queue, labels)
        found.append((shown.queue, run_id))
    return found
