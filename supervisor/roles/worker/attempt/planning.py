"""Planners: jobs that yield the runs which they want, as ``Context.spawn`` takes them.

Guarantees
    All of them come into being with the acknowledgement, or none (adr/0018): one that fails half-way planned nothing.
    A planner that yields nothing has finished.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, closing
from functools import lru_cache
from typing import Any

from supervisor.roles.worker.attempt.context import Context


@lru_cache(maxsize=1024)
def is_planner(function: Callable[..., Any]) -> bool:
    """Return whether ``function`` yields runs instead of doing something itself."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def spawn_all(runs: Generator[Any, None, Any], context: Context) -> Any:
    """Spawn the children that a plain planner yields; return its result."""
    with closing(runs):
        while True:
            try:
                item = next(runs)
            except StopIteration as done:
                return done.value
            spawn(item, context)


async def spawn_all_async(runs: AsyncGenerator[Any, None], context: Context) -> None:
    """Spawn the children that a coroutine planner yields."""
    async with aclosing(runs):
        async for item in runs:
            spawn(item, context)


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
