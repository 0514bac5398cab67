"""Sends batches to ``fire`` and takes in what Redis decided.

Guarantees
    An item that cannot be made does not keep the others from being fired.
    What Redis refused is read again, held or dropped; it is never sent again as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from supervisor.core.board import Term
from supervisor.core.errors import TenureError
from supervisor.core.lease import MS
from supervisor.core.model import FIRE_BATCH_MAX
from supervisor.roles.scheduler.asking import Asking
from supervisor.roles.scheduler.deciding import Moment, Ready, advanced, items
from supervisor.roles.scheduler.reading import Reading
from supervisor.roles.steps import Steps
from supervisor.store.schedule_items import FireCode, FireItem, FireReply
from supervisor.store.schedules import Schedules

HOLD_NS = 500 * MS
_ADVANCED = {FireCode.FIRED, FireCode.SKIPPED, FireCode.BUFFERED, FireCode.DROPPED, FireCode.MISSED}


class Decided(NamedTuple):
    """One decision, for reports."""

    item: FireItem
    code: FireCode
    late_ms: int

    def __repr__(self) -> str:
        """Render for a history."""
        missed = f" missed {self.item.missed}" if self.item.missed else ""
        return f"{self.item.schedule}@{self.item.nominal_ms} {self.code.lower()}{missed}"


class Firing:
    """Fires for the planner."""

    def __init__(self, schedules: Schedules, asking: Asking, reading: Reading) -> None:
        self._schedules = schedules
        self._asking = asking
        self._reading = reading
        self._held: dict[str, Ready] = {}  # their due time is ahead of Redis' clock
        self._held_until_ns = 0
        self._is_skewed = False  # this machine's wall clock is too far ahead of Redis'

    @property
    def held_until_ns(self) -> int | None:
        """When what is held is looked at again; None when nothing is."""
        return self._held_until_ns if self._held else None

    def begin(self) -> None:
        """Start a term."""
        self._held = {}

    def end_hold(self, moment: Moment) -> None:
        """Plan what was held again, once its time is over."""
        if self._held and self._asking.clock.elapsed_ns() >= self._held_until_ns:
            for ready in self._held.values():
                self._reading.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
            self._held = {}

    def fire(self, term: Term, due: Sequence[Ready], moment: Moment) -> Steps[int]:
        """Decide what ``due`` owe; return how many items that were."""
        skewed, redis_ms, count = yield from self._batch(term, due, moment)
        self._note_skew(moment.now_ms - redis_ms, is_skewed=bool(skewed))
        if skewed:
            # The one comparison of two clocks: this machine's is ahead of Redis', so Redis' decides. A wall
            # clock that jumped ahead can thus neither push watermarks into the future nor stop the schedules.
            still, _, more = yield from self._batch(term, skewed, moment._replace(now_ms=redis_ms))
            count += more
            if not self._held:
                self._held_until_ns = self._asking.clock.elapsed_ns() + HOLD_NS
            self._held |= {ready.schedule: ready for ready in still}
        return count

    def begin_runs(self, term: Term, begin: Sequence[FireItem]) -> Steps[None]:
        """Start what begins without a due time; what follows it is found by reading the schedule again."""
        for start in range(0, len(begin), FIRE_BATCH_MAX):
            batch = begin[start : start + FIRE_BATCH_MAX]
            reply = yield from self._send(term, batch)
            self._tell(batch, reply)
            held: set[str] = set()
            for item, (code, _) in zip(batch, reply.results, strict=True):
                if code in {FireCode.HELD, FireCode.PAUSED}:
                    held.add(item.schedule)  # what waits behind it is a DUP, and says nothing new
                elif item.schedule not in held:
                    self._reading.again(item.schedule)

    def _batch(self, term: Term, due: Sequence[Ready], moment: Moment) -> Steps[tuple[list[Ready], int, int]]:
        """Fire one batch; return those ahead of Redis' time, that time, and the number of items."""
        batch: list[FireItem] = []
        sent: dict[str, Ready] = {}
        idle: list[Ready] = []
        for ready in due:
            if len(batch) >= FIRE_BATCH_MAX:
                self._reading.window.put(ready, late_ms=moment.now_ms - moment.grace_ms)
                continue
            found = self._items(ready, moment, FIRE_BATCH_MAX - len(batch))
            if found:
                batch += found
                sent[ready.schedule] = ready
            elif found is not None:
                idle.append(ready)  # not due: the clock went back, or it is Redis' that decides
        if not batch:
            return idle, moment.now_ms, 0
        reply = yield from self._send(term, batch)
        self._tell(batch, reply)
        skewed = self._apply(sent, batch, reply, moment)
        return idle + skewed, reply.now_ms, len(batch)

    def _items(self, ready: Ready, moment: Moment, limit: int) -> list[FireItem] | None:
        try:
            return items(ready, moment, limit)
        except TenureError as error:
            self._reading.refuse(ready, str(error))
            return None

    def _send(self, term: Term, batch: Sequence[FireItem]) -> Steps[FireReply]:
        call = self._schedules.fire(epoch=term.epoch, nonce=term.nonce, items=batch)
        reply: FireReply = yield from self._asking.ask(term, call)
        return reply

    def _apply(
        self, sent: dict[str, Ready], batch: Sequence[FireItem], reply: FireReply, moment: Moment
    ) -> list[Ready]:
        """Take the schedules on as Redis decided; return those whose due time its clock has not reached."""
        marks: dict[str, int] = {}
        skewed = []
        for item, (code, mark_ms) in zip(batch, reply.results, strict=True):
            name = item.schedule
            if code in _ADVANCED or code is FireCode.DUP:
                # DUP: Redis knows better, from an answer that was lost or from another term.
                marks[name] = mark_ms
                if code is FireCode.BUFFERED and item.policy.startswith("cancel"):
                    self._reading.again(name)  # it is to be looked at when the grace is over
            elif code is FireCode.SKEWED and name not in marks:
                skewed.append(sent[name])
            elif code is FireCode.STALE:
                self._reading.again(name)
        for name, mark_ms in marks.items():
            self._reading.remember(name, mark_ms)
            self._follow(sent[name], mark_ms, moment)
        return skewed

    def _follow(self, ready: Ready, mark_ms: int, moment: Moment) -> None:
        try:
            following = advanced(ready, mark_ms)
        except TenureError as error:
            self._reading.refuse(ready, str(error))
            return
        if following is not None:
            self._reading.keep(following, moment)

    def _note_skew(self, ahead_ms: int, *, is_skewed: bool) -> None:
        if is_skewed and not self._is_skewed:
            self._asking.report("clock_ahead_of_redis", ahead_ms=ahead_ms)
        self._is_skewed = is_skewed

    def _tell(self, batch: Sequence[FireItem], reply: FireReply) -> None:
        decided = [
            Decided(item, result.code, reply.now_ms - item.nominal_ms)
            for item, result in zip(batch, reply.results, strict=True)
        ]
        self._asking.report("fires", decided=decided)
