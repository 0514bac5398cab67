"""Runs the scheduler: one thread, a connection for questions and one that listens for changes, woken by signals too.

Guarantees
    It beats at least every half second, also while it waits and while Redis is away.
    TERM, or a board that drains, ends it after the batch in flight; QUIT ends it too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from supervisor.core.cron import zones
from supervisor.core.effects import drive
from supervisor.core.errors import EXIT_OK
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.scoreboard import ChildState, Phase
from supervisor.core.units import MILLISECOND_NS
from supervisor.reload.config_memfd import HandoverError
from supervisor.roles.child import Following, Seat
from supervisor.roles.effects import RunScript, Step, Watch
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.roles.scheduler.reporting import SchedulerReport
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.roles.wakeup import Wakeup
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.client.listening import ParkedStore
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules

BEAT_NS = 400 * MILLISECOND_NS
CALL_TIMEOUT_S = 1.0


class Driver:
    """Carries out the steps of the scheduler."""

    def __init__(self, seat: Seat, definitions: Sequence[ScheduleDef]) -> None:
        self._seat = seat
        self._clock = seat.clock
        settings = seat.settings
        self._keys = Keys(settings.cluster)
        self._store = ParkedStore.connect(
            seat.redis_url,
            settings=settings.redis,
            name=f"{settings.cluster}:scheduler",
            timeout_s=CALL_TIMEOUT_S,
            clock=seat.clock,
            follow=seat.board,
        )
        self._wakeup = Wakeup(seat.clock)
        self._following = Following(seat)
        self._digest = schedules_digest(definitions) if definitions else ""
        report = SchedulerReport()
        rate = settings.scheduler.catchup_rate
        self._scheduler = Scheduler(
            schedules=Schedules(self._keys),
            board=seat.board,
            clock=seat.clock,
            definitions=definitions,
            lease_ms=int(settings.election.lease_duration_s * 1000),
            is_stopping=self._is_stopping,
            report=report,
            rng=Random(os.urandom(16)),  # noqa: S311 - it spreads retries
            catchup_rate=rate,
            allow_empty=settings.scheduler.allow_empty_static,
            backfills=Backfills(self._keys, clock=seat.clock, report=report, rate_per_s=rate),
            zones_version=zones.database_version(),
        )

    def run(self) -> int:
        """Serve terms until asked to stop."""
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
        if isinstance(step, RunScript):
            answer = self._store.run(step.call, timeout_s=step.timeout_ns / 1e9, meanwhile=step.meanwhile)
            self._seat.row.redis_ok_ns = self._clock.elapsed_ns()
            return answer
        now_ns = self._clock.elapsed_ns()
        if isinstance(step, Watch):
            also = self._store.park(self._keys.schedule_changes, step.last_id)
            self._wakeup.wait(min(step.until_ns, now_ns + BEAT_NS), also)
            self._beat()
            return self._store.collect()
        # One slice: the scheduler looks at everything again after each wake, and each wake is a beat.
        self._wakeup.wait(min(step.until_ns, now_ns + BEAT_NS))
        return None

    def _beat(self) -> None:
        row = self._seat.row
        row.progress += 1
        row.beat_ns = self._clock.elapsed_ns()
        if number := self._following.poll():
            self._follow(number)

    def _follow(self, number: int) -> None:
        """Bring in the schedules of configuration ``number``, under the same term."""
        assert self._seat.handover is not None
        with suppress(HandoverError):  # else the one after the next is there already, and the next look finds it
            digest = self._seat.handover.brief(number).schedules_digest
            if digest != self._digest:
                self._scheduler.redeclare(self._seat.handover.definitions(number))
                self._digest = digest

    def _say(self, state: ChildState) -> None:
        row = self._seat.row
        row.child_generation = self._seat.generation
        row.child_state = state
        self._beat()
        os.kill(self._seat.parent_pid, signal.SIGURG)


def main(seat: Seat, definitions: Sequence[ScheduleDef]) -> int:
    """Run the scheduler of ``seat`` with the schedules of its configuration; return the exit code."""
    return Driver(seat, definitions).run()
