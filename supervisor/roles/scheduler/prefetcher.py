"""Prefetch of schedules: fills the window, reads schedules on request, and finds those that it missed.

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

from supervisor.core.effects import Call, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, TenureError
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.fenced_client import FencedClient, ask_split
from supervisor.roles.scheduler.fire_items import DecisionTime, DueSchedule, Evaluation, evaluate, unusable
from supervisor.roles.scheduler.schedule_cache import Catalogue, CompiledSchedule, Watermarks
from supervisor.roles.scheduler.window import (
    AHEAD_MS,
    NEVER_MS,
    PAGE,
    REFUSED_MS,
    CappedReports,
    DueCursor,
    DueHeap,
    DueQuestion,
    PutOff,
    VainPlans,
    Window,
)
from supervisor.store.schedules.definitions import DYNAMIC
from supervisor.store.schedules.fire import PlanCode, PlanItem, Schedules
from supervisor.store.wire.fire import DueReply, FireItem, Seen

AGAIN_NS = 1000 * MILLISECOND_NS  # after Redis refused a page, and after plans in vain
CHAIN_MAX = 2 * PAGE  # schedules that are followed: of longer chains the due times are not known
NAMED_MAX = 10  # schedules named in one line


class Prefetcher:
    """Schedules read ahead during this term."""

    def __init__(
        self, schedules: Schedules, client: FencedClient, *, reconcile_ns: int,
        is_outdated: Callable[[str, bytes], bool],
    ) -> None:  # fmt: skip
        self._schedules = schedules
        self._is_outdated = is_outdated
        self._client = client
        self._reconcile_ns = reconcile_ns
        self.marks = Watermarks(schedules, client)
        self._reports = CappedReports(client.report)
        self._refused_until_ns = 0  # a page; 0: the last one was answered
        self.has_backfills, self.applied = False, ""  # whether any was on record; digest of the set in place
        self.begin()

    def begin(self) -> None:
        """Start a term, or begin anew after a loss of data: a revision may mean another definition now."""
        self._catalogue = Catalogue()
        self.window = Window()
        self.last_change = ""
        self._reports.begin()
        self._cursor = DueCursor()
        self._again: dict[str, None] = {}
        self._kept_back: dict[str, int] = {}  # schedule to the revision that is about to be changed or removed
        self._looks = DueHeap()  # schedules to read again at a time at which nothing is due
        self._put_off, self._vain = PutOff(), VainPlans()
        self._reconcile_at_ns = self._client.clock.elapsed_ns() + self._reconcile_ns

    @property
    def reconcile_at_ns(self) -> int:
        """Time at which everything due is read again."""
        return self._refused_until_ns or self._reconcile_at_ns

    @property
    def read_at_ms(self) -> int:
        """Wall clock time at which something is to be read again."""
        look_ms = None if self._refused_until_ns else self._looks.next_ms()
        read_ms = self._cursor.read_at_ms if self.window.has_room and not self._refused_until_ns else NEVER_MS
        return read_ms if look_ms is None else min(read_ms, look_ms)

    def hear(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Somebody changed something."""
        self.last_change = changes[-1][0]
        self._cursor = self._cursor.wanting()
        for _, fields in changes:
            if fields.get("kind") in {"delete", "remove", "upsert", "declare"}:  # its revisions may come again
                self._catalogue.forget(fields.get("schedule", ""))
            if (kind := fields.get("kind")) in {"delete", "remove", "pause"}:
                self.marks.forget(fields.get("schedule", ""), is_paused=kind == "pause")

    def expect(self) -> None:
        """A configuration was brought in, or need not be: schedules that were kept back are read again."""
        self._cursor = self._cursor.wanting(late=True)
        self._again |= dict.fromkeys(self._kept_back)
        self._kept_back.clear()

    def again(self, schedule: str) -> None:
        """Read ``schedule`` again."""
        self.window.drop(schedule)
        self._again[schedule] = None

    def keep(self, ready: DueSchedule, moment: DecisionTime) -> None:
        """Take ``ready`` into the window if it belongs there; else Redis has it."""
        if ready.fire_ms <= self._cursor.covered[0]:
            self.window.put(ready, late_ms=moment.now_ms + moment.ahead_ms - moment.grace_ms)
        else:
            self.window.drop(ready.schedule)
            self._cursor = self._cursor.by(ready.fire_ms)

    def refuse(self, schedule: str, revision: int, reason: str) -> None:
        """Report why a definition cannot be used, and leave it: reading the schedule again plans it for later."""
        self._catalogue.refuse(schedule, revision, reason)
        self._client.report("schedule_invalid", schedule=schedule, reason=reason)
        self.again(schedule)

    def put_off(self, schedules: Sequence[str], error: str, *, is_planned: bool = True) -> None:
        """Leave ``schedules`` alone for a minute: Redis refuses their runs, or if not ``is_planned``, their plan."""
        now_ms = self._client.now_ms()
        if new := self._put_off.add(schedules, now_ms, is_planned=is_planned):
            self._client.report("schedules_put_off", schedules=new[:NAMED_MAX], count=len(new), reason=error)
        for schedule in schedules:
            if is_planned:
                self.again(schedule)  # which moves its place in the plan
            else:
                self._looks.put(schedule, now_ms + REFUSED_MS)

    def accepted(self, schedules: Iterable[str]) -> None:
        """Note that Redis decided about ``schedules``."""
        known = [schedule for schedule in schedules if self._put_off.drop(schedule)] if self._put_off else ()
        if known:
            self._client.report("schedules_accepted_again", schedules=known[:NAMED_MAX], count=len(known))

    def is_due(self, moment: DecisionTime) -> bool:
        """Return whether something is to be read now."""
        if self._client.clock.elapsed_ns() < self._refused_until_ns:
            return False
        if self._cursor.covered[0] > moment.now_ms + AHEAD_MS + moment.grace_ms:
            # The clock was set back. What was late by it was never read, and may be due only now.
            self._cursor, self.window = DueCursor(), Window()
        for schedule in self._looks.due(moment.now_ms, PAGE):
            self.again(schedule)
        if self._cursor.is_asked or self._again or self._client.clock.elapsed_ns() >= self._reconcile_at_ns:
            return True
        if self._cursor.is_late_left and not self.window.behind:
            return True
        return self.window.has_room and (self._cursor.is_page_left or moment.now_ms >= self._cursor.read_at_ms)

    def read(self, term: Term, moment: DecisionTime) -> Steps[tuple[list[FireItem], int]]:
        """Read one page, plan its schedules as needed; return items that begin at once, and Redis' time for them."""
        try:
            found = yield from self._read(term, moment)
        except StoreRefusedError as error:
            if not self._refused_until_ns:
                self._client.report("reading_refused", what="schedules", error=str(error))
            self._refused_until_ns = self._client.clock.elapsed_ns() + AGAIN_NS
            self._cursor = self._cursor.rewound()
            return [], 0
        self._refused_until_ns = 0
        return found

    def _read(self, term: Term, moment: DecisionTime) -> Steps[tuple[list[FireItem], int]]:
        again = list(self._again)[:PAGE]
        question = self._question(moment)
        reply: DueReply = yield from self._client.ask(term, self._schedules.due(question, again))
        self._reports.read(reply, refused=len(self._put_off))
        self._cursor = self._cursor.after(question, reply, behind=self.window.behind)
        self.last_change = self.last_change or reply.last_change
        self.has_backfills, self.applied = self.has_backfills or reply.backfills > 0, reply.applied
        for schedule in again:
            self._again.pop(schedule, None)
        yield from self._know(term, reply.seen)
        by_redis = moment._replace(now_ms=reply.now_ms, ahead_ms=moment.now_ms - reply.now_ms)
        begin = yield from self._settle(term, reply.seen, by_redis)
        return begin, reply.now_ms

    def _question(self, moment: DecisionTime) -> DueQuestion:
        now_ns = self._client.clock.elapsed_ns()
        is_reconciling = now_ns >= self._reconcile_at_ns
        self._cursor = self._cursor.caught_up(moment)
        if is_reconciling:
            self._reconcile_at_ns = now_ns + self._reconcile_ns
            self._cursor = self._cursor.wanting(late=True)
        return self._cursor.question(
            moment, has_room=self.window.has_room, behind=self.window.behind, is_reconciling=is_reconciling
        )

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
        for name, found in zip(unknown, (yield from self._definitions(term, list(unknown))), strict=True):
            if found is None:
                self._catalogue.forget(name)
                continue
            revision, body = found
            if not unknown[name] and self._is_outdated(name, body):
                self._kept_back[name] = revision
                continue
            self._client.show_life()
            reason = self._catalogue.learn(name, revision, body, is_dynamic=unknown[name])
            if reason is not None:
                self._client.report("schedule_invalid", schedule=name, reason=reason)
        yield from self._know_sources(term, self._catalogue.followed(seen))

    def _know_sources(self, term: Term, followed: Mapping[str, Sequence[CompiledSchedule]]) -> Steps[None]:
        """Read the schedules that others follow: those of a chain have the due times of its first."""
        bodies: dict[str, bytes | None] = {}
        steps = 0
        while followed and steps <= len(bodies) <= CHAIN_MAX:  # more steps than schedules are a circle
            new = [name for name in followed if name not in bodies]
            for name, found in zip(new, (yield from self._definitions(term, new)), strict=True):
                bodies[name] = None if found is None else found[1]
            behind: dict[str, list[CompiledSchedule]] = {}
            for name, followers in followed.items():
                for known in followers:
                    if source := known.take_source(bodies[name]):
                        behind.setdefault(source, []).append(known)
            followed, steps = behind, steps + 1

    def _definitions(self, term: Term, names: Sequence[str]) -> Steps[list[tuple[int, bytes] | None]]:
        """Read what is stored of ``names``: a page at a time, and of long ones what can be answered in time."""
        found: list[tuple[int, bytes] | None] = []
        while len(found) < len(names):
            found += yield from self._client.ask(term, self._schedules.definitions(names[len(found) :][:PAGE]))
        return found

    def _settle(self, term: Term, seen: Sequence[Seen], moment: DecisionTime) -> Steps[list[FireItem]]:
        """Answer each of ``seen``: plan it, take it into the window, or both; return those that begin at once."""
        begin: list[FireItem] = []
        plans: list[tuple[PlanItem, Evaluation]] = []
        has_moved = False
        moment = moment.doubted(self.marks.read(seen, self._catalogue))
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
            self._cursor = self._cursor.stalled(behind=self.window.behind)
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
            if (reason := self._catalogue.refusal(seen.schedule, seen.revision)) is None:
                self.again(seen.schedule)  # it changed between two questions
                return None
            return Evaluation(unusable(seen, moment, reason))
        until_ms = self._put_off.until_ms(seen.schedule, moment.now_ms + moment.ahead_ms)
        if until_ms is not None:
            is_there = seen.score == until_ms or not self._put_off.is_planned(seen.schedule)
            return Evaluation(None if is_there else PlanItem(seen, until_ms, wait=known.wait))
        if known.takes_time:
            self._client.show_life()
        try:
            return evaluate(seen, known, moment)
        except TenureError as error:
            self.refuse(seen.schedule, seen.revision, str(error))
            return None

    def _plan(self, term: Term, plans: Sequence[tuple[PlanItem, Evaluation]], moment: DecisionTime) -> Steps[None]:
        def call_of(items: Sequence[tuple[PlanItem, Evaluation]]) -> Call[list[PlanCode]]:
            return self._schedules.plan(term, items=[plan for plan, _ in items])

        for asked, codes, error in (yield from ask_split(self._client, term, plans, call_of)):
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
            self._vain.forget(name)
        elif code is PlanCode.PLANNED and not evaluation.is_to_repeat:
            self._reports.planned(plan, evaluation.ready)
            self._take(plan.seen, plan.next_ms, evaluation.ready, moment)
        elif self._vain.is_one_more_enough(name):
            self._looks.put(name, self._client.now_ms() + AGAIN_NS // MILLISECOND_NS)
        else:
            self.again(name)

    def _take(self, seen: Seen, score: int | None, ready: DueSchedule | None, moment: DecisionTime) -> None:
        """Take a schedule that is planned for ``score`` into the window, or note when to look at it again."""
        self._vain.forget(seen.schedule)
        if ready is not None:
            self.keep(ready, moment)
        else:
            self.window.drop(seen.schedule)
        if score is None or score <= moment.now_ms or (ready is not None and score >= ready.fire_ms):
            return
        if score <= self._cursor.covered[0]:
            self._looks.put(seen.schedule, score + moment.ahead_ms)
        else:
            self._cursor = self._cursor.by(score)
