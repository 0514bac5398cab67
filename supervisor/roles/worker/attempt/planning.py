"""Planners: jobs that yield the runs which they want, as ``Context.spawn`` takes them.

Guarantees
    All of them come into being with the acknowledgement, or none (adr/0018): one that fails half-way planned nothing.
    A planner that yields nothing has finished.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.driver import Calls


@lru_cache(maxsize=1024)
def is_planner(function: Callable[..., Any]) -> bool:
    """Return whether ``function`` yields runs instead of doing something itself."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def spawn_all(runs: Any, context: Context) -> Calls:
    """Spawn the children that a planner yields; its end is the planner's."""
    is_async = inspect.isasyncgen(runs)
    take = partial(anext if is_async else next, runs)
    while True:
        item, error = yield take
        if error is None:
            try:
                spawn(item, context)
            except BaseException as refused:  # noqa: BLE001 - the planner is closed, and has failed by it
                error = refused
        if error is not None:
            break
    _, unclosed = yield runs.aclose if is_async else runs.close
    if unclosed is not None:
        return None, unclosed
    if isinstance(error, StopIteration | StopAsyncIteration):
        return getattr(error, "value", None), None
    return None, error


def spawn(item: Any, context: Context) -> str:
    """Spawn one run: a job; or job and arguments; or job, arguments and options of ``Context.spawn``.

    Raises:
        TypeError: it is none of these.
    """
    parts = item if isinstance(item, tuple) else (item,)
    job, args, options = (*parts, None, None, None)[:3]
    is_job = isinstance(job, str) or callable(job)
    if len(parts) > 3 or not is_job or not all(part is None or isinstance(part, Mapping) for part in (args, options)):
        raise TypeError(
            f"planner {context.job} yielded {type(item).__name__} of {len(parts)}; it yields a job, (job, arguments) "
            f"or (job, arguments, options), such as (collect, {{'tenant': 1}}, {{'key': 1}})"
        )
    return context.spawn(job, args, **(options or {}))
