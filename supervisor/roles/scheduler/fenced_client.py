"""Fenced calls of the scheduler: under a term that is trusted at that moment, retried until answered.

Batches are asked about in smaller ones where Redis refuses them; standing questions (audit, kept promises, zone data)
are asked once a period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from supervisor.clock import Clock
from supervisor.core.cron.zones import SECOND_MAX
from supervisor.core.effects import Call, Reporter, RunScript, Sleep, Steps
from supervisor.core.election.clock_skew import SKEW_MS_MAX
from supervisor.core.election.lease import Term, retry_delay_ns
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS, NEVER_NS
from supervisor.roles.scheduler.call_failures import CallFailures
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.fire import LatenessChange, LatenessReply

ASK_TIMEOUT_NS = 1000 * MILLISECOND_NS  # below the limit after which the parent calls it hung


def ask_once(call: Call[Any]) -> Steps[Any]:
    """Send ``call`` and return its reply; of an error its caller makes what it will."""
    return (yield RunScript(call, ASK_TIMEOUT_NS))


class TermOverError(TenureError):
    """The board has another term than the one being served, or the tree stops."""


@dataclass(eq=False, kw_only=True)
class FencedClient:
    """Sends calls for whoever decides."""

    board: Board
    clock: Clock
    is_stopping: Callable[[], bool]
    report: Reporter
    rng: Random
    idle_ns: int
    lease_ms: int
    show_life: Callable[[], None]
    """Shows the parent that this process does not hang; done between two schedules, whose due times may take long."""

    def __post_init__(self) -> None:
        self._failures = CallFailures(self.board, self.clock, lease_ns=self.lease_ms * MILLISECOND_NS)

    def now_ms(self) -> int:
        """Return the wall clock's time; Redis' where it is so far ahead that ``fire`` refuses what is due by it.

        The difference is of the latest renewal: a step of either clock is known at the next one.
        """
        ahead_ms = self.board.header.clock_skew_ms
        return self.clock.wall_ms() - (ahead_ms if ahead_ms > SKEW_MS_MAX else 0)

    def ask(self, term: Term, call: Call[Any], meanwhile: Callable[[], None] | None = None) -> Steps[Any]:
        """Send ``call`` until it is answered, while ``term`` is trusted.

        ``meanwhile`` may be done while an answer is awaited, once for each time it is sent, or not at all.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
            StoreRefusedError: Redis refuses the subject of the call; the same again would be refused again.
        """
        failures = 0
        while True:
            yield from self.await_trust(term)
            try:
                answer = yield RunScript(call, ASK_TIMEOUT_NS, meanwhile)
            except (StoreUnavailableError, StoreRefusedError) as error:
                if isinstance(error, StoreRefusedError):
                    self.report("scheduler_refused", script=call.script)
                    self._failures.refused(term, call.script)
                    if not error.concerns_client:
                        raise
                else:
                    self._failures.unanswered(term)
                failures += 1
                self.report("scheduler_unanswered", script=call.script, failures=failures, error=str(error))
                yield Sleep(self.clock.elapsed_ns() + retry_delay_ns(failures, self.rng.random()))
            else:
                self._failures.answered(term, call.script)
                return answer

    def await_trust(self, term: Term) -> Steps[None]:
        """Return while ``term`` is trusted; wait out a lapse of it, and a hold.

        Raises:
            TermOverError: the board has another term, or the tree stops.
        """
        while True:
            current = self.board.term()
            if self.is_stopping() or not same(current, term):
                raise TermOverError(f"epoch {term.epoch} is over")
            if current.is_trusted(self.clock.elapsed_ns()) and not self.board.header.is_held:
                return
            self._failures.lapsed()
            yield Sleep(self.clock.elapsed_ns() + self.idle_ns)


def same(left: Term, right: Term) -> bool:
    """Return whether both are one term, however long each is trusted."""
    return (left.epoch, left.nonce) == (right.epoch, right.nonce)


P = TypeVar("P")

ALONE_MAX = 4


class BatchReply(NamedTuple, Generic[P]):
    """Parts that were asked about together, and the reply; or why Redis refuses them."""

    parts: Sequence[P]
    reply: Any
    error: str = ""


def ask_split(
    client: FencedClient,
    term: Term,
    parts: Sequence[P],
    call_of: Callable[[Sequence[P]], Call[Any]],
    *,
    queue_of: Callable[[P], str] = lambda _: "",
    meanwhile: Callable[[], None] | None = None,
) -> Steps[list[BatchReply[P]]]:
    """Ask about ``parts`` in one call, and in smaller ones if Redis refuses that.

    Guarantees
        One refused part never keeps the others of its batch from being answered. Parts keep their order within a queue.
        A batch of n parts costs at most 2n - 1 calls. When a queue had ``ALONE_MAX`` parts refused one after the other
        and none accepted, its other parts count as refused without being sent.

    Raises:
        TermOverError: the board has another term, or the tree stops.
        FencedError: Redis has another term.
    """
    pending, answers = [list(parts)], []
    refused: Counter[str] = Counter()  # parts of each queue in a row
    error = ""
    while pending:
        asked = pending.pop()
        hopeless = [part for part in asked if refused[queue_of(part)] >= ALONE_MAX] if refused else []
        if hopeless:
            answers.append(BatchReply(hopeless, None, error))
            asked = [part for part in asked if refused[queue_of(part)] < ALONE_MAX]
        if not asked:
            continue
        try:
            reply = yield from client.ask(term, call_of(asked), meanwhile)
        except StoreRefusedError as refusal:
            error, meanwhile = str(refusal), None
            if len(asked) == 1:
                refused[queue_of(asked[0])] += 1
                answers.append(BatchReply(asked, None, error))
            else:
                asked.sort(key=queue_of)
                middle = len(asked) // 2
                pending += [asked[middle:], asked[:middle]]
        else:
            answers.append(BatchReply(asked, reply))
            for queue in map(queue_of, asked if refused else ()):
                refused.pop(queue, None)
    return answers


class PeriodicQuestion:
    """A question that a leader asks once a period, behind whatever is due. What Redis refuses waits for the next."""

    what = ""
    """Its subject, as the report of a refusal names it."""

    def __init__(self, schedules: Schedules, client: FencedClient, *, period_ns: int) -> None:
        self._schedules = schedules
        self._client = client
        self._period_ns = period_ns
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self.wake_ns = self._client.clock.elapsed_ns() + self._period_ns

    def work(self, term: Term) -> Steps[bool]:
        """Ask if it is time; return whether it was.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
        """
        if self._client.clock.elapsed_ns() < self.wake_ns:
            return False
        self.wake_ns = self._client.clock.elapsed_ns() + self._period_ns
        try:
            reply = yield from self._client.ask(term, self._question(term))
        except StoreRefusedError as error:
            self._client.report("reading_refused", what=self.what, error=str(error))
        else:
            self._take(reply)
        return True

    def _question(self, term: Term) -> Call[Any]:
        raise NotImplementedError

    def _take(self, reply: Any) -> None:
        raise NotImplementedError


class Auditor(PeriodicQuestion):
    """Reads a page of schedules each period, and has those read again that are in no plan."""

    what = "audit"

    def __init__(
        self, schedules: Schedules, client: FencedClient, *, period_ns: int, again: Callable[[str], None]
    ) -> None:
        super().__init__(schedules, client, period_ns=period_ns)
        self._again = again

    def begin(self) -> None:
        """Start a term."""
        super().begin()
        self._cursor = "0"

    def _question(self, _term: Term) -> Call[tuple[str, list[str]]]:
        return self._schedules.audit(self._cursor)

    def _take(self, reply: tuple[str, list[str]]) -> None:
        self._cursor, lost = reply
        for schedule in lost:
            self._client.report("schedule_overdue", schedule=schedule, reason="it is in no plan")
            self._again(schedule)


class Lateness(PeriodicQuestion):
    """Reports schedules that break what they promise about their runs, and those that keep it again.

    Asks once a period, and again at once after a reply with changes.

    Guarantees
        One call for all schedules each period. A change is reported before Redis is told that it was, so a lost reply
        or a leader that dies loses none.

    Does not guarantee
        One report: a leader that dies right after it leaves it to the next one to report the change once more.
    """

    what = "expectations"

    def begin(self) -> None:
        """Start a term."""
        super().begin()
        self._told: list[LatenessChange] = []

    def _question(self, term: Term) -> Call[LatenessReply]:
        return self._schedules.lateness(term, told=self._told)

    def _take(self, reply: LatenessReply) -> None:
        self._client.report("schedules_late", count=reply.late)
        for _, changes in groupby(sorted(reply.changes, key=_schedule), _kind):  # an outage breaks many at once
            self._report(list(changes))
        self._told = reply.changes
        if reply.changes:
            self.wake_ns = 0

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
            since = datetime.fromtimestamp(min(change.since_ms // 1000, SECOND_MAX), UTC).isoformat(timespec="seconds")
            promise, why = "expect_success_every", f"no run of it ended ok since {since}"
        self._client.report("schedule_late", schedule=change.schedule, promise=promise, why=why, count=count)


def _schedule(change: LatenessChange) -> str:
    return change.schedule


def _kind(change: LatenessChange) -> tuple[str, bool, bool]:
    return change.schedule, change.is_over, bool(change.run)


class TzdataUpdate(PeriodicQuestion):
    """Goes through the stored schedules once a term, page by page, if the version differs.

    Guarantees
        A due time that new zone data moves to an earlier instant is fired then, once a leader has the data.
        A crash half-way leaves the former version beside the plan, so the next leader begins again.

    Does not guarantee
        Anything while replicas with different data lead in turn: each plans by its own.
    """

    what = "zones"

    def __init__(self, schedules: Schedules, client: FencedClient, version: str, *, then: Callable[[], None]) -> None:
        """Build it; ``version`` of the zones, empty: it is not asked about; ``then`` is called after each page."""
        self._version = version
        self._then = then
        super().__init__(schedules, client, period_ns=NEVER_NS)

    def begin(self) -> None:
        """Start a term."""
        self._cursor = "0"
        self.wake_ns = 0 if self._version else NEVER_NS

    def _question(self, term: Term) -> Call[tuple[str, int]]:
        return self._schedules.rezone(term, version=self._version, cursor=self._cursor)

    def _take(self, reply: tuple[str, int]) -> None:
        self._cursor, count = reply
        if self._cursor != "0":
            self.wake_ns = 0
        if count:
            self._client.report("schedules_rezoned", count=count, version=self._version)
        self._then()
