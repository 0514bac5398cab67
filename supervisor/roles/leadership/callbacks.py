"""Callbacks of a leadership: each start has its stop, in order, one call at a time.

Guarantees
    A stop is due for each term that was started, with the same epoch and before the next start, however many terms
    went by while a callback ran. A term that began and ended meanwhile is neither started nor stopped.

Does not guarantee
    That a stop comes before another program leads: a callback that hangs holds up the next one, never the lease.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import NamedTuple

Told = Callable[[], object]


def ignore(_value: object) -> None:
    """Do nothing."""


class LeaderSeen(NamedTuple):
    """State of a leadership at one moment."""

    epoch: int  # of the term that this program may act on; 0: none
    leader: str | None  # as last seen


class Callbacks:
    """The functions of a program, and what they were told."""

    def __init__(
        self,
        *,
        on_started: Callable[[int], object] | None,
        on_stopped: Callable[[int], object] | None,
        on_changed: Callable[[str | None], object] | None,
    ) -> None:
        self._on_started = on_started or ignore
        self._on_stopped = on_stopped or ignore
        self._on_changed = on_changed or ignore
        self._told = LeaderSeen(0, None)

    @property
    def has_coroutines(self) -> bool:
        """True if one is a coroutine function, which needs an event loop."""
        return any(map(iscoroutinefunction, (self._on_started, self._on_stopped, self._on_changed)))

    def due(self, now: LeaderSeen) -> Told | None:
        """Return the next call that is due, which counts as made; None: all is told."""
        told = self._told
        if told.epoch not in {0, now.epoch}:
            self._told = told._replace(epoch=0)
            return partial(self._on_stopped, told.epoch)
        if told.leader != now.leader:
            self._told = told._replace(leader=now.leader)
            return partial(self._on_changed, now.leader)
        if told.epoch != now.epoch:
            self._told = told._replace(epoch=now.epoch)
            return partial(self._on_started, now.epoch)
        return None
