"""Drivers of generators that yield effects: they are sent each answer, or are thrown the error.

Only errors that Tenure raises on purpose reach the generator, unless other ``errors`` are named; anything else is a
wrong program and ends the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from supervisor.core.errors import TenureError

E = TypeVar("E")
T = TypeVar("T")


def drive(
    effects: Generator[E, Any, T], execute: Callable[[E], Any], *, errors: type[BaseException] = TenureError
) -> T:
    """Run ``effects`` to its end on ``execute`` and return its result."""

    async def at_once(effect: E) -> Any:
        return execute(effect)

    try:
        drive_async(effects, at_once, errors=errors).send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waited, although nothing here is awaited")


async def drive_async(
    effects: Generator[E, Any, T], execute: Callable[[E], Awaitable[Any]], *, errors: type[BaseException] = TenureError
) -> T:
    """Run ``effects`` to its end on ``execute``, awaited, and return its result."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            effect = effects.send(answer) if error is None else effects.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            answer = await execute(effect)
        except errors as raised:
            error = raised
