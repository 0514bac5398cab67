"""Runs the scheduler: one thread, one connection, woken by signals.

Guarantees
    It beats at least every half second, also while it waits and while Redis is away.
    TERM, or a board that drains, ends it after the batch in flight; QUIT ends it too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from random import Random
from typing import Any

from supervisor.core.board import ChildState, Phase
from supervisor.core.errors import EXIT_OK
from supervisor.core.lease import MS
from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.planner import Scheduler
from supervisor.roles.scheduler.reporting import SchedulerReport
from supervisor.roles.seat import Seat
from supervisor.roles.steps import Ask, Step, drive
from supervisor.roles.wakeup import Wakeup
from supervisor.store.client import Store
from supervisor.store.keys import Keys
from supervisor.store.schedules import Schedules

BEAT_NS = 400 * MS
CALL_TIMEOUT_S = 1.0


class Driver:
    """Does for the scheduler what it asks for."""

    def __init__(self, seat: Seat, definitions: Sequence[ScheduleDef]) -> None:
        self._seat = seat
        self._clock = seat.clock
        settings = seat.settings
        self._store = Store.connect(
            seat.redis_url,
            settings=settings.redis,
            name=f"{settings.cluster}:scheduler",
            timeout_s=CALL_TIMEOUT_S,
            clock=seat.clock,
        )
        self._wakeup = Wakeup(seat.clock)
        self._scheduler = Scheduler(
            schedules=Schedules(Keys(settings.cluster)),
            board=seat.board,
            clock=seat.clock,
            definitions=definitions,
            lease_ms=int(settings.election.lease_duration_s * 1000),
            is_stopping=self._is_stopping,
            report=SchedulerReport(),
            rng=Random(os.urandom(16)),  # noqa: S311 - it spreads retries
        )

    def run(self) -> int:
        """Serve terms until told to stop."""
        try:
            self._say(ChildState.READY)
            drive(self._scheduler.run(), self._execute)
            self._say(ChildState.DRAINING)
            return EXIT_OK
        finally:
            self._wakeup.close()
            self._store.close()

    def _is_stopping(self) -> bool:
        return self._wakeup.is_draining or self._seat.board.header.phase >= Phase.DRAINING

    def _execute(self, step: Step) -> Any:
        self._beat()
        if isinstance(step, Ask):
            answer = self._store.run(step.call, timeout_s=step.timeout_ns / 1e9)
            self._seat.row.redis_ok_ns = self._clock.elapsed_ns()
            return answer
        # One slice: the scheduler looks at everything again after each wake, and each wake is a beat.
        self._wakeup.wait(min(step.until_ns, self._clock.elapsed_ns() + BEAT_NS))
        return None

    def _beat(self) -> None:
        row = self._seat.row
        row.progress += 1
        row.beat_ns = self._clock.elapsed_ns()

    def _say(self, state: ChildState) -> None:
        row = self._seat.row
        row.child_generation = self._seat.generation
        row.child_state = state
        self._beat()
        os.kill(self._seat.parent_pid, signal.SIGURG)


def main(seat: Seat, definitions: Sequence[ScheduleDef]) -> int:
    """Run the scheduler of ``seat`` with the schedules of its configuration; return the exit code."""
    return Driver(seat, definitions).run()
