"""Drivers of an attempt: they make the calls that its generator yields, in a plain thread or in an event loop.

Guarantees
    The end of a call is a value: what it returned, or the exception that it raised. So nothing that ends a call, not
    a soft timeout, a cancellation or ``StopIteration`` either, ends the generator before its last step.
    The code of the caller, hooks, middleware and jobs alike, is entered by ``enter`` and by nothing else in a plain
    thread: the signals of a sync pool interrupt it there (pools/signals.py), and never the generator or its driver.

Does not guarantee
    Anything about an exception that the generator raises itself: it has a fault, and its attempt fails by it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Ended = tuple[Any, BaseException | None]
"""Value and error of a call; the error decides."""

Calls = Generator[Callable[[], Any], Ended, Ended]
"""Calls without arguments, each answered by its end; the end of the whole is returned."""


def enter(call: Callable[[], T]) -> T:
    """Call code that may be interrupted."""
    return call()


def drive(attempt: Callable[..., Calls], /, *args: Any, **arguments: Any) -> Any:
    """Drive ``attempt(*args, arguments)`` to its end; return its value, or raise its error."""
    calls = attempt(*args, arguments)
    ended: Any = None
    try:
        while True:
            call = calls.send(ended)
            try:
                ended = enter(call), None
            except BaseException as error:  # noqa: BLE001 - the generator decides what it means
                ended = None, error
    except StopIteration as done:
        ended = done.value
    if ended[1] is not None:
        try:
            raise _without_ours(ended[1], frames=2)
        finally:
            del ended  # it would keep the frames of its traceback, and they it
    return ended[0]


async def drive_async(attempt: Callable[..., Calls], /, *args: Any, **arguments: Any) -> Any:
    """Drive ``attempt(*args, arguments)``, whose calls return awaitables."""
    calls = attempt(*args, arguments)
    ended: Any = None
    try:
        while True:
            call = calls.send(ended)
            try:
                ended = await call(), None
            except BaseException as error:  # noqa: BLE001 - the generator decides what it means
                ended = None, error
    except StopIteration as done:
        ended = done.value
    if ended[1] is not None:
        try:
            raise _without_ours(ended[1], frames=1)
        finally:
            del ended
    return ended[0]


def _without_ours(error: BaseException, *, frames: int) -> BaseException:
    """Return ``error`` without the outermost frames of its traceback: the record of a failure shows the job's."""
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace is not None else None
    return error.with_traceback(trace)
