"""The scheduler: fires what is due, while the term on the board is trusted.

Guarantees
    Nothing is sent without a term that is trusted at that moment, and every write carries
    it, so that Redis can refuse what a pause made late.
    A batch whose answer was lost is sent again unchanged; Redis' watermarks make that safe.
    Losing the term idles it in place. It ends only when the tree stops, after its batch.

Does not guarantee
    Punctuality while Redis is away: what is due then is due at its return, by catch-up.

A generator of steps (supervisor.roles.steps). It runs no user code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from supervisor.clock import Clock
from supervisor.core.board import Board, Term
from supervisor.core.errors import FencedError, StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.lease import MS, retry_delay_ns
from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.catalogue import Catalogue
from supervisor.roles.scheduler.declaring import declarations
from supervisor.roles.steps import Ask, Report, Sleep, Steps
from supervisor.store.schedules import FireItem, FireReply, Schedules, StoredSchedule
from supervisor.store.scripts import Call

HOLD_NS = 500 * MS
ASK_TIMEOUT_NS = 1000 * MS  # below the limit after which the parent calls it hung
ANNOUNCED_MAX = 200  # schedules that get a log line of their own at the start of a term


class TermOverError(TenureError):
    """The board has another term than the one being served, or the tree stops."""


class Scheduler:
    """Serves one term after the other."""

    slice_ns = 1000 * MS
    """Longest sleep, so that a step of the wall clock is noticed."""

    idle_ns = 500 * MS
    """How often it looks at the board unasked while it must not act."""

    def __init__(
        self,
        *,
        schedules: Schedules,
        board: Board,
        clock: Clock,
        definitions: Sequence[ScheduleDef],
        lease_ms: int,
        is_stopping: Callable[[], bool],
        report: Report,
        rng: Random,
    ) -> None:
        self._schedules = schedules
        self._board = board
        self._clock = clock
        self._definitions = definitions
        self._lease_ms = lease_ms
        self._is_stopping = is_stopping
        self._report = report
        self._rng = rng
        self._catalogue = Catalogue()
        self._refused: Term | None = None
        self._held: list[str] = []  # schedules whose due time Redis' clock has not reached
        self._held_until_ns = 0
        self._is_skewed = False  # this machine's wall clock is too far ahead of Redis'

    def run(self) -> Steps[None]:
        """Serve until asked to stop."""
        while not self._is_stopping():
            term = self._board.term()
            if not term.is_trusted(self._clock.elapsed_ns()) or self._is_refused(term):
                yield Sleep(self._clock.elapsed_ns() + self.idle_ns)
                continue
            try:
                yield from self._serve(term)
            except TermOverError:
                continue
            except FencedError as error:
                # Another term stands in Redis. This one never comes back, so wait for another.
                self._refused = term
                self._report("fenced", epoch=term.epoch, current_epoch=error.current_epoch)

    def _is_refused(self, term: Term) -> bool:
        return self._refused is not None and _same(term, self._refused)

    def _serve(self, term: Term) -> Steps[None]:
        yield from self._declare(term)
        yield from self._load(term, is_first=True)
        while True:
            yield from self._await_trust(term)
            yield from self._fire_due(term)

    def _declare(self, term: Term) -> Steps[None]:
        """Bring the definitions of this replica's configuration into Redis, if they are the newest."""
        now_ms = self._clock.wall_ms()
        calls = declarations(self._schedules, self._definitions, term=term, now_ms=now_ms, lease_ms=self._lease_ms)
        for call in calls:
            declared = yield from self._ask(term, call)
            self._report(
                "schedules_declared",
                applied=declared.applied,
                revision=declared.revision,
                added=declared.added,
                changed=declared.changed,
                removed=declared.removed,
            )

    def _load(self, term: Term, *, is_first: bool) -> Steps[None]:
        """Read every definition and watermark."""
        stored: list[StoredSchedule] = []
        unreadable: set[str] = set()
        cursor = "0"
        while True:
            page = yield from self._ask(term, self._schedules.page(cursor))
            stored.extend(page.items)
            unreadable.update(page.unreadable)
            cursor = page.cursor
            if cursor == "0":
                break
        self._held = []
        soonest, refused = self._catalogue.load(stored)
        for schedule, reason in [*refused, *((name, "written by a newer version") for name in sorted(unreadable))]:
            self._report("schedule_invalid", schedule=schedule, reason=reason)
        if is_first:
            for schedule in soonest[:ANNOUNCED_MAX]:
                next_ms = self._catalogue.next_ms_of(schedule)
                self._report(
                    "schedule_planned", schedule=schedule, trigger=self._catalogue.describe(schedule), next_ms=next_ms
                )
            self._report("term_served", epoch=term.epoch, schedules=len(self._catalogue))

    def _fire_due(self, term: Term) -> Steps[None]:
        """Fire one batch of what is due, or sleep until something is."""
        self._end_hold()
        now_ms = self._clock.wall_ms()
        schedules = self._catalogue.due(now_ms)
        if not schedules:
            yield Sleep(self._wake_ns(now_ms))
            return
        items, idle = self._catalogue.decide(schedules, now_ms)
        self._catalogue.plan(idle)  # the clock went back since they were planned
        if not items:
            return
        skewed, redis_ms = yield from self._fire(term, items)
        self._note_skew(now_ms - redis_ms, is_skewed=bool(skewed))
        if skewed:
            # The one comparison of two clocks: this machine's is ahead of Redis', so Redis' decides. A wall
            # clock that jumped ahead can thus neither push watermarks into the future nor stop the schedules.
            items, idle = self._catalogue.decide(skewed, redis_ms)
            still_skewed, _ = (yield from self._fire(term, items)) if items else ([], 0)
            self._hold([*idle, *still_skewed])

    def _hold(self, schedules: Sequence[str]) -> None:
        """Leave ``schedules`` unplanned for a moment, counted on the clock that does not jump."""
        if schedules and not self._held:
            self._held_until_ns = self._clock.elapsed_ns() + HOLD_NS
        self._held += schedules

    def _end_hold(self) -> None:
        if self._held and self._clock.elapsed_ns() >= self._held_until_ns:
            self._catalogue.plan(self._held)
            self._held = []

    def _fire(self, term: Term, items: Sequence[FireItem]) -> Steps[tuple[list[str], int]]:
        """Fire one batch; return the schedules whose due time is ahead of Redis' time, and that time."""
        reply = yield from self._ask(term, self._schedules.fire(epoch=term.epoch, nonce=term.nonce, items=items))
        self._tell(items, reply)
        applied = self._catalogue.apply(items, reply)
        if applied.is_stale:
            yield from self._load(term, is_first=False)
            return [], reply.now_ms
        return applied.skewed, reply.now_ms

    def _wake_ns(self, now_ms: int) -> int:
        """Return when to look again. Timers may fire early and the wall clock may step, so look often."""
        now_ns, next_ms = self._clock.elapsed_ns(), self._catalogue.next_ms()
        wake_ns = now_ns + self.slice_ns
        if next_ms is not None:
            wake_ns = min(wake_ns, now_ns + (next_ms - now_ms) * MS)
        return min(wake_ns, self._held_until_ns) if self._held else wake_ns

    def _ask(self, term: Term, call: Call[Any]) -> Steps[Any]:
        """Send ``call`` until it is answered, while the term is trusted."""
        failures = 0
        while True:
            yield from self._await_trust(term)
            try:
                return (yield Ask(call, ASK_TIMEOUT_NS))
            except (StoreUnavailableError, StoreRefusedError) as error:
                failures += 1
                self._report("scheduler_unanswered", script=call.script, failures=failures, error=str(error))
                yield Sleep(self._clock.elapsed_ns() + retry_delay_ns(failures, self._rng.random()))

    def _await_trust(self, term: Term) -> Steps[None]:
        """Return while ``term`` is trusted; wait out a lapse of it.

        Raises:
            TermOverError: the board has another term, or the tree stops.
        """
        while True:
            current = self._board.term()
            if self._is_stopping() or not _same(current, term):
                raise TermOverError(f"epoch {term.epoch} is over")
            if current.is_trusted(self._clock.elapsed_ns()):
                return
            yield Sleep(self._clock.elapsed_ns() + self.idle_ns)

    def _note_skew(self, ahead_ms: int, *, is_skewed: bool) -> None:
        if is_skewed and not self._is_skewed:
            self._report("clock_ahead_of_redis", ahead_ms=ahead_ms)
        self._is_skewed = is_skewed

    def _tell(self, items: Sequence[FireItem], reply: FireReply) -> None:
        for item, result in zip(items, reply.results, strict=True):
            self._report(
                "fire",
                schedule=item.schedule,
                nominal_ms=item.nominal_ms,
                code=result.code.name.lower(),
                missed=item.missed,
                late_ms=reply.now_ms - item.nominal_ms,
                run=item.envelope.id,
                queue=item.envelope.template.queue,
                job=item.envelope.template.job,
            )


def _same(left: Term, right: Term) -> bool:
    return (left.epoch, left.nonce) == (right.epoch, right.nonce)
