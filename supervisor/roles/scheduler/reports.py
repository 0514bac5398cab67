"""Reports of the leader about the plan: changes since its last report, and promises that are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

from supervisor.core.effects import Reporter, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.fenced_client import FencedClient
from supervisor.roles.scheduler.fire_items import DueSchedule
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.fire import DueReply, LatenessChange, LatenessReply, PlanItem

ANNOUNCED_MAX = 200  # schedules that get a log line of their own in a term
NAMED_MAX = 10  # schedules named in one line


class CappedReports:
    """Reports changes since its last report."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._overdue = 0
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self._is_first = True
        self._announced = 0
        self._foreign = ""

    def read(self, reply: DueReply, *, refused: int) -> None:
        """Report how many schedules there are, and that some are overdue."""
        if self._is_first:
            self._report("term_read", schedules=reply.defined)
            self._is_first = False
        if reply.overdue and not self._overdue:
            self._report("schedule_overdue", count=reply.overdue, reason="due more than a minute ago")
        self._overdue = reply.overdue
        if reply.foreign and reply.foreign != self._foreign:
            self._report("reading_refused", what=reply.foreign, error="a key of this cluster holds another type")
        self._foreign = reply.foreign
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


LATENESS_NS = 5000 * MILLISECOND_NS


class Lateness:
    """Reports schedules that break what they promise about their runs, and those that keep it again.

    Asks once a period, and again at once after a reply with changes.

    Guarantees
        One call for all schedules each period. A change is reported before Redis is told that it was, so a lost reply
        or a leader that dies loses none.

    Does not guarantee
        One report: a leader that dies right after it leaves it to the next one to report the change once more.
    """

    def __init__(self, schedules: Schedules, client: FencedClient, *, period_ns: int = LATENESS_NS) -> None:
        self._schedules = schedules
        self._client = client
        self._period_ns = period_ns
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self._told: list[LatenessChange] = []
        self.wake_ns = self._client.clock.elapsed_ns() + self._period_ns

    def work(self, term: Term) -> Steps[bool]:
        """Ask if it is time; return whether it was.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
        """
        if self._client.clock.elapsed_ns() < self.wake_ns:
            return False
        call = self._schedules.lateness(term, told=self._told)
        self.wake_ns = self._client.clock.elapsed_ns() + self._period_ns
        try:
            reply: LatenessReply = yield from self._client.ask(term, call)
        except StoreRefusedError as error:
            self._client.report("reading_refused", what="expectations", error=str(error))
            return True
        self._client.report("schedules_late", count=reply.late)
        for _, changes in groupby(sorted(reply.changes, key=_schedule), _kind):  # an outage breaks many at once
            self._report(list(changes))
        self._told = reply.changes
        if reply.changes:
            self.wake_ns = self._client.clock.elapsed_ns()
        return True

    def _report(self, changes: Sequence[LatenessChange]) -> None:
        """Report ``changes`` of one kind of one schedule."""
        change, count = changes[-1], len(changes)
        if change.is_over:
            self._client.report("schedule_recovered", schedule=change.schedule)
            return
        if change.run:
            promise, why = "finish_within", f"{change.run} has not ended ok in time"
            if count > 1:
                why = f"{count} runs have not ended ok in time, {changes[0].run} to {change.run}"
        else:
            since = datetime.fromtimestamp(change.since_ms / 1000, UTC).isoformat(timespec="seconds")
            promise, why = "expect_success_every", f"no run of it ended ok since {since}"
        self._client.report("schedule_late", schedule=change.schedule, promise=promise, why=why, count=count)


def _schedule(change: LatenessChange) -> str:
    return change.schedule


def _kind(change: LatenessChange) -> tuple[str, bool, bool]:
    return change.schedule, change.is_over, bool(change.run)
