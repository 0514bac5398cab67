"""Reads ahead: keeps the window filled, answers requests to look at a schedule, and finds forgotten schedules.

Guarantees
    Pauses, graces, windows of waiting runs and retention are judged by Redis' time, which wrote them down.
    Whatever is in the plan of Redis comes into the window before it is due, whoever put it there and
    however the news of it was lost: requested and forgotten schedules are looked for every ``reconcile_ns``.
    A definition that cannot be used is reported once for each revision, and left; the others go on.
    One that is about to be changed or removed is kept back until that is done.
    A schedule that Redis refuses is reported once, left alone for a minute, and tried again.

Does not guarantee
    That one reading sees everything: it goes by pages, schedules on time first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from supervisor.core.election.term import Term
from supervisor.core.errors import StoreRefusedError, TenureError
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.core.schedules.due_heap import DueHeap
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.effects import Steps
from supervisor.roles.scheduler.batch_split import REFUSED_MS, PutOff, ask_split
from supervisor.roles.scheduler.capped_reports import Telling
from supervisor.roles.scheduler.fenced_client import Asking
from supervisor.roles.scheduler.fire_items import DecisionTime, DueSchedule
from supervisor.roles.scheduler.reconcile import Evaluation, evaluate, unusable
from supervisor.roles.scheduler.schedule_cache import Catalogue
from supervisor.roles.scheduler.watermarks import Watermarks
from supervisor.roles.scheduler.window import Window
from supervisor.store.schedules.fire import Schedules
from supervisor.store.scripts import Call
from supervisor.store.wire.fire import DueReply, FireItem, PlanCode, PlanItem, Seen

AHEAD_MS = 6000  # long enough to read 100,000 that are due at one instant
PAGE = 250
FIRST_PAGE = 50  # of a term: what is due at its start is fired before the rest is read
OVERDUE_MS = 60_000
FORGOTTEN_MS = 500  # what was due so long ago and still is in the plan is not in the window
DYNAMIC = "dynamic"
NEVER_MS = 1 << 62
AGAIN_NS = 1000 * MILLISECOND_NS  # after Redis refused a page


class Reading:
    """Schedules read during this term."""

    def __init__(
        self, schedules: Schedules, asking: Asking, *, reconcile_ns: int, is_outdated: Callable[[str, bytes], bool]
    ) -> None:
        self._schedules = schedules
        self._is_outdated = is_outdated
        self._asking = asking
        self._reconcile_ns = reconcile_ns
        self.marks = Watermarks(schedules, asking)
        self._telling = Telling(asking.report)
        self._refused_until_ns = 0  # a page; 0: the last one was answered
        self.begin()

    def begin(self) -> None:
        """Start a term, or begin anew after a loss of data: a revision may mean another definition now."""
        self._catalogue = Catalogue()
        self.window = Window()
        self.last_change = ""
        self._telling.begin()
        self._page = FIRST_PAGE
        self._covered = (0, "")  # up to where the window holds everything
        self._is_asked = self._is_late_left = True
        self._again: dict[str, None] = {}
        self._kept_back: dict[str, int] = {}  # schedule to the revision that is about to be changed or removed
        self._looks = DueHeap()  # schedules to read again at a time at which nothing is due
        self._put_off = PutOff()
        self._read_at_ms = 0
        self._reconcile_at_ns = self._asking.clock.elapsed_ns() + self._reconcile_ns
        self._is_reconciling = False
        self._is_page_left = False
        self._audit_cursor = "0"

    @property
    def reconcile_at_ns(self) -> int:
        """Time at which everything due is read again."""
        return self._refused_until_ns or self._reconcile_at_ns

    @property
    def read_at_ms(self) -> int:
        """Wall clock time at which something is to be read again."""
        look_ms = None if self._refused_until_ns else self._looks.next_ms()
        read_ms = self._read_at_ms if self.window.has_room and not self._refused_until_ns else NEVER_MS
        return read_ms if look_ms is None else min(read_ms, look_ms)

    def hear(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Somebody changed something."""
        self.last_change = changes[-1][0]
        self._is_asked = True
        for _, fields in changes:
            if fields.get("kind") in {"delete", "remove"}:  # its id may come again, and count its revisions anew
                self._catalogue.forget(fields.get("schedule", ""))
            if fields.get("kind") in {"delete", "remove", "pause"}:
                self.marks.forget(fields.get("schedule", ""))

    def expect(self) -> None:
        """A configuration was brought in, or need not be: schedules that were kept back are read again."""
        self._is_asked = self._is_late_left = True
        self._again |= dict.fromkeys(self._kept_back)
        self._kept_back.clear()

    def again(self, schedule: str) -> None:
        """Read ``schedule`` again."""
        self.window.drop(schedule)
        self._again[schedule] = None

    def keep(self, ready: DueSchedule, moment: DecisionTime) -> None:
        """Take ``ready`` into the window if it belongs there; else Redis has it."""
        if ready.fire_ms <= self._covered[0]:
            self.window.put(ready, late_ms=moment.now_ms + moment.ahead_ms - moment.grace_ms)
        else:
            self.window.drop(ready.schedule)
            self._read_at_ms = min(self._read_at_ms, ready.fire_ms - AHEAD_MS)

    def refuse(self, schedule: str, revision: int, reason: str) -> None:
        """Report why a definition cannot be used, and leave it: reading the schedule again plans it for later."""
        self._catalogue.refuse(schedule, revision, reason)
        self._asking.report("schedule_invalid", schedule=schedule, reason=reason)
        self.again(schedule)

    def put_off(self, schedules: Sequence[str], error: str, *, is_planned: bool = True) -> None:
        """Leave ``schedules`` alone for a minute: Redis refuses their runs, or if not ``is_planned``, their plan."""
        now_ms = self._asking.clock.wall_ms()
        self._telling.put_off(self._put_off.add(schedules, now_ms, is_planned=is_planned), error)
        for schedule in schedules:
            if is_planned:
                self.again(schedule)  # which moves its place in the plan
            else:
                self._looks.put(schedule, now_ms + REFUSED_MS)

    def accepted(self, schedules: Iterable[str]) -> None:
        """Note that Redis decided about ``schedules``."""
        if self._put_off:
            self._telling.accepted([schedule for schedule in schedules if self._put_off.drop(schedule)])

    def is_due(self, moment: DecisionTime) -> bool:
        """Return whether something is to be read now."""
        if self._asking.clock.elapsed_ns() < self._refused_until_ns:
            return False
        for schedule in self._looks.due(moment.now_ms, PAGE):
            self.again(schedule)
        if self._is_asked or self._again or self._asking.clock.elapsed_ns() >= self._reconcile_at_ns:
            return True
        if self._is_late_left and not self.window.behind:
            return True
        wants_more = self._is_page_left or moment.now_ms >= self._read_at_ms
        return wants_more and self.window.has_room

    def read(self, term: Term, moment: DecisionTime) -> Steps[tuple[list[FireItem], int]]:
        """Read one page, plan its schedules as needed; return items that begin at once, and Redis' time for them.

        A refused page is read again soon.
        """
        try:
            found = yield from self._read(term, moment)
        except StoreRefusedError as error:
            if not self._refused_until_ns:
                self._asking.report("reading_refused", what="schedules", error=str(error))
            self._refused_until_ns = self._asking.clock.elapsed_ns() + AGAIN_NS
            self._covered, self._is_asked = (0, ""), True
            return [], 0
        self._refused_until_ns = 0
        return found

    def _read(self, term: Term, moment: DecisionTime) -> Steps[tuple[list[FireItem], int]]:
        again, call = self._question(moment)
        reply: DueReply = yield from self._asking.ask(term, call)
        self._telling.read(reply, refused=len(self._put_off))
        self._take_cursor(reply, moment)
        for schedule in again:
            self._again.pop(schedule, None)
        yield from self._know(term, reply.seen)
        by_redis = moment._replace(now_ms=reply.now_ms, ahead_ms=moment.now_ms - reply.now_ms)
        begin = yield from self._settle(term, reply.seen, by_redis)
        return begin, reply.now_ms

    def audit(self, term: Term) -> Steps[bool]:
        """Look for schedules that nothing would ever look at; whether a round ended."""
        try:
            cursor, lost = yield from self._asking.ask(term, self._schedules.audit(self._audit_cursor))
        except StoreRefusedError as error:
            self._asking.report("reading_refused", what="audit", error=str(error))
            return False
        self._audit_cursor = cursor
        for schedule in lost:
            self._asking.report("schedule_overdue", schedule=schedule, reason="it is in no plan")
            self._again[schedule] = None
        return bool(cursor == "0")

    def _question(self, moment: DecisionTime) -> tuple[list[str], Call[DueReply]]:
        late_ms = moment.now_ms - moment.grace_ms
        now_ns = self._asking.clock.elapsed_ns()
        self._is_reconciling = now_ns >= self._reconcile_at_ns
        if self._covered[0] < late_ms:  # it stood still, or the clock was set forward
            self._covered = (late_ms, "")
            self._is_late_left = True
        (after_ms, after_id), until_ms = self._covered, moment.now_ms + AHEAD_MS
        if self._is_reconciling:
            self._reconcile_at_ns = now_ns + self._reconcile_ns
            self._is_asked = self._is_late_left = True
            after_ms, after_id, until_ms = late_ms, "", moment.now_ms - FORGOTTEN_MS
        again = list(self._again)[:PAGE]
        call = self._schedules.due(
            after_ms=after_ms,
            after_id=after_id,
            until_ms=max(until_ms, after_ms),
            limit=self._page if self.window.has_room else 0,
            asked=self._page if self._is_asked else 0,
            late_ms=late_ms,
            late=self._page if self._is_late_left and not self.window.behind else 0,
            overdue_ms=moment.now_ms - OVERDUE_MS,
            ids=again,
        )
        return again, call

    def _take_cursor(self, reply: DueReply, moment: DecisionTime) -> None:
        """Note how far the window reaches now, and the pages left to read."""
        until_ms = max(moment.now_ms + AHEAD_MS, self._covered[0])
        page, self._page = self._page, PAGE
        if not self.last_change:
            self.last_change = reply.last_change
        asked = sum(each.score is not None and each.score <= 0 for each in reply.seen)
        self._is_asked = self._is_asked and asked >= page
        self._is_late_left = self._is_late_left and (reply.is_late_full or self.window.behind > 0)
        if self._is_reconciling or not self.window.has_room:
            return  # nothing that is soon was read
        self._is_page_left = reply.is_full
        if reply.is_full:
            last = reply.seen[page - 1]
            self._covered = (last.score or 0, last.schedule)
        else:
            self._covered = (until_ms, "")
            head_ms = NEVER_MS if reply.next_ms is None else reply.next_ms
            self._read_at_ms = max(head_ms - AHEAD_MS, moment.now_ms + AHEAD_MS // 2)

    def _know(self, term: Term, seen: Sequence[Seen]) -> Steps[None]:
        """Read the definitions that are not known in their revision."""
        unknown = {
            each.schedule: each.set == DYNAMIC
            for each in seen
            if each.revision is not None
            and self._catalogue.get(each.schedule, each.revision) is None
            and self._catalogue.refusal(each.schedule, each.revision) is None
            and self._kept_back.get(each.schedule) != each.revision
        }
        names = list(unknown)
        for start in range(0, len(names), PAGE):
            page = names[start : start + PAGE]
            bodies = yield from self._asking.ask(term, self._schedules.definitions(page))
            for name, found in zip(page, bodies, strict=True):
                if found is None:
                    self._catalogue.forget(name)
                    continue
                revision, body = found
                if not unknown[name] and self._is_outdated(name, body):
                    self._kept_back[name] = revision
                    continue
                reason = self._catalogue.learn(name, revision, body, is_dynamic=unknown[name])
                if reason is not None:
                    self._asking.report("schedule_invalid", schedule=name, reason=reason)

    def _settle(self, term: Term, seen: Sequence[Seen], moment: DecisionTime) -> Steps[list[FireItem]]:
        """Answer each of ``seen``: plan it, take it into the window, or both; return those that begin at once."""
        begin: list[FireItem] = []
        plans: list[tuple[PlanItem, Evaluation]] = []
        has_moved = False
        moment = self.marks.read(seen, self._catalogue, moment)
        for each in seen:
            evaluation = self._evaluate(each, moment)
            if evaluation is None:
                self.window.drop(each.schedule)
                continue
            has_moved = has_moved or evaluation.plan is not None or evaluation.ready is not None
            begin += evaluation.begin
            if evaluation.plan is not None:
                self.window.drop(each.schedule)
                plans.append((evaluation.plan, evaluation))
            else:
                self._take(each, each.score, evaluation.ready, moment)
        if seen and not has_moved:  # the next page would hold the same
            self._is_asked = False
            self._is_late_left = self._is_late_left and self.window.behind > 0
        for start in range(0, len(plans), FIRE_BATCH_MAX):
            yield from self._plan(term, plans[start : start + FIRE_BATCH_MAX], moment)
        return begin

    def _evaluate(self, seen: Seen, moment: DecisionTime) -> Evaluation | None:
        if seen.revision is None:
            return Evaluation(PlanItem(seen, None))  # nothing defines it: out of the plan
        known = self._catalogue.get(seen.schedule, seen.revision)
        if known is None:
            if self._kept_back.get(seen.schedule) == seen.revision:
                return None
            reason = self._catalogue.refusal(seen.schedule, seen.revision)
            if reason is None:
                self.again(seen.schedule)  # it changed between two questions
                return None
            return Evaluation(unusable(seen, moment, reason))
        until_ms = self._put_off.until_ms(seen.schedule, moment.now_ms + moment.ahead_ms)
        if until_ms is not None:
            is_there = seen.score == until_ms or not self._put_off.is_planned(seen.schedule)
            return Evaluation(None if is_there else PlanItem(seen, until_ms, wait=known.wait))
        try:
            return evaluate(seen, known, moment)
        except TenureError as error:
            self.refuse(seen.schedule, seen.revision, str(error))
            return None

    def _plan(self, term: Term, plans: Sequence[tuple[PlanItem, Evaluation]], moment: DecisionTime) -> Steps[None]:
        def call_of(items: Sequence[tuple[PlanItem, Evaluation]]) -> Call[list[PlanCode]]:
            return self._schedules.plan(epoch=term.epoch, nonce=term.nonce, items=[plan for plan, _ in items])

        for asked, codes, error in (yield from ask_split(self._asking, term, plans, call_of)):
            if error:
                self.put_off([plan.seen.schedule for plan, _ in asked], error, is_planned=False)
                continue
            for (plan, evaluation), code in zip(asked, codes, strict=True):
                self._planned(plan, evaluation, code, moment)

    def _planned(self, plan: PlanItem, evaluation: Evaluation, code: PlanCode, moment: DecisionTime) -> None:
        name = plan.seen.schedule
        if code is PlanCode.GONE or (code is PlanCode.PLANNED and plan.completed == "-"):
            self._catalogue.forget(name)
            self.marks.forget(name)
            self._put_off.drop(name)
        elif code is not PlanCode.PLANNED or evaluation.is_to_repeat:
            self.again(name)
        else:
            self._telling.planned(plan, evaluation.ready)
            self._take(plan.seen, plan.next_ms, evaluation.ready, moment)

    def _take(self, seen: Seen, score: int | None, ready: DueSchedule | None, moment: DecisionTime) -> None:
        """Take a schedule that is planned for ``score`` into the window, or note when to look at it again."""
        if ready is not None:
            self.keep(ready, moment)
        else:
            self.window.drop(seen.schedule)
        if score is None or score <= moment.now_ms or (ready is not None and score >= ready.fire_ms):
            return
        if score <= self._covered[0]:
            self._looks.put(seen.schedule, score + moment.ahead_ms)
        else:
            self._read_at_ms = min(self._read_at_ms, score - AHEAD_MS)
