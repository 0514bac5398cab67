"""Reports of schedules read and planned by the scheduler: at most so many schedules of a term by name."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.roles.effects import Reporter
from supervisor.roles.scheduler.fire_items import DueSchedule
from supervisor.store.wire.fire import DueReply, PlanItem

ANNOUNCED_MAX = 200  # schedules that get a log line of their own in a term
NAMED_MAX = 10  # schedules named in one line


class Telling:
    """Reports changes since its last report."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._overdue = 0
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self._is_first = True
        self._announced = 0

    def read(self, reply: DueReply, *, refused: int) -> None:
        """Report how many schedules there are, and that some are overdue."""
        if self._is_first:
            self._report("term_read", schedules=reply.defined)
            self._is_first = False
        if reply.overdue and not self._overdue:
            self._report("schedule_overdue", count=reply.overdue, reason="due more than a minute ago")
        self._overdue = reply.overdue
        counts = {name: getattr(reply, name) for name in ("defined", "planned", "overdue", "paused", "invalid")}
        self._report("plan", **counts, refused=refused)

    def planned(self, plan: PlanItem, ready: DueSchedule | None) -> None:
        """Report that a schedule has a place in the plan."""
        if plan.set_pause and plan.set_pause != "-":
            self._report("schedule_auto_paused", schedule=plan.seen.schedule, reason="its runs keep failing")
        if ready is None or self._announced >= ANNOUNCED_MAX:
            return
        self._announced += 1
        self._report(
            "schedule_planned",
            schedule=plan.seen.schedule,
            trigger=ready.known.trigger.describe(),
            next_ms=ready.nominal_ms,
        )

    def put_off(self, schedules: Sequence[str], error: str) -> None:
        """Report that Redis refuses ``schedules``."""
        if schedules:
            self._report("schedules_put_off", schedules=schedules[:NAMED_MAX], count=len(schedules), reason=error)

    def accepted(self, schedules: Sequence[str]) -> None:
        """Report that Redis refuses ``schedules`` no longer."""
        if schedules:
            self._report("schedules_accepted_again", schedules=schedules[:NAMED_MAX], count=len(schedules))
