"""Work that may hang, on threads that nobody has to wait for.

They are daemons of their own: an executor's threads are few, shared with everything else in the program,
and joined when it ends.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
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
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on nobody can cancel it: its result has to go somewhere

    def act() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - the caller's to judge
            future.set_exception(error)

    start(act, name)
    try:
        return await asyncio.wrap_future(future)
    except BaseException:
        if discard is not None:
            future.add_done_callback(lambda done: None if done.exception() else discard(done.result()))
        raise
