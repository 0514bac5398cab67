"""Backfill eligibility: the nominal times of a schedule's past that may be run, given those known to have run.

Guarantees
    A nominal time that was enqueued, as far as that is known, or that waits to be, is not run
    again. One of which it is not known is not run either, unless the caller insists.

Does not guarantee
    Anything about former lives of the same id that ended more than a day ago.

Known are the latest decisions of a schedule as stretches, at most ``STRETCHES_MAX`` of
them. While there are fewer, none was forgotten but for what Redis lost, and times in no stretch were never enqueued.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from supervisor.core.calendars.search_limit import SearchLimitError, limit_search
from supervisor.core.schedules.trigger_kinds import Trigger

STRETCHES_MAX = 20
LOOK_MAX = 2000
"""At most so many nominal times are looked at for one chunk, so that none takes long."""
COUNTED_MAX = 10_000
"""Longer stretches under another definition count as unknown: comparing them takes too long."""


class BackfillDecision(StrEnum):
    """Decision about one nominal time of a backfill."""

    RUN = "run"
    RAN = "ran"  # it was enqueued
    WAITING = "waiting"  # it lies in the buffer
    UNKNOWN = "unknown"  # older than what is remembered, or decided under another timing


@dataclass(frozen=True, slots=True)
class EnqueuedSpan:
    """Nominal times from ``from_ms`` to ``to_ms``, both included, of which ``count`` were enqueued."""

    from_ms: int
    to_ms: int
    count: int
    revision: int  # of the definition that then ruled


@dataclass(frozen=True, slots=True)
class SchedulePast:
    """Remembered past of a schedule."""

    revision: int  # of the definition that rules now
    mark_ms: int  # later nominal times are the schedule's own
    enqueued: tuple[EnqueuedSpan, ...] = ()
    since_ms: int | None = None  # of earlier ones nothing is known; None: everything is
    lost: tuple[tuple[int, int], ...] = ()  # nor of those after the one moment and up to the other: Redis lost it
    waiting: frozenset[int] = frozenset()
    backfilled: frozenset[int] = frozenset()  # among those that the caller asked about

    def verdict(self, trigger: Trigger, nominal_ms: int) -> BackfillDecision:
        """Return the decision about ``nominal_ms``, which must not lie after the watermark."""
        if nominal_ms in self.waiting:
            return BackfillDecision.WAITING
        if nominal_ms in self.backfilled:
            return BackfillDecision.RAN
        for stretch in self.enqueued:
            if stretch.from_ms <= nominal_ms <= stretch.to_ms:
                return self._within(stretch, trigger, nominal_ms)
        is_forgotten = self.since_ms is not None and nominal_ms < self.since_ms
        is_forgotten = is_forgotten or any(after_ms < nominal_ms <= until_ms for after_ms, until_ms in self.lost)
        return BackfillDecision.UNKNOWN if is_forgotten else BackfillDecision.RUN

    def _within(self, stretch: EnqueuedSpan, trigger: Trigger, nominal_ms: int) -> BackfillDecision:
        if stretch.revision == self.revision or nominal_ms in {stretch.from_ms, stretch.to_ms}:
            return BackfillDecision.RAN
        return BackfillDecision.RAN if _is_same(trigger, stretch) else BackfillDecision.UNKNOWN


@lru_cache(maxsize=256)
def _is_same(trigger: Trigger, stretch: EnqueuedSpan) -> bool:
    """Return whether ``trigger`` has as many times there as were enqueued: then only other fields were edited."""
    if stretch.count > COUNTED_MAX:
        return False
    return trigger.count(stretch.from_ms - 1, stretch.to_ms, stretch.count + 1) == stretch.count


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next part of a backfill."""

    run: tuple[int, ...]  # oldest first
    again: tuple[int, ...]  # those among them that ran or may have run, with ``is_forced``
    skipped: int  # looked at and left out
    unknown: int  # how many of these because nothing is known of them
    cursor_ms: int  # nominal times up to this one are then done
    is_last: bool


@limit_search
def next_chunk(
    trigger: Trigger, known: SchedulePast, *, after_ms: int, until_ms: int, limit: int, is_forced: bool = False
) -> Chunk:
    """Return the first nominal times in (after_ms, until_ms] that are to be run, at most ``limit``.

    Nothing after the watermark: the schedule itself decides that. The chunk ends where the search for more takes too
    long.

    Raises:
        SearchLimitError: so does the search for the first.
    """
    end_ms = min(until_ms, known.mark_ms)
    run: list[int] = []
    again: list[int] = []
    counts = dict.fromkeys(BackfillDecision, 0)
    cursor, looked = after_ms, 0
    try:
        for nominal in trigger.nominals(after_ms, end_ms, LOOK_MAX + 1):
            if len(run) == limit or looked == LOOK_MAX:
                return _chunk(run, again, counts, cursor, is_last=False)
            verdict = known.verdict(trigger, nominal)
            if verdict is BackfillDecision.RUN or (is_forced and verdict is not BackfillDecision.WAITING):
                run.append(nominal)
                again += [nominal] if verdict is not BackfillDecision.RUN else []
            else:
                counts[verdict] += 1
            cursor, looked = nominal, looked + 1
    except SearchLimitError:
        if not looked:
            raise
        return _chunk(run, again, counts, cursor, is_last=False)
    return _chunk(run, again, counts, max(end_ms, after_ms), is_last=True)


def _chunk(
    run: list[int], again: list[int], counts: dict[BackfillDecision, int], cursor_ms: int, *, is_last: bool
) -> Chunk:
    skipped = sum(counts.values())
    return Chunk(tuple(run), tuple(again), skipped, counts[BackfillDecision.UNKNOWN], cursor_ms, is_last)


def chunks(
    trigger: Trigger, known: SchedulePast, *, from_ms: int, until_ms: int, limit: int, is_forced: bool = False
) -> Iterator[Chunk]:
    """Yield the whole of a backfill in chunks, at most ``limit`` runs together."""
    after_ms, left = from_ms - 1, limit
    while True:
        chunk = next_chunk(
            trigger, known, after_ms=after_ms, until_ms=until_ms, limit=min(left, 100), is_forced=is_forced
        )
        yield chunk
        after_ms, left = chunk.cursor_ms, left - len(chunk.run)
        if chunk.is_last or left == 0:
            return
