"""Signals that the event loop of an async pool handles, beside jobs that may handle the same ones for a while.

Guarantees
    A signal that a job leaves at its default action, as ``loop.remove_signal_handler`` does, is handled again from the
    end of the next run, 0.2 s later at the latest: by that action it would end the process with all its runs.
    A handler that a job leaves is replaced once no run is executed; until then its program may count on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module

_handler_of = import_module("_signal").getsignal  # asked for each run: without the search for an enum that fits


class LoopSignals:
    """Handlers of a process whose main thread runs the loop."""

    def __init__(self, actions: Mapping[int, Callable[[], None]]) -> None:
        """Build it; ``actions`` are called in the loop, by signal."""
        self._actions = actions
        self._handler: object = None  # of the loop, the same for all

    def take(self, *, is_idle: bool) -> None:
        """Handle the signals that nobody handles, and where ``is_idle``, no run being executed, those of others too."""
        for number, action in self._actions.items():
            found = _handler_of(number)
            if not callable(found) or (is_idle and found != self._handler):
                asyncio.get_running_loop().add_signal_handler(number, action)
                self._handler = _handler_of(number)
