"""Reports schedules that break what they promise about their runs, and those that keep it again.

Guarantees
    One call for all schedules each period. A change is reported before Redis is told that it was, so a lost reply or a
    leader that dies loses none.

Does not guarantee
    One report: a leader that dies right after it leaves it to the next one to report the change once more.
"""

from __future__ import annotations

from datetime import UTC, datetime

from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.effects import Steps
from supervisor.roles.scheduler.fenced_client import FencedClient
from supervisor.store.schedules.expectations import Expectations, LatenessChange, LatenessReply

PERIOD_NS = 5000 * MILLISECOND_NS


class Lateness:
    """Asks once a period, and again at once after a reply with changes."""

    def __init__(self, expectations: Expectations, client: FencedClient) -> None:
        self._expectations = expectations
        self._client = client
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self._told: list[LatenessChange] = []
        self.wake_ns = self._client.clock.elapsed_ns() + PERIOD_NS

    def work(self, term: Term) -> Steps[bool]:
        """Ask if it is time; return whether it was.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
        """
        if self._client.clock.elapsed_ns() < self.wake_ns:
            return False
        call = self._expectations.check(epoch=term.epoch, nonce=term.nonce, told=self._told)
        self.wake_ns = self._client.clock.elapsed_ns() + PERIOD_NS
        try:
            reply: LatenessReply = yield from self._client.ask(term, call)
        except StoreRefusedError as error:
            self._client.report("reading_refused", what="expectations", error=str(error))
            return True
        self._client.report("schedules_late", count=reply.late)
        for change in reply.changes:
            self._report(change)
        self._told = reply.changes
        if reply.changes:
            self.wake_ns = self._client.clock.elapsed_ns()
        return True

    def _report(self, change: LatenessChange) -> None:
        if change.is_over:
            self._client.report("schedule_recovered", schedule=change.schedule)
        elif change.run:
            why = f"{change.run} has not ended ok in time"
            self._client.report("schedule_late", schedule=change.schedule, promise="finish_within", why=why)
        else:
            since = datetime.fromtimestamp(change.since_ms / 1000, UTC).isoformat(timespec="seconds")
            why = f"no run of it ended ok since {since}"
            self._client.report("schedule_late", schedule=change.schedule, promise="expect_success_every", why=why)
