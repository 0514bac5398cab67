"""The window: runs due within the next seconds, read ahead, so that at its instant only ``fire`` is sent.

The cursor is its position in the plan of Redis: up to where it holds everything, and the pages left to read. Pure.

Guarantees
    Each schedule is in it once, or behind: late, in the order they were due, paced, after on-time ones.
    It is bounded; the excess stays in Redis.

Does not guarantee
    That its content is still current: Redis decides at the fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from supervisor.core.effects import Reporter
from supervisor.roles.scheduler.fire_items import DecisionTime, DueSchedule
from supervisor.store.schedules.fire import PlanItem
from supervisor.store.wire.fire import DuePage, DueReply

WINDOW_MAX = 100_000
AHEAD_MS = 6000  # long enough to read 100,000 that are due at one instant
PAGE = 250
FIRST_PAGE = 50  # of a term: what is due at its start is fired before the rest is read
FORGOTTEN_MS = 500  # what was due so long ago and still is in the plan is not in the window
NEVER_MS = 1 << 62
OVERDUE_MS = 60_000
REFUSED_MS = 60_000  # how long what Redis refused alone is left alone
REFUSED_MAX = 100_000
VAIN_MAX = 10
ANNOUNCED_MAX = 200  # schedules that get a log line of their own in a term


class Window:
    """Schedules by their next due time."""

    def __init__(self) -> None:
        self._plan = DueHeap()
        self._ready: dict[str, DueSchedule] = {}
        self._behind: dict[str, DueSchedule] = {}  # late ones, in order

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def has_room(self) -> bool:
        """True if more may be read ahead."""
        return len(self._ready) < WINDOW_MAX

    @property
    def behind(self) -> int:
        """Number of late schedules at hand."""
        return len(self._behind)

    def put(self, ready: DueSchedule, *, late_ms: int) -> None:
        """Take in ``ready`` under the known state of its schedule; runs due at ``late_ms`` or earlier are late."""
        self.drop(ready.schedule)
        if ready.fire_ms <= late_ms:
            self._behind[ready.schedule] = ready
        else:
            self._ready[ready.schedule] = ready
            self._plan.put(ready.schedule, ready.fire_ms)

    def drop(self, schedule: str) -> None:
        """Forget ``schedule``."""
        self._behind.pop(schedule, None)
        if self._ready.pop(schedule, None) is not None:
            self._plan.remove(schedule)

    def next_ms(self) -> int | None:
        """Return when the next is due that is not late."""
        return self._plan.next_ms()

    def due(self, now_ms: int, late_ms: int, limit: int) -> list[DueSchedule]:
        """Take out due runs, earliest first. Runs that became late meanwhile go behind."""
        found: list[DueSchedule] = []
        while len(found) < limit:
            names = self._plan.due(now_ms, limit - len(found))
            if not names:
                break
            for ready in map(self._ready.pop, names):
                if ready.fire_ms <= late_ms:
                    self._behind[ready.schedule] = ready
                else:
                    found.append(ready)
        return found

    def late(self, limit: int) -> list[DueSchedule]:
        """Take out late ones, the first that came first."""
        names = list(self._behind)[:limit] if limit >= len(self._behind) else _first(self._behind, limit)
        return [self._behind.pop(name) for name in names]


def _first(names: Iterable[str], count: int) -> list[str]:
    return [name for _, name in zip(range(count), names, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueQuestion(DuePage):
    """Page of the plan to read at ``now_ms``."""

    now_ms: int
    is_reconciling: bool  # it is of schedules which the window should have held


@dataclass(frozen=True, slots=True)
class DueCursor:
    """Position after some pages of a term."""

    covered: tuple[int, str] = (0, "")
    """Due time and id up to which the window holds everything."""

    read_at_ms: int = 0
    """Wall clock time of the next page, when none is left."""

    page: int = FIRST_PAGE
    is_page_left: bool = False
    is_asked: bool = True
    """Somebody may have requested a look at a schedule."""

    is_late_left: bool = True

    def wanting(self, *, late: bool = False) -> DueCursor:
        """Return the position from which requests are read, and ``late`` schedules too."""
        return replace(self, is_asked=True, is_late_left=late or self.is_late_left)

    def rewound(self) -> DueCursor:
        """Return the position that covers nothing, after a page was refused."""
        return replace(self, covered=(0, ""), is_asked=True)

    def by(self, at_ms: int) -> DueCursor:
        """Return the position from which what is due at ``at_ms`` is read in time."""
        return self if self.read_at_ms <= at_ms - AHEAD_MS else replace(self, read_at_ms=at_ms - AHEAD_MS)

    def caught_up(self, moment: DecisionTime) -> DueCursor:
        """Return the position without what is late by now: it stood still, or the clock was set forward."""
        late_ms = moment.now_ms - moment.grace_ms
        return self if self.covered[0] >= late_ms else replace(self, covered=(late_ms, ""), is_late_left=True)

    def question(self, moment: DecisionTime, *, has_room: bool, behind: int, is_reconciling: bool) -> DueQuestion:
        """Return the next page."""
        late_ms = moment.now_ms - moment.grace_ms
        (after_ms, after_id), until_ms = self.covered, moment.now_ms + AHEAD_MS
        if is_reconciling:
            after_ms, after_id, until_ms = late_ms, "", moment.now_ms - FORGOTTEN_MS
        return DueQuestion(
            now_ms=moment.now_ms,
            late_ms=late_ms,
            after_ms=after_ms,
            after_id=after_id,
            until_ms=max(until_ms, after_ms),
            limit=self.page if has_room else 0,
            asked=self.page if self.is_asked else 0,
            late=self.page if self.is_late_left and not behind else 0,
            overdue_ms=moment.now_ms - OVERDUE_MS,
            is_reconciling=is_reconciling,
        )

    def after(self, question: DueQuestion, reply: DueReply, *, behind: int) -> DueCursor:
        """Return the position once ``reply`` is read; ``behind`` late schedules are at hand already."""
        requests = sum(each.score is not None and each.score <= 0 for each in reply.seen)
        read = replace(
            self,
            page=PAGE,
            is_asked=self.is_asked and requests >= self.page,
            is_late_left=self.is_late_left and (reply.is_late_full or behind > 0),
        )
        if question.is_reconciling or not question.limit:
            return read  # nothing that is soon was read
        if reply.is_full:
            last = reply.seen[self.page - 1]
            return replace(read, is_page_left=True, covered=(last.score or 0, last.schedule))
        head_ms = NEVER_MS if reply.next_ms is None else reply.next_ms
        read_at_ms = max(head_ms - AHEAD_MS, question.now_ms + AHEAD_MS // 2)
        return replace(read, is_page_left=False, covered=(question.until_ms, ""), read_at_ms=read_at_ms)

    def stalled(self, *, behind: int) -> DueCursor:
        """Return the position after a page of which nothing moved: the next would hold the same."""
        return replace(self, is_asked=False, is_late_left=self.is_late_left and behind > 0)


@dataclass(slots=True)
class DueHeap:
    """Next due time by schedule id.

    Guarantees
        ``due`` hands out each planned schedule at most once, earliest first, and at most as
        many as asked for. Adding an id again replaces its time. All in O(log n).

    Does not guarantee
        That a handed-out schedule comes back: the caller puts it back with its next
        time, or leaves it out when there is none.
    """

    _times: dict[str, int] = field(default_factory=dict)
    _heap: list[tuple[int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, schedule: object) -> bool:
        return schedule in self._times

    def __iter__(self) -> Iterator[str]:
        return iter(self._times)

    def put(self, schedule: str, next_ms: int) -> None:
        """Plan ``schedule`` for ``next_ms``; an earlier plan for it is forgotten."""
        self._times[schedule] = next_ms
        heappush(self._heap, (next_ms, schedule))
        if len(self._heap) > 64 + 2 * len(self._times):
            # Replaced entries stay in the heap until they surface; rebuilding when they outnumber
            # the live ones keeps memory and every operation bounded by the number of schedules.
            self._heap = [(time, known) for known, time in self._times.items()]
            heapify(self._heap)

    def remove(self, schedule: str) -> None:
        """Forget ``schedule``; unknown ids are fine."""
        self._times.pop(schedule, None)

    def next_ms(self) -> int | None:
        """Return when the next schedule is due, or None when nothing is planned."""
        self._drop_replaced()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Take out up to ``limit`` schedules that are due at ``now_ms``, earliest first."""
        assert limit > 0
        found: list[str] = []
        while len(found) < limit:
            self._drop_replaced()
            if not self._heap or self._heap[0][0] > now_ms:
                break
            _, schedule = heappop(self._heap)
            del self._times[schedule]
            found.append(schedule)
        return found

    def _drop_replaced(self) -> None:
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)


