"""Calls of the code of others, hooks, middleware and jobs alike.

An attempt is a generator of calls; its drivers make them, in a plain thread or in an event loop.

Guarantees
    The end of a call is a value: what it returned, or the exception that it raised. So nothing that ends a call, not
    a soft timeout, a cancellation or ``StopIteration`` either, ends the generator before its last step.
    A process that a call forked, and that came back out of it, ends there: it makes no call, and undoes nothing.
    In a plain thread signals raise exceptions only in code that ``enter`` called (pools/signals.py).

Does not guarantee
    Anything about an exception that the generator raises itself: it has a fault, and its attempt fails by it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from supervisor.roles.worker.process.forks import Original

T = TypeVar("T")
Ended = tuple[Any, BaseException | None]  # value and error of a call; the error decides
Calls = Generator[Callable[[], Any], Ended, Ended]  # each answered by its end; the end of the whole is returned


def enter(call: Callable[[], T]) -> T:
    """Call code that may be interrupted."""
    return call()


def drive(attempt: Callable[..., Calls], /, *args: Any, **arguments: Any) -> Any:
    """Drive ``attempt(*args, arguments)`` to its end; return its value, or raise its error."""
    calls, original = attempt(*args, arguments), Original()
    ended: Any = None
    try:
        while True:
            ended = _end_of(calls.send(ended))
            original.must_be()
    except StopIteration as done:
        ended = [done.value]
    return _result(ended, frames=2)


async def drive_async(attempt: Callable[..., Calls], /, *args: Any, **arguments: Any) -> Any:
    """Drive ``attempt(*args, arguments)``, whose calls return awaitables."""
    calls, original = attempt(*args, arguments), Original()
    ended: Any = None
    try:
        while True:
            ended = await _end_of_awaited(calls.send(ended))
            original.must_be()
    except StopIteration as done:
        ended = [done.value]
    return _result(ended, frames=1)


def _end_of(call: Callable[[], Any]) -> Ended:
    try:
        return enter(call), None
    except BaseException as error:  # noqa: BLE001 - the generator decides what it means
        return None, error


async def _end_of_awaited(call: Callable[[], Any]) -> Ended:
    try:
        return await call(), None
    except BaseException as error:  # noqa: BLE001 - the generator decides what it means
        return None, error


def _result(last: list[Ended], *, frames: int) -> Any:
    """Return the value, or raise the error without its outermost ``frames``: the record of a failure shows the job's.

    The end is taken out of ``last``: a frame of the traceback that held it would keep the error, and the error it.
    """
    value, error = last.pop()
    if error is None:
        return value
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace is not None else None
    try:
        raise error.with_traceback(trace)
    finally:
        del error, trace
