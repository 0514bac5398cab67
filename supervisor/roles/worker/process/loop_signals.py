"""Signals that the event loop of an async pool handles, beside jobs that handle the same ones for a while.

Guarantees
    A signal whose action a job changed for the process, or put back to the default, is handled by the loop again from
    the next begin or end of a run, 0.2 s later at the latest: it would end the process with all its runs, or raise in
    another's. Each handler that the loop took away (the last ``OTHERS_MAX`` of a signal) is called behind the pool's
    action, by the loop, until the job puts back what it had found there or the default, or no run is left here.
    Actions are called in the context of the pool, whichever run ended when its signal was taken back.
"""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextvars import copy_context
from importlib import import_module
from signal import Signals
from typing import NamedTuple

OTHERS_MAX = 8
_handler_of = import_module("_signal").getsignal  # asked for each run: without the search for an enum that fits


class _Waking:
    """Handler that leaves a signal to the loop, which a descriptor wakes. One that a job puts back tells which job."""

    def __call__(self, number: int, frame: object) -> None:
        pass


class _Other(NamedTuple):
    found: object  # what the job found in place of its own
    handler: Callable[[int, None], object]


class LoopSignals:
    """Handlers of a process whose main thread runs the loop."""

    def __init__(self, actions: Mapping[Signals, Callable[[], None]]) -> None:
        """Build it; ``actions`` are called in the loop, by signal."""
        self._actions = actions
        self._seen: dict[Signals, object] = {}
        self._others: defaultdict[Signals, list[_Other]] = defaultdict(list)
        self._of_loop: object = None  # the same for all signals
        self._context = copy_context()

    def take(self, *, is_idle: bool = False) -> None:
        """Handle those signals that others do, or nobody; ``is_idle``: no run is left that may have set a handler."""
        for number in self._actions:
            if (found := _handler_of(number)) != self._seen.get(number):
                self._take(number, found)
        if is_idle and self._others:
            self._others.clear()

    def _take(self, number: Signals, found: object) -> None:
        others = [other for other in self._others[number] if other.found != found]
        if found == signal.SIG_DFL and len(others) == 1 and asyncio.get_running_loop().remove_signal_handler(number):
            others.clear()  # its job put the default back; the loop has no handler left where it does so for a job
        if callable(found) and found != self._of_loop and not isinstance(found, _Waking):
            others.append(_Other(self._seen.get(number), found))
        self._others[number] = others[-OTHERS_MAX:]
        self._seen[number] = found
        if found == self._of_loop:
            return  # a job handles it by the loop, until it removes its handler
        self._context.run(asyncio.get_running_loop().add_signal_handler, number, self._handle, number)
        self._of_loop = _handler_of(number)
        self._seen[number] = waking = _Waking()
        signal.signal(number, waking)
        signal.siginterrupt(number, False)  # noqa: FBT003 - its parameters have no names

    def _handle(self, number: Signals) -> None:
        known = tuple(self._others[number])  # one that is met later was called as the process's own
        self._actions[number]()
        for other in known:
            self.take()  # a handler that was put back meanwhile is called no more
            if any(each is other for each in self._others[number]):
                other.handler(number, None)
