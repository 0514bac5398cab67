"""Sends batches to ``fire`` and takes in Redis' decisions.

While Redis decides a full batch, the answer to the one before is taken in and the next one is put together. So one
batch is in flight at a time, and trust is asked for before each, as if nothing were done at once.

Guarantees
    An item that cannot be made does not keep the others from being fired.
    Refused items are read again, held or dropped; they are never sent again as they were.
    A schedule whose items Redis refuses, or whose queue it refuses, is put off for a minute; the others fire.
    Items put together and not sent end with the term; Redis still has them in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

from supervisor.core.effects import Call, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import TenureError
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.fenced_client import FencedClient, ask_split
from supervisor.roles.scheduler.fire_items import DecisionTime, DueSchedule, advanced, items
from supervisor.roles.scheduler.prefetcher import Prefetcher
from supervisor.store.schedules.fire import Schedules
from supervisor.store.schedules.reads import TAKEN
from supervisor.store.wire.fire import NOTHING, FireCode, FireItem, FireReply, FireResult, What

BYTES_MAX = 512 * 1024  # of the runs of one batch, which must get through within the time of a call
BEGUN_MAX = 10_000  # runs out of buffers that are remembered

HOLD_NS = 500 * MILLISECOND_NS
OLD_MS = 500
"""A batch that was put together longer ago, and was not sent, is put together anew: more may be due by now."""

_PLAIN = {FireCode.FIRED, FireCode.SKIPPED}
_HALTED = {FireCode.HELD, FireCode.PAUSED, FireCode.SKEWED}
_ADVANCED = {FireCode.FIRED, FireCode.SKIPPED, FireCode.BUFFERED, FireCode.DROPPED, FireCode.MISSED}


class Decided(NamedTuple):
    """One decision, for reports."""

    item: FireItem
    code: FireCode
    late_ms: int  # since its due time and jitter

    def __repr__(self) -> str:
        """Render for a history."""
        missed = f" missed {self.item.missed}" if self.item.missed else ""
        return f"{self.item.schedule}@{self.item.nominal_ms} {self.code.lower()}{missed}"


class FireBatch(NamedTuple):
    """Batch of items for one script call."""

    items: list[FireItem]
    sent: dict[str, DueSchedule]
    idle: list[DueSchedule]  # not due: the clock went back, or it is Redis' that decides
    moment: DecisionTime


class FireDispatcher:
    """Fires for the planner."""

    def __init__(
        self, schedules: Schedules, client: FencedClient, prefetcher: Prefetcher, *, moment: Callable[[], DecisionTime]
    ) -> None:
        self._schedules = schedules
        self._client = client
        self._prefetcher = prefetcher
        self._moment = moment
        self._next: FireBatch | None = None  # put together while the one before was in flight
        self._answered: tuple[FireBatch, FireReply] | None = None  # not yet taken in
        self.begun: dict[str, None] = {}
        """Runs that came out of a buffer, the latest last: a reading that has one as waiting is of an older state."""
        self._held: dict[str, DueSchedule] = {}  # their due time is ahead of Redis' clock
        self._held_until_ns = 0
        self._is_skewed = False  # this machine's wall clock is too far ahead of Redis'

    @property
    def held_until_ns(self) -> int | None:
        """Time at which held items are looked at again; None when nothing is held."""
        return self._held_until_ns if self._held else None

    def begin(self) -> None:
        """Start a term."""
        self.settle()
        self._next = None
        self._held = {}

    def settle(self) -> None:
        """Take in the answer that was put off."""
        if self._answered is not None:
            batch, reply = self._answered
            self._answered = None
            self._tell(batch.items, reply)
            self._apply(batch, reply)

    def due(self, moment: DecisionTime) -> FireBatch | None:
        """Take on-time schedules out of the window, as much as goes into one script; None when nothing is due."""
        batch, self._next = self._next, None
        if batch is not None and abs(moment.now_ms - batch.moment.now_ms) > OLD_MS:
            for ready in [*batch.sent.values(), *batch.idle]:
                self._prefetcher.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
            batch = None
        if batch is None:
            due = self._prefetcher.window.due(moment.now_ms, moment.now_ms - moment.grace_ms, FIRE_BATCH_MAX)
            batch = self.batch(due, moment) if due else None
        return batch

    def end_hold(self, moment: DecisionTime) -> None:
        """Plan the held schedules again, once their time is over."""
        if self._held and self._client.clock.elapsed_ns() >= self._held_until_ns:
            for ready in self._held.values():
                self._prefetcher.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
            self._held = {}

    def fire(self, term: Term, batch: FireBatch) -> Steps[int]:
        """Have ``batch`` decided; return how many items that were."""
        skewed, redis_ms, count = yield from self._fire(term, batch)
        self._note_skew(batch.moment.now_ms - redis_ms, is_skewed=bool(skewed))
        if skewed:
            # The one comparison of two clocks: this machine's is ahead of Redis', so Redis' decides. A wall
            # clock that jumped ahead can thus neither push watermarks into the future nor stop the schedules.
            again = self.batch(skewed, batch.moment._replace(now_ms=redis_ms))
            still, _, more = yield from self._fire(term, again)
            count += more
            if not self._held:
                self._held_until_ns = self._client.clock.elapsed_ns() + HOLD_NS
            self._held |= {ready.schedule: ready for ready in still}
        return count

    def begin_runs(self, term: Term, begin: Sequence[FireItem], at_ms: int) -> Steps[None]:
        """Start runs that begin without a due time by Redis' ``at_ms``; their successors are found by reading again."""
        held: set[str] = set()
        left = list(begin)
        while left:
            batch = left[: _fitting(left[:FIRE_BATCH_MAX], BYTES_MAX)]
            del left[: len(batch)]
            reply = yield from self._send(term, batch, at_ms)
            self._tell(batch, reply)
            for item, (code, _) in zip(batch, reply.results, strict=True):
                if code is FireCode.FIRED and item.what is not What.INITIAL:
                    self.begun[item.run.run_id] = None
                    if len(self.begun) > BEGUN_MAX:
                        del self.begun[next(iter(self.begun))]
                if code in _HALTED:
                    held.add(item.schedule)  # what waits behind it is a DUP, and says nothing new
                elif item.schedule not in held:
                    self._prefetcher.again(item.schedule)

    def batch(self, due: Sequence[DueSchedule], moment: DecisionTime) -> FireBatch:
        """Put together the runs ``due`` owe; the excess goes back into the window."""
        batch, room = FireBatch([], {}, [], moment), BYTES_MAX
        for ready in due:
            if len(batch.items) >= FIRE_BATCH_MAX or room <= 0:
                self._prefetcher.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
                continue
            found = self._items(ready, moment, FIRE_BATCH_MAX - len(batch.items), room)
            if found:
                for item in found:
                    room -= len(item.run.data)
                batch.items.extend(found)
                batch.sent[ready.schedule] = ready
            elif found is not None:
                batch.idle.append(ready)
        return batch

    def _fire(self, term: Term, batch: FireBatch) -> Steps[tuple[list[DueSchedule], int, int]]:
        """Fire one batch; return those ahead of Redis' time, that time, and the number of items."""
        items, moment = batch.items, batch.moment
        if not items:
            return batch.idle, moment.now_ms, 0
        # Behind a batch that is not full there is nothing to prepare: what is due by then goes together.
        meanwhile = self._go_on if len(items) >= FIRE_BATCH_MAX else self.settle
        try:
            reply = yield from self._send(term, items, moment.now_ms, meanwhile)
        finally:
            self.settle()  # that of the batch before, unless it was done meanwhile
        if self._next is not None and not batch.idle and all(code in _PLAIN for code, _ in reply.results):
            self._answered = (batch, reply)
            return [], reply.now_ms, len(items)
        self._tell(items, reply)
        skewed = self._apply(batch, reply)
        return batch.idle + skewed, reply.now_ms, len(items)

    def _go_on(self) -> None:
        """Use the time while a batch is in flight: for other schedules, or another answer."""
        self.settle()
        if self._next is None:
            self._next = self.due(self._moment())

    def _items(self, ready: DueSchedule, moment: DecisionTime, limit: int, room: int) -> list[FireItem] | None:
        if ready.known.takes_time:
            self._client.show_life()
        try:
            return items(ready, moment, limit, self._client.show_life, bytes_max=room)
        except TenureError as error:
            self._prefetcher.refuse(ready.schedule, ready.known.revision, str(error))
            return None

    def _send(
        self, term: Term, batch: Sequence[FireItem], at_ms: int, meanwhile: Callable[[], None] | None = None
    ) -> Steps[FireReply]:
        """Have ``batch`` decided; refused schedules are put off. The items of one schedule go together."""

        def call_of(parts: Sequence[list[FireItem]]) -> Call[FireReply]:
            items = [item for part in parts for item in part]
            return self._schedules.fire(term, items=items, at_ms=at_ms)

        parts = [list(found) for _, found in groupby(batch, key=attrgetter("schedule"))]
        answers = yield from ask_split(self._client, term, parts, call_of, queue_of=_queue, meanwhile=meanwhile)
        if len(answers) == 1 and not answers[0].error:
            self._prefetcher.accepted(item.schedule for item in batch)
            whole: FireReply = answers[0].reply
            return whole
        decided: dict[str, list[FireResult]] = {}
        now_ms = self._client.now_ms()
        for asked, reply, error in answers:
            if error:
                self._prefetcher.put_off([part[0].schedule for part in asked], error)
                decided |= {
                    part[0].schedule: [FireResult(FireCode.REFUSED, part[0].mark_ms)] * len(part) for part in asked
                }
                continue
            self._prefetcher.accepted(part[0].schedule for part in asked)
            now_ms, results = reply.now_ms, iter(reply.results)
            decided |= {part[0].schedule: list(islice(results, len(part))) for part in asked}
        return FireReply([result for part in parts for result in decided[part[0].schedule]], now_ms)

    def _apply(self, batch: FireBatch, reply: FireReply) -> list[DueSchedule]:
        """Take the schedules on as Redis decided; return those whose due time its clock has not reached."""
        marks: dict[str, int] = {}
        skewed: dict[str, DueSchedule] = {}
        completed: set[str] = set()
        for item, (code, mark_ms) in zip(batch.items, reply.results, strict=True):
            name = item.schedule
            if name in skewed or name in completed:
                continue  # it stands on a watermark that was not reached: a DUP that says nothing
            if code is FireCode.COMPLETED:
                completed.add(name)
                marks[name] = mark_ms
            elif code in _ADVANCED or code is FireCode.DUP:
                # DUP: Redis knows better, from an answer that was lost or from another term.
                marks[name] = mark_ms
                if code is FireCode.BUFFERED and item.policy.startswith("cancel"):
                    self._prefetcher.again(name)  # it is to be looked at when the grace is over
            elif code is FireCode.SKEWED and name not in marks:
                skewed[name] = batch.sent[name]
            elif code is FireCode.STALE:
                self._prefetcher.again(name)
        for name, mark_ms in marks.items():
            if batch.sent[name].owed_ms is not None:
                self._prefetcher.again(name)  # its pause is yet to be ended
                continue
            self._prefetcher.marks.remember(name, mark_ms)
            if name not in completed:
                self._follow(batch.sent[name], mark_ms, batch.moment)
        return list(skewed.values())

    def _follow(self, ready: DueSchedule, mark_ms: int, moment: DecisionTime) -> None:
        if ready.known.takes_time:
            self._client.show_life()
        try:
            following = advanced(ready, mark_ms)
        except TenureError as error:
            self._prefetcher.refuse(ready.schedule, ready.known.revision, str(error))
            return
        if following is not None:
            self._prefetcher.keep(following, moment)

    def _note_skew(self, ahead_ms: int, *, is_skewed: bool) -> None:
        if is_skewed and not self._is_skewed:
            self._client.report("clock_ahead_of_redis", ahead_ms=ahead_ms)
        self._is_skewed = is_skewed

    def _tell(self, batch: Sequence[FireItem], reply: FireReply) -> None:
        decided: list[Decided] = []
        halted: set[str] = set()
        for item, (code, _) in zip(batch, reply.results, strict=True):
            if code in _HALTED or code is FireCode.COMPLETED:
                halted.add(item.schedule)
            elif code is FireCode.DUP and item.schedule in halted:
                continue  # nobody has decided it: the one before it was not either
            told = item
            if code is FireCode.MISSED and item.run is not NOTHING:  # another run has its id
                told = item._replace(missed=item.missed + 1, why=item.why + TAKEN)
            decided.append(Decided(told, code, reply.now_ms - item.nominal_ms - item.delay_ms))
        self._client.report("fires", decided=decided)
        own = {(item.schedule, item.new_mark_ms) for item in batch}
        doubtful = sum(
            item.run is not NOTHING and _is_fired(item, result, own)
            for item, result in zip(batch, reply.results, strict=True)
            if item.is_doubtful
        )
        if doubtful:
            self._client.report("fires_doubtful", count=doubtful)


def _is_fired(item: FireItem, result: FireResult, own: Container[tuple[str, int]]) -> bool:
    """Return whether ``item`` was fired, also by an attempt whose answer was lost.

    Then its watermark is there, or of ``own``, those of the batch, one of the same schedule behind it.
    """
    is_there = result.code is FireCode.DUP and result.mark_ms >= item.new_mark_ms
    is_there = is_there and (item.schedule, result.mark_ms) in own
    return result.code is FireCode.FIRED or is_there


def _fitting(items: Sequence[FireItem], room: int) -> int:
    """Return how many of ``items``, one at least, have their runs in ``room`` bytes."""
    for count, item in enumerate(items):
        room -= len(item.run.data)
        if room < 0:
            return max(count, 1)
    return len(items)


def _queue(part: Sequence[FireItem]) -> str:
    return part[0].run.queue
