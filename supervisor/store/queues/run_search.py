"""Search for runs in all queues, by pages, so that no step holds the server for long: anybody can make names of queues.

Does not guarantee
    That a run is found which moves meanwhile from a queue of a later page to one of an earlier. Some 2,000 queues are
    one page. A queue whose keys are not ours is passed over: a run of it is as one that is nowhere.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from supervisor.core.effects import Call
from supervisor.store.queues.reads import Need, Page, QueueReads, RunView
from supervisor.store.queues.run_records import RunEnds


def search(
    reads: QueueReads, run_id: str, queue: str = "", *, need: Need = "history"
) -> Generator[Call[Any], Any, RunView | None]:
    """Read everything known about a run in ``queue`` (empty: any); None when nothing is. See ``QueueReads.show``."""
    if queue:
        there: RunView | None = yield reads.show(run_id, [queue], need=need)
        return there
    views: list[RunView] = []
    position = ""
    while position != "0":
        page: Page[RunView | None] = yield reads.show_page(run_id, position or "0", need=need)
        position = page.cursor
        views += [view for view in page.items if view is not None]
    return _joined(views) if views else None


def _joined(views: Sequence[RunView]) -> RunView:
    """Return what pages tell of a run: where it is, of several queues the first by name, else where it ended last."""
    history = [entry for view in views for entry in view.history]
    there = [view for view in views if view.state != "finished"]
    if there:
        shown = min(there, key=lambda view: view.queue)
    else:
        shown = max(views, key=lambda view: max((entry.ended_ms for entry in view.history), default=-1))
    history.sort(key=lambda entry: entry.ended_ms, reverse=True)
    return replace(shown, history=history, ok_queues=tuple(queue for view in views for queue in view.ok_queues))


def await_runs(ends: RunEnds, bell: str, runs: Sequence[tuple[str, str]]) -> Generator[Call[Any], Any, list[str]]:
    """Ask that ``bell`` be told of the end of ``runs``; return the queue of each, empty where it has ended."""
    found, left, position = [""] * len(runs), list(range(len(runs))), "0"
    while left:
        position, queues = yield ends.awaited(bell, [runs[n] for n in left], position)
        for n, queue in zip(left, queues, strict=True):
            found[n] = queue
        left = [n for n in left if not found[n]] if position != "0" else []
    return found
