"""The schedules as the scheduler knows them during one term: definition, watermark, next due time.

Read from Redis at the start of a term; afterwards Redis' answers keep it true. It decides
what is due and what an answer means; it sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from supervisor.core.catchup import due
from supervisor.core.errors import TenureError
from supervisor.core.model import FIRE_BATCH_MAX, Envelope, ScheduleDef, scheduled_run_id
from supervisor.core.plan import Plan
from supervisor.core.triggers import Trigger, trigger_of
from supervisor.store.codec import pack
from supervisor.store.schedules import FireCode, FireItem, FireReply, StoredSchedule


@dataclass(slots=True)
class Known:
    """One schedule."""

    definition: ScheduleDef
    trigger: Trigger
    revision: int
    mark_ms: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What an answer left to do."""

    is_stale: bool  # a definition changed: all must be read again
    skewed: list[str]  # schedules whose due time Redis' clock has not reached


class Catalogue:
    """Every schedule of the cluster, and which is due next."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._plan = Plan()

    def __len__(self) -> int:
        return len(self._known)

    def load(self, stored: Iterable[StoredSchedule]) -> tuple[list[str], list[tuple[str, str]]]:
        """Replace everything; return the ids, soonest first, and (id, reason) of those that cannot be used."""
        self._known, self._plan = {}, Plan()
        refused = []
        for item in stored:
            name = item.definition.id
            try:
                trigger = trigger_of(item.definition)
                pack(_envelope(item.definition, nominal_ms=item.mark_ms, wall_ms=item.mark_ms))
            except (TenureError, ValueError) as error:
                refused.append((name, str(error)))  # one that cannot be used must not stop the others
                continue
            self._known[name] = Known(item.definition, trigger, item.revision, item.mark_ms)
            self._put(name)
        soonest = sorted(self._plan, key=lambda name: (self.next_ms_of(name) or 0, name))
        return soonest, refused

    def next_ms(self) -> int | None:
        """Return when something is due next."""
        return self._plan.next_ms()

    def next_ms_of(self, schedule: str) -> int | None:
        """Return the first nominal time after the watermark of ``schedule``."""
        known = self._known[schedule]
        return known.trigger.next_ms(known.mark_ms)

    def describe(self, schedule: str) -> str:
        """Return the trigger of ``schedule`` as people write it."""
        return self._known[schedule].trigger.describe()

    def due(self, now_ms: int) -> list[str]:
        """Take out the schedules that may be due at ``now_ms``, at most one batch."""
        return self._plan.due(now_ms, FIRE_BATCH_MAX)

    def decide(self, schedules: Iterable[str], now_ms: int) -> tuple[list[FireItem], list[str]]:
        """Return what ``schedules`` owe at ``now_ms``, and those that owe nothing."""
        items, idle = [], []
        for name in schedules:
            known = self._known[name]
            owed = due(known.trigger, known.mark_ms, now_ms)
            if owed is None:
                idle.append(name)
                continue
            definition = known.definition
            items.append(
                FireItem(
                    schedule=name,
                    revision=known.revision,
                    mark_ms=known.mark_ms,
                    nominal_ms=owed.nominal_ms,
                    new_mark_ms=owed.new_mark_ms,
                    next_ms=owed.next_ms,
                    missed=owed.missed,
                    overlap=definition.overlap,
                    max_running=definition.max_running,
                    envelope=_envelope(definition, nominal_ms=owed.nominal_ms, wall_ms=now_ms),
                )
            )
        return items, idle

    def apply(self, items: Sequence[FireItem], reply: FireReply) -> Applied:
        """Advance each schedule as Redis decided."""
        is_stale = False
        skewed = []
        for item, result in zip(items, reply.results, strict=True):
            if result.code is FireCode.STALE:
                is_stale = True
            elif result.code is FireCode.SKEWED:
                skewed.append(item.schedule)
            else:
                # DUP: Redis knows better, from an answer that was lost or from another term.
                known = self._known[item.schedule]
                known.mark_ms = result.mark_ms if result.code is FireCode.DUP else item.new_mark_ms
                self._put(item.schedule)
        return Applied(is_stale, skewed)

    def plan(self, schedules: Iterable[str]) -> None:
        """Plan each of ``schedules`` that still exists for its next due time."""
        for name in schedules:
            if name in self._known:
                self._put(name)

    def _put(self, name: str) -> None:
        next_ms = self.next_ms_of(name)
        if next_ms is not None:
            self._plan.put(name, next_ms)


def _envelope(definition: ScheduleDef, *, nominal_ms: int, wall_ms: int) -> Envelope:
    return Envelope(
        id=scheduled_run_id(definition.id, nominal_ms),
        template=definition.template,
        enqueued_ms=wall_ms,
        schedule=definition.id,
        nominal_ms=nominal_ms,
    )
