"""Work that a job or callback returned instead of doing it: coroutines, requests, generators."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeGuard

from supervisor.core.model import Kind
from supervisor.store.producer.run_handle import must_be_awaited

_SUBMITTED = frozenset({"Executor.map.<locals>.result_iterator", "_chain_from_iterable_of_lists"})
"""Generators of concurrent.futures, of threads and of processes: their work was begun."""


def is_undone(value: Any, kind: Kind = Kind.ASYNC) -> bool:
    """Return whether a job or callback returned what it had to await or iterate to its end: its work was not done.

    Of a job of an async pool, an object that can be awaited and is no coroutine may be a client that is open.
    """
    if type(value) is CoroutineType:
        return value.cr_frame is not None
    if type(value) is GeneratorType:
        return value.gi_frame is not None and value.gi_code.co_qualname not in _SUBMITTED
    if type(value) is AsyncGeneratorType:
        return value.ag_frame is not None
    return issubclass(type(value), Coroutine) or (kind is Kind.SYNC and must_be_awaited(value))


def is_under_way(value: Any) -> TypeGuard[asyncio.Future[Any]]:
    """Return whether a coroutine job returned a task or future: its work goes on, and its pool awaits that."""
    return issubclass(type(value), asyncio.Future)  # a proxy answers for what it stands for, by code of its own


def work_undone(value: Any, what: str = "the job", *, remedy: str = "") -> TypeError:
    """Return the error of ``what``, a job or callback that returned its work instead of doing it; close that."""
    if issubclass(type(value), Coroutine | Generator):
        with suppress(BaseException):  # it may have been begun, and have code that runs at its end
            value.close()
    if must_be_awaited(value):
        remedy = remedy or "await it there, and define jobs with async def"
        return TypeError(f"{what} returned an awaitable that nobody awaits; {remedy}")
    remedy = remedy or "iterate it there; of a planner @job decorates the function itself that yields"
    return TypeError(f"{what} returned a generator that nobody iterates; {remedy}")


def must_be_done(value: Any, remedy: str, kind: Kind = Kind.ASYNC) -> None:
    """Check what a callback of a job of ``kind`` returned.

    Raises:
        TypeError: its work, undone; the error ends with ``remedy``.
    """
    if is_undone(value, kind):
        raise work_undone(value, "it", remedy=remedy)