class _PutOff(NamedTuple):
    until_ms: int
    is_planned: bool  # whether its place in the plan of Redis can be moved


class PutOff:
    """Schedules that Redis refuses, each left alone for a minute. Those that never came back are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[str, _PutOff] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, schedule: object) -> bool:
        return schedule in self._known

    def add(self, schedules: Sequence[str], now_ms: int, *, is_planned: bool = True) -> list[str]:
        """Leave ``schedules`` alone from now on; return those that were not known to be refused."""
        new = [schedule for schedule in schedules if schedule not in self._known]
        for schedule in schedules:
            self._known[schedule] = _PutOff(now_ms + REFUSED_MS, is_planned)
        while len(self._known) > REFUSED_MAX:
            del self._known[next(iter(self._known))]
        return new

    def drop(self, schedule: str) -> bool:
        """Forget ``schedule``: it was accepted, or is gone. Return whether it was known."""
        return self._known.pop(schedule, None) is not None

    def until_ms(self, schedule: str, now_ms: int) -> int | None:
        """Return until when ``schedule`` is left alone; None: it is not, or its time is over."""
        known = self._known.get(schedule)
        if known is None or known.until_ms <= now_ms:
            return None
        return min(known.until_ms, now_ms + REFUSED_MS)  # the clock may have been set back

    def is_planned(self, schedule: str) -> bool:
        """Return whether the place of ``schedule`` in the plan can be moved."""
        return self._known[schedule].is_planned


class VainPlans:
    """Plans that came to nothing, because what they were made from had changed: so many of each schedule in a row.

    Each is made anew at once. Where a record says one thing to the leader and another to the script, that has no end.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def is_one_more_enough(self, schedule: str) -> bool:
        """Count one more; return whether ``schedule`` is to be left alone for a moment, and counted anew."""
        count = self._counts.pop(schedule, 0) + 1
        if count < VAIN_MAX:
            self._counts[schedule] = count
        return count >= VAIN_MAX

    def forget(self, schedule: str) -> None:
        """Note that ``schedule`` is planned, or gone."""
        self._counts.pop(schedule, None)


class CappedReports:
    """Reports of the plan: changes since the last report."""

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
        trigger = ready.known.trigger.describe()
        self._report("schedule_planned", schedule=plan.seen.schedule, trigger=trigger, next_ms=ready.nominal_ms)
