"""The scheduler: fires due schedules, while the term on the board is trusted.

Guarantees
    Nothing is sent without a term that is trusted at that moment, and every write carries
    it, so that Redis can refuse writes that a pause made late.
    A batch whose answer was lost is sent again unchanged; Redis' watermarks make that safe.
    On-time runs go before everything else: late runs, backfills, bringing in a configuration.
    Schedules that this replica's configuration is about to change or remove are not fired as they were.
    Losing the term idles it in place. It ends only when the tree stops, after its batch.

Does not guarantee
    Punctuality while Redis is away: runs due then are due at its return, by catch-up.

A generator of steps (supervisor.core.effects). It runs no user code. The plan lies in Redis; this is
a window on it (docs/adr/0016-the-plan-lies-in-redis.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from supervisor.clock import Clock
from supervisor.core.effects import Reporter, Sleep, Steps, Watch
from supervisor.core.election.lease import Term
from supervisor.core.errors import FencedError
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.anchors import Anchors
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.roles.scheduler.config_sync import ConfigSync
from supervisor.roles.scheduler.fenced_client import Auditor, FencedClient, Lateness, TermOverError, TzdataUpdate, same
from supervisor.roles.scheduler.fire_items import DecisionTime
from supervisor.roles.scheduler.firing import FireDispatcher
from supervisor.roles.scheduler.prefetcher import Prefetcher
from supervisor.store.schedules.fire import Schedules

LATE_BATCH = 50
"""Late runs go in small batches: what becomes due meanwhile waits for one of them at most."""

LATE_BURST_S = 0.1
_REQUESTED = {"pause": "schedule_paused", "resume": "schedule_resumed"}


class Scheduler:
    """Serves one term after the other."""

    slice_ns = 1000 * MILLISECOND_NS
    """Longest sleep, so that a step of the wall clock is noticed."""

    idle_ns = 500 * MILLISECOND_NS
    """How often it looks at the board unasked while it must not act."""

    reconcile_ns = 5000 * MILLISECOND_NS
    """How often everything due is read again: a message about a change may be lost."""

    audit_ns = 10_000 * MILLISECOND_NS
    """How often a page of all schedules is searched for those that nothing would ever look at."""

    lateness_ns = 5000 * MILLISECOND_NS
    """How often schedules are asked for that break what they promise about their runs."""

    def __init__(
        self,
        *,
        schedules: Schedules,
        board: Board,
        clock: Clock,
        definitions: Sequence[ScheduleDef],
        lease_ms: int,
        is_stopping: Callable[[], bool],
        report: Reporter,
        rng: Random,
        catchup_rate: int = 1000,
        allow_empty: bool = False,
        backfills: Backfills | None = None,
        zones_version: str = "",
        show_life: Callable[[], None] = lambda: None,
    ) -> None:
        self._schedules = schedules
        self._clock = clock
        self._lease_ms = lease_ms
        self._catchup_rate = catchup_rate
        self._backfills = backfills
        self._report = report
        self._client = FencedClient(
            board=board, clock=clock, is_stopping=is_stopping, report=report, rng=rng, idle_ns=self.idle_ns,
            lease_ms=lease_ms, show_life=show_life,
        )  # fmt: skip
        self._prefetcher = Prefetcher(
            schedules,
            self._client,
            reconcile_ns=self.reconcile_ns,
            is_outdated=lambda schedule, body: self._declaring.is_outdated(schedule, body),  # noqa: PLW0108 - replaced
        )
        self._auditor = Auditor(schedules, self._client, period_ns=self.audit_ns, again=self._prefetcher.again)
        self._anchors = Anchors(schedules, self._client)
        self._standing = (
            self._anchors,
            TzdataUpdate(schedules, self._client, zones_version, then=self._prefetcher.expect),
            Lateness(schedules, self._client, period_ns=self.lateness_ns),
            self._auditor,
        )
        self._firing = FireDispatcher(schedules, self._client, self._prefetcher, moment=self._moment)
        self._refused: Term | None = None
        self._refused_until_ns = 0  # no renewal before the refusal is trusted for as long
        self._allow_empty = allow_empty
        self.redeclare(definitions)
        self._late_at_ns = 0  # when the next late batch may be fired
        self._lost_ms = 0  # when the agent last found that Redis lost data

    def redeclare(self, definitions: Sequence[ScheduleDef]) -> None:
        """Bring in another configuration from now on. Between two steps: a half-written set is compared anew."""
        self._definitions = definitions
        self._anchors.declare(definitions)
        self._declaring = ConfigSync(
            self._schedules.keys,
            definitions,
            lease_ms=self._lease_ms,
            clock=self._clock,
            report=self._report,
            allow_empty=self._allow_empty,
            show_life=self._client.show_life,
            stored=self._anchors.stored,
        )

    def run(self) -> Steps[None]:
        """Serve until asked to stop."""
        while not self._client.is_stopping():
            term = self._client.board.term()
            if not term.is_trusted(self._clock.elapsed_ns()) or self._is_refused(term):
                yield Sleep(self._clock.elapsed_ns() + self.idle_ns)
                continue
            try:
                yield from self._serve(term)
            except TermOverError:
                pass
            except FencedError as error:
                # Another term stands in Redis. This one comes back only if Redis goes back to before it.
                asked_since_ns = self._clock.elapsed_ns() + self._lease_ms * MILLISECOND_NS
                self._refused = term
                self._refused_until_ns = max(self._client.board.term().trusted_until_ns, asked_since_ns)
                self._report("fenced", epoch=term.epoch, current_epoch=error.current_epoch)
            self._report("term_left", epoch=term.epoch)

    def _is_refused(self, term: Term) -> bool:
        """Return whether Redis refused ``term``, and has not renewed it since."""
        if self._refused is None or not same(term, self._refused):
            return False
        if term.trusted_until_ns <= self._refused_until_ns:
            return True
        self._prefetcher.marks.doubt()  # what the term fired that Redis forgot may be due once more
        self._refused = None
        return False

    def _serve(self, term: Term) -> Steps[None]:
        self._report("term_begun", acquired_ns=self._client.board.header.acquired_ns)
        self._prefetcher.begin()
        self._prefetcher.marks.begin(term)
        self._firing.begin()
        self._is_served = False  # whether what is due at its start was looked at
        self._declaring.begin()
        for question in self._standing:
            question.begin()
        try:
            # Before anything is defined anew.
            yield from self._prefetcher.marks.restore(term, self._anchors.settle(self._definitions))
            while True:
                yield from self._client.await_trust(term)
                if not (yield from self._work(term)):
                    changes = yield Watch(self._prefetcher.last_change, self._wake_ns())
                    if changes:
                        self._heard(changes)
        finally:
            self._firing.settle()

    def _heard(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        self._prefetcher.hear(changes)
        for _, fields in changes:
            if event := _REQUESTED.get(fields.get("kind", "")):
                self._report(event, schedule=fields.get("schedule", ""))
        if self._backfills is not None and any(fields.get("kind") == "backfill" for _, fields in changes):
            self._prefetcher.has_backfills = True
            self._backfills.wake()

    def _work(self, term: Term) -> Steps[bool]:
        """Do the most urgent thing there is; False when there is none."""
        self._notice_loss()
        if self._clock.elapsed_ns() >= self._declaring.wake_ns and not self._declaring.is_asked(term):
            yield from self._bring_in(term)
            return True
        moment = self._moment()
        self._firing.end_hold(moment)
        batch = self._firing.due(moment)
        if batch is not None:
            yield from self._firing.fire(term, batch)
            return True
        if self._prefetcher.is_due(moment):
            begin, redis_ms = yield from self._prefetcher.read(term, moment)
            if self._declaring.applied not in ("", self._prefetcher.applied):
                self._declaring.begin()
            if begin:
                yield from self._firing.begin_runs(term, begin, redis_ms)
            return True
        if (yield from self._fire_late(term, moment)) or (yield from self._declare(term)):
            return True
        for question in self._standing:
            if (yield from question.work(term)):
                return True
        if self._backfills is None or not self._prefetcher.has_backfills:
            return False
        return (yield from self._backfills.work(term))

    def _fire_late(self, term: Term, moment: DecisionTime) -> Steps[bool]:
        """Fire a small batch of late runs, as many in a second as is allowed."""
        now_ns = self._clock.elapsed_ns()
        if now_ns < self._late_at_ns or not self._prefetcher.window.behind:
            return False
        late = self._prefetcher.window.late(min(LATE_BATCH, self._catchup_rate))
        count = yield from self._firing.fire(term, self._firing.batch(late, moment))
        pace_ns = count * 1000 * MILLISECOND_NS // self._catchup_rate
        self._late_at_ns = max(self._late_at_ns, now_ns - round(LATE_BURST_S * 1000) * MILLISECOND_NS) + pace_ns
        return True

    def _declare(self, term: Term) -> Steps[bool]:
        """Take one step of bringing in this replica's configuration; False when there is none to take."""
        if not self._is_served:
            self._is_served = True
            self._report("term_served", epoch=term.epoch)
        return self._clock.elapsed_ns() >= self._declaring.wake_ns and (yield from self._bring_in(term))

    def _bring_in(self, term: Term) -> Steps[bool]:
        """Ask one question about this replica's configuration; False while Redis does not answer."""
        is_more: bool = yield from self._declaring.work(term)
        if self._declaring.is_done(term):
            self._prefetcher.expect()
            self._anchors.expect()
        return is_more or self._declaring.is_done(term)

    def _notice_loss(self) -> None:
        """Read everything again after a loss of data: a revision may have come back with another definition."""
        lost_ms = self._client.board.header.doubtful_until_ms
        if lost_ms != self._lost_ms:
            self._lost_ms = lost_ms
            self._firing.begin()
            self._prefetcher.begin()
            self._auditor.begin()

    def _moment(self) -> DecisionTime:
        doubtful_ms = max(self._client.board.header.doubtful_until_ms, self._prefetcher.marks.doubtful_until_ms)
        return DecisionTime(self._client.now_ms(), 2 * self._lease_ms, doubtful_ms, begun=self._firing.begun)

    def _wake_ns(self) -> int:
        """Return when to look again. Timers may fire early and the wall clock may step, so look often."""
        now_ns, now_ms = self._clock.elapsed_ns(), self._client.now_ms()
        wake_ns = min(now_ns + self.slice_ns, self._prefetcher.reconcile_at_ns, self._declaring.wake_ns)
        wake_ns = min(wake_ns, *(question.wake_ns for question in self._standing))
        due_ms = self._prefetcher.window.next_ms()
        if due_ms is not None:
            wake_ns = min(wake_ns, now_ns + (due_ms - now_ms) * MILLISECOND_NS)
        wake_ns = min(wake_ns, now_ns + (self._prefetcher.read_at_ms - now_ms) * MILLISECOND_NS)
        if self._firing.held_until_ns is not None:
            wake_ns = min(wake_ns, self._firing.held_until_ns)
        if self._prefetcher.window.behind:
            wake_ns = min(wake_ns, self._late_at_ns)
        if self._backfills is not None and self._prefetcher.has_backfills:
            wake_ns = min(wake_ns, self._backfills.wake_ns)
        return max(wake_ns, now_ns)
