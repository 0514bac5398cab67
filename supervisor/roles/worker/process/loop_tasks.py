"""Tasks of the worker in the event loop that it shares with its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def own_task(work: Coroutine[Any, Any, T], context: Context) -> asyncio.Task[T]:
    """Begin ``work`` in ``context``, in the loop's next turn.

    Without the loop's task factory: one that a job set there may take no context, or begin at once.
    """
    return asyncio.Task(work, loop=asyncio.get_running_loop(), context=context)
