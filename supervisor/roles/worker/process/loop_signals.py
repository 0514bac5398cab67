"""Signals that the event loop of an async pool handles, beside jobs that handle the same ones for a while.

Guarantees
    A signal whose action a job changed for the process, or put back to the default, is handled by the loop again from
    the end of the next run, 0.2 s later at the latest: it would end the process with all its runs, or raise in
    another's. A handler that it took away is called behind the pool's action from then on, by the loop.
    Actions are called in the context of the pool, whichever run ended when its signal was taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from importlib import import_module
from signal import Signals

_handler_of = import_module("_signal").getsignal  # asked for each run: without the search for an enum that fits


class LoopSignals:
    """Handlers of a process whose main thread runs the loop."""

    def __init__(self, actions: Mapping[Signals, Callable[[], None]]) -> None:
        """Build it; ``actions`` are called in the loop, by signal."""
        self._actions = actions
        self._handler: object = None  # of the loop, the same for all
        self._context = copy_context()

    def take(self) -> None:
        """Handle those signals that others do, or nobody."""
        for number, action in self._actions.items():
            if (found := _handler_of(number)) != self._handler:
                handle = partial(_handle, number, action, found)
                self._context.run(asyncio.get_running_loop().add_signal_handler, number, handle)
                self._handler = _handler_of(number)


def _handle(number: int, action: Callable[[], None], other: object) -> None:
    action()
    if callable(other):
        other(number, None)
