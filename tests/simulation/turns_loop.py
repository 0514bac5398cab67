"""Event loops under one driven clock: several real asyncio programs in one thread, each of which can stop for ever.

A process that is killed between two steps is a loop that is not stepped any more.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Coroutine
from typing import Any

BURIAL_STEPS_MAX = 10_000


class Timeline:
    """The time of the machine that every loop runs on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def elapsed_ns(self) -> int:
        """Return the time that a process measures with."""
        return round(self.now_s * 1e9)

    def wall_ms(self) -> int:
        """Return the time of people."""
        return 1_700_000_000_000 + round(self.now_s * 1e3)


class DrivenLoop(asyncio.SelectorEventLoop):
    """A loop whose time is the timeline's, and which is driven step by step from outside."""

    # What the base class has and does not say in its types.
    _ready: Any
    _scheduled: list[Any]

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def time(self) -> float:
        """Return the driven time."""
        return self._timeline.now_s

    def due_s(self) -> float | None:
        """Return when this loop has something to do; None: it waits for others."""
        if self._ready:
            return self._timeline.now_s
        while self._scheduled and self._scheduled[0].cancelled():
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._timer_cancelled_count -= 1
        return float(self._scheduled[0].when()) if self._scheduled else None

    def step(self) -> None:
        """Do what is due now."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)


class Program:
    """One asyncio program: its loop, and how it ended."""

    def __init__(self, timeline: Timeline) -> None:
        self.loop = DrivenLoop(timeline)
        self._timeline = timeline
        self._task: asyncio.Task[Any] | None = None
        self.is_killed = False

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        """Begin it; its steps are taken by ``step``."""
        self._task = self.loop.create_task(main)

    @property
    def is_over(self) -> bool:
        """Whether it was killed or has ended by itself."""
        return self.is_killed or (self._task is not None and self._task.done())

    @property
    def failure(self) -> BaseException | None:
        """What it ended with."""
        return None if self.is_killed or self._task is None else self._task.exception()

    def due_s(self) -> float | None:
        """Return when it has something to do."""
        return None if self.is_over else self.loop.due_s()

    def bury(self) -> None:
        """Let what is left of it come to its end, once nothing that it does has an effect any more."""
        for _ in range(BURIAL_STEPS_MAX):
            tasks = asyncio.all_tasks(self.loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            due_s = self.loop.due_s()
            assert due_s is not None, "a killed program waits for nothing"
            self._timeline.now_s = max(self._timeline.now_s, due_s)
            self.loop.step()
        self.loop.close()
