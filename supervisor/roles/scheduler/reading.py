"""Reads ahead: keeps the window filled, answers requests to look at a schedule, and finds what was forgotten.

Guarantees
    Whatever is in the plan of Redis comes into the window before it is due, whoever put it there and
    however the news of it was lost: what was asked for or forgotten is looked for every ``reconcile_ns``.
    A definition that cannot be used is told once for each revision, and left; the others go on.
    One that is about to be changed or removed is kept back until that is done.

Does not guarantee
    That one reading sees everything: it goes by pages, what is on time first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from supervisor.core.board import Term
from supervisor.core.errors import TenureError
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.core.plan import Plan
from supervisor.roles.scheduler.asking import Asking
from supervisor.roles.scheduler.catalogue import Catalogue
from supervisor.roles.scheduler.deciding import Moment, Ready
from supervisor.roles.scheduler.evaluating import Evaluation, evaluate, unusable
from supervisor.roles.scheduler.window import Window
from supervisor.roles.steps import Steps
from supervisor.store.schedule_items import DueReply, FireItem, PlanCode, PlanItem, Seen
from supervisor.store.schedules import Schedules
from supervisor.store.scripts import Call

AHEAD_MS = 6000  # long enough to read 100,000 that are due at one instant
PAGE = 250
FIRST_PAGE = 50  # of a term: what is due at its start is fired before the rest is read
OVERDUE_MS = 60_000
FORGOTTEN_MS = 500  # what was due so long ago and still is in the plan is not in the window
ANNOUNCED_MAX = 200  # schedules that get a log line of their own in a term
MARKS_MAX = 100_000
DYNAMIC = "dynamic"
NEVER_MS = 1 << 62


class Reading:
    """What was read in this term."""

    def __init__(
        self, schedules: Schedules, asking: Asking, *, reconcile_ns: int, is_outdated: Callable[[str, bytes], bool]
    ) -> None:
        self._schedules = schedules
        self._is_outdated = is_outdated
        self._asking = asking
        self._reconcile_ns = reconcile_ns
        self._marks: dict[str, int] = {}  # what this process decided; outlives the term
        self._overdue = 0
        self.begin()

    def forget(self) -> None:
        """Trust nothing that was read: Redis lost data, so that equal revisions may have unequal definitions."""
        self.begin()

    def begin(self) -> None:
        """Start a term: what was read in an earlier one may be old, and a revision may stand for another definition."""
        self._catalogue = Catalogue()
        self.window = Window()
        self.last_change = ""
        self._is_first = True
        self._page = FIRST_PAGE
        self._covered = (0, "")  # up to where the window holds everything
        self._is_asked = self._is_late_left = True
        self._again: dict[str, None] = {}
        self._kept_back: dict[str, int] = {}  # schedule to the revision that is about to be changed or removed
        self._looks = Plan()  # schedules to read again at a time at which nothing is due
        self._read_at_ms = 0
        self._reconcile_at_ns = self._asking.clock.elapsed_ns() + self._reconcile_ns
        self._is_reconciling = False
        self._is_page_left = False
        self._announced = 0
        self._audit_cursor = "0"

    @property
    def reconcile_at_ns(self) -> int:
        """When everything due is read again."""
        return self._reconcile_at_ns

    @property
    def read_at_ms(self) -> int:
        """When, on the wall clock, something is to be read again."""
        look_ms = self._looks.next_ms()
        read_ms = self._read_at_ms if self.window.has_room else NEVER_MS
        return read_ms if look_ms is None else min(read_ms, look_ms)

    def hear(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Somebody changed something."""
        self.last_change = changes[-1][0]
        self._is_asked = True
        for _, fields in changes:
            if fields.get("kind") in {"delete", "remove"}:  # its id may come again, and count its revisions anew
                self._catalogue.forget(fields.get("schedule", ""))
                self._marks.pop(fields.get("schedule", ""), None)

    def expect(self) -> None:
        """A configuration was brought in, or need not be: what was kept back is read again."""
        self._is_asked = self._is_late_left = True
        self._again |= dict.fromkeys(self._kept_back)
        self._kept_back.clear()

    def again(self, schedule: str) -> None:
        """Read ``schedule`` again."""
        self.window.drop(schedule)
        self._again[schedule] = None

    def keep(self, ready: Ready, moment: Moment) -> None:
        """Take ``ready`` into the window if it belongs there; else Redis has it."""
        if ready.fire_ms <= self._covered[0]:
            self.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
        else:
            self.window.drop(ready.schedule)
            self._read_at_ms = min(self._read_at_ms, ready.fire_ms - AHEAD_MS)

    def remember(self, schedule: str, mark_ms: int) -> None:
        """Keep a watermark for the case that Redis loses it."""
        self._marks[schedule] = mark_ms
        if len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def refuse(self, ready: Ready, reason: str) -> None:
        """Tell why ``ready`` cannot be fired, and leave it: reading it again plans it for later."""
        self._catalogue.refuse(ready.schedule, ready.known.revision)
        self._asking.report("schedule_invalid", schedule=ready.schedule, reason=reason)
        self.again(ready.schedule)

    def seed(self, term: Term, defined: Collection[str]) -> Steps[None]:
        """Bring back the watermarks that this process decided, after Redis lost its data.

        Args:
            term: the caller's.
            defined: ids that this replica is about to define again. Of others it does not know whether they were
                deleted: by the watermark of a former life one that comes again would owe what was due in between.
        """
        pairs = [(schedule, mark_ms) for schedule, mark_ms in self._marks.items() if schedule in defined]
        for start in range(0, len(pairs), PAGE):
            page = dict(pairs[start : start + PAGE])
            seeded = yield from self._asking.ask(
                term, self._schedules.seed(epoch=term.epoch, nonce=term.nonce, marks=page)
            )
            self._asking.report("watermarks_seeded", seeded=seeded, known=len(page))

    def is_due(self, moment: Moment) -> bool:
        """Return whether something is to be read now."""
        for schedule in self._looks.due(moment.now_ms, PAGE):
            self.again(schedule)
        if self._is_asked or self._again or self._asking.clock.elapsed_ns() >= self._reconcile_at_ns:
            return True
        if self._is_late_left and not self.window.behind:
            return True
        wants_more = self._is_page_left or moment.now_ms >= self._read_at_ms
        return wants_more and self.window.has_room

    def read(self, term: Term, moment: Moment) -> Steps[list[FireItem]]:
        """Read one page, plan what must be planned; return what begins at once."""
        again, call = self._question(moment)
        reply: DueReply = yield from self._asking.ask(term, call)
        self._note(reply)
        self._take_cursor(reply, moment)
        for schedule in again:
            self._again.pop(schedule, None)
        yield from self._know(term, reply.seen)
        return (yield from self._settle(term, reply.seen, moment))

    def audit(self, term: Term) -> Steps[bool]:
        """Look for schedules that nothing would ever look at; whether a round ended."""
        cursor, lost = yield from self._asking.ask(term, self._schedules.audit(self._audit_cursor))
        self._audit_cursor = cursor
        for schedule in lost:
            self._asking.report("schedule_overdue", schedule=schedule, reason="it is in no plan")
            self._again[schedule] = None
        return bool(cursor == "0")

    def _question(self, moment: Moment) -> tuple[list[str], Call[DueReply]]:
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

    def _take_cursor(self, reply: DueReply, moment: Moment) -> None:
        """Note how far the window reaches now, and what is left to read."""
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

    def _note(self, reply: DueReply) -> None:
        if self._is_first:
            self._asking.report("term_read", schedules=reply.defined)
            self._is_first = False
        if reply.overdue and not self._overdue:
            self._asking.report("schedule_overdue", count=reply.overdue, reason="due more than a minute ago")
        self._overdue = reply.overdue
        counts = {"defined": reply.defined, "planned": reply.planned, "overdue": reply.overdue, "paused": reply.paused}
        self._asking.report("plan", **counts)

    def _know(self, term: Term, seen: Sequence[Seen]) -> Steps[None]:
        """Read the definitions that are not known in their revision."""
        unknown = {
            each.schedule: each.set == DYNAMIC
            for each in seen
            if each.revision is not None
            and self._catalogue.get(each.schedule, each.revision) is None
            and not self._catalogue.is_refused(each.schedule, each.revision)
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

    def _settle(self, term: Term, seen: Sequence[Seen], moment: Moment) -> Steps[list[FireItem]]:
        """Answer each of ``seen``: plan it, take it into the window, or both; return what begins at once."""
        begin: list[FireItem] = []
        plans: list[tuple[PlanItem, Evaluation]] = []
        has_moved = False
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

    def _evaluate(self, seen: Seen, moment: Moment) -> Evaluation | None:
        if seen.revision is None:
            return Evaluation(PlanItem(seen, None))  # nothing defines it: out of the plan
        known = self._catalogue.get(seen.schedule, seen.revision)
        if known is None:
            if self._kept_back.get(seen.schedule) == seen.revision:
                return None
            if not self._catalogue.is_refused(seen.schedule, seen.revision):
                self.again(seen.schedule)  # it changed between two questions
                return None
            return Evaluation(unusable(seen, moment))
        try:
            return evaluate(seen, known, moment)
        except TenureError as error:
            self._catalogue.refuse(seen.schedule, seen.revision)
            self._asking.report("schedule_invalid", schedule=seen.schedule, reason=str(error))
            return Evaluation(unusable(seen, moment))

    def _plan(self, term: Term, plans: Sequence[tuple[PlanItem, Evaluation]], moment: Moment) -> Steps[None]:
        call = self._schedules.plan(epoch=term.epoch, nonce=term.nonce, items=[plan for plan, _ in plans])
        codes: list[PlanCode] = yield from self._asking.ask(term, call)
        for (plan, evaluation), code in zip(plans, codes, strict=True):
            name = plan.seen.schedule
            if code is PlanCode.GONE or plan.completed == "-":
                self._catalogue.forget(name)
                self._marks.pop(name, None)
            elif code is not PlanCode.PLANNED or evaluation.is_to_repeat:
                self.again(name)
            else:
                self._announce(plan, evaluation.ready)
                self._take(plan.seen, plan.next_ms, evaluation.ready, moment)

    def _take(self, seen: Seen, score: int | None, ready: Ready | None, moment: Moment) -> None:
        """Take a schedule that is planned for ``score`` into the window, or note when to look at it again."""
        if ready is not None:
            self.keep(ready, moment)
        else:
            self.window.drop(seen.schedule)
        if score is None or score <= moment.now_ms or (ready is not None and score >= ready.fire_ms):
            return
        if score <= self._covered[0]:
            self._looks.put(seen.schedule, score)
        else:
            self._read_at_ms = min(self._read_at_ms, score - AHEAD_MS)

    def _announce(self, plan: PlanItem, ready: Ready | None) -> None:
        if plan.set_pause and plan.set_pause != "-":
            self._asking.report("schedule_paused", schedule=plan.seen.schedule, reason="its runs keep failing")
        if ready is None or self._announced >= ANNOUNCED_MAX:
            return
        self._announced += 1
        self._asking.report(
            "schedule_planned",
            schedule=plan.seen.schedule,
            trigger=ready.known.trigger.describe(),
            next_ms=ready.nominal_ms,
        )
