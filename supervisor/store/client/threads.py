"""Work that may hang, on threads that nobody has to wait for.

They are daemons of their own: an executor's threads are few, shared with everything else in the program,
and joined when it ends.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def start(work: Callable[[], None], name: str) -> threading.Thread:
    """Start ``work`` and return its thread.

    Raises:
        OSError: the system has no thread to give.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "the system has no thread to give") from error
    return thread


async def result_of(work: Callable[[], T], name: str, *, discard: Callable[[T], None] | None = None) -> T:
    """Return the result of ``work``, or raise its error; when the caller is cancelled, ``discard`` gets it.

    Raises:
        OSError: the system has no thread to give.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: Exception | None) -> None:
        if future.done():
            if error is None and discard is not None:
                discard(found)  # type: ignore[arg-type]
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)  # type: ignore[arg-type]

    def act() -> None:
        found, failure = None, None
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - the caller's to judge
            failure = error
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found, failure)
            return
        if failure is None and discard is not None:  # the loop is closed
            discard(found)  # type: ignore[arg-type]

    start(act, name)
    return await future
