"""Event loops that plain jobs run: which of their code loses an exception that a signal raises in it.

asyncio takes any exception of a callback for the callback's own, logs it and goes on; its transports take one for a
lost connection. What is raised in the loop itself may cost it a callback that it was about to call, and so a task that
never ends. Two places let the exception out: code of a coroutine, to whoever awaits it, and the wait of an idle loop.

Does not guarantee
    That somebody awaits the coroutine. That a loop without frames of its own (uvloop) calls no callback just then.
"""

from __future__ import annotations

from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE
from types import FrameType

_AWAITED = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR
_LOOPS = ("asyncio.", "uvloop.")
_RUNNERS = "asyncio.runners"  # around every loop: it says nothing about the code that it calls
_WAIT = ("selectors", "asyncio.base_events")


def would_lose(frame: FrameType | None) -> bool:
    """Return whether an exception that is raised in ``frame`` would not reach the code that runs the event loop."""
    inner = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_LOOPS) and not (inner and module == _RUNNERS):
            return (inner, module) != _WAIT
        if frame.f_code.co_flags & _AWAITED:
            return False
        inner, frame = module, frame.f_back
    return False
