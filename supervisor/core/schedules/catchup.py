"""Catch-up: the runs that a schedule owes for the nominal times since its watermark.

Guarantees
    Every nominal time that passed is either in ``Owed.nominals`` or counted in
    ``Owed.missed``, once, however the evaluations fall.
    A single due time within the window is owed however late it is: lateness alone is no
    reason to lose a run. Several are an outage, and ``missed`` decides.
    A run whose fire is still ahead, because of jitter, is neither. How late one is counts from its fire.

Does not guarantee
    That owed runs are enqueued: overlap is decided in Redis.
    Exact counts above ``MISSED_MAX``, or where they take more looks at triggers and exclusions than one question may
    (search_limit.py): then at least one counts as missed, and of those that are owed there may be only the newest.

Jitter, how far after its nominal time a run is fired, is drawn once and for ever: from the id of the schedule, and
with ``per_fire`` from the nominal time too. So it is the same on every replica, after a restart and when it is
computed again. The nominal time, which is the identity of the run, never moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from supervisor.core.calendars.days import OverExcludedError
from supervisor.core.calendars.search_limit import SearchLimitError, limit_search
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.trigger_kinds import Trigger

MISSED_MAX = 10_000
"""Missed nominal times are counted exactly up to this; the figure then means "at least"."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Runs owed at one evaluation, and the nominal times that were missed."""

    nominals: tuple[int, ...]  # to be enqueued, oldest first; may be empty
    new_mark_ms: int  # watermark afterwards: the newest nominal time that was due
    next_ms: int | None  # first nominal time after the watermark; may already have passed, its fire has not
    next_fire_ms: int | None  # when that one is fired
    missed: Mapping[str, int] = field(default_factory=dict)  # by reason: policy, window, cap; each at most MISSED_MAX


def fire_at_ms(definition: ScheduleDef, nominal_ms: int, next_nominal_ms: int | None) -> int:
    """Return when the run of ``nominal_ms`` is fired: ``floor(jitter * h / 2^64)`` later.

    A jitter longer than the gap to ``next_nominal_ms``, if there is one, counts as that gap, so a run is always
    fired before the next one is due, and the runs of a short interval still spread evenly.
    """
    spread = definition.jitter_ms
    if not spread:
        return nominal_ms
    if next_nominal_ms is not None:
        spread = min(spread, next_nominal_ms - nominal_ms)
    is_per_fire = definition.jitter_mode == "per_fire"
    drawn = _hash(f"{definition.id}\0{nominal_ms}") if is_per_fire else _fixed(definition.id)
    return nominal_ms + (spread * drawn >> 64)


@lru_cache(maxsize=16_384)
def _fixed(schedule: str) -> int:
    return _hash(schedule)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class Planned(NamedTuple):
    """The next run of a schedule."""

    nominal_ms: int
    fire_ms: int


def next_fire(definition: ScheduleDef, trigger: Trigger, mark_ms: int) -> Planned | None:
    """Return the first nominal time after ``mark_ms`` and when it is fired; None when there is none.

    Raises:
        OverExcludedError: the exclusions leave nothing within reach.
    """
    nominal = trigger.next_ms(mark_ms)
    if nominal is None:
        return None
    return Planned(nominal, fire_of(definition, trigger, nominal) if definition.jitter_ms else nominal)


def following_fire(definition: ScheduleDef, trigger: Trigger, nominal_ms: int) -> Planned | None:
    """Return the same for the time after one that is due, which exclusions that leave nothing behind it do not stop."""
    try:
        return next_fire(definition, trigger, nominal_ms)
    except OverExcludedError:
        return None  # ``next_fire`` tells it when that one is decided


def fire_of(definition: ScheduleDef, trigger: Trigger, nominal_ms: int) -> int:
    """Return when the run of ``nominal_ms`` is fired: how late it is counts from then."""
    if not definition.jitter_ms:
        return nominal_ms
    try:
        next_ms = trigger.next_ms(nominal_ms)
    except OverExcludedError:
        next_ms = None
    return fire_at_ms(definition, nominal_ms, next_ms)


def owed(
    definition: ScheduleDef,
    trigger: Trigger,
    *,
    mark_ms: int,
    now_ms: int,
    on_time_grace_ms: int,
    until_ms: int | None = None,
) -> Owed | None:
    """Return the runs owed for the nominal times after ``mark_ms`` whose fire is due; None when none is.

    Args:
        definition: whose policies decide.
        trigger: of this definition.
        mark_ms: its watermark: the newest nominal time that was decided.
        now_ms: wall clock.
        on_time_grace_ms: how late a run of ``missed: skip`` may be and still count as on time.
        until_ms: what is due later is left, though it is due by now; None: nothing is.

    Raises:
        OverExcludedError: the exclusions leave nothing within reach.
    """
    until_ms = now_ms if until_ms is None else until_ms
    newest = _newest_due(definition, trigger, mark_ms, until_ms)
    if newest is None:
        return None
    case = _Case(definition, trigger, mark_ms, newest, now_ms, on_time_grace_ms, until_ms)
    try:
        nominals, missed = case.decide()
    except SearchLimitError:
        nominals, missed = case.newest_alone()
    following = following_fire(definition, trigger, newest)
    return Owed(
        nominals=nominals,
        new_mark_ms=newest,
        next_ms=following.nominal_ms if following else None,
        next_fire_ms=following.fire_ms if following else None,
        missed={reason: count for reason, count in missed.items() if count},
    )


def _newest_due(definition: ScheduleDef, trigger: Trigger, mark_ms: int, now_ms: int) -> int | None:
    """Return the newest nominal time after the mark whose fire is due."""
    newest = trigger.latest_ms(mark_ms, now_ms)
    if newest is not None and fire_of(definition, trigger, newest) > now_ms:
        # Jitter ends before the next nominal time, so all older ones are due.
        return trigger.latest_ms(mark_ms, newest - 1)
    return newest


def mark_at(definition: ScheduleDef, trigger: Trigger, mark_ms: int, at_ms: int) -> int:
    """Return the watermark, no lower than ``mark_ms``, once nothing that was due by ``at_ms`` is owed.

    What waits for its jitter is not due yet. That can only be the last nominal time, as jitter ends before the next.
    """
    if definition.jitter_ms:
        with suppress(TenureError):  # its exclusions leave nothing within reach
            newest = trigger.latest_ms(max(mark_ms, at_ms - definition.jitter_ms), at_ms)
            if newest is not None and fire_of(definition, trigger, newest) > at_ms:
                at_ms = newest - 1
    return max(mark_ms, at_ms)


class _Case(NamedTuple):
    """The nominal times in (mark_ms, newest_ms], of which there is one at least."""

    definition: ScheduleDef
    trigger: Trigger
    mark_ms: int
    newest_ms: int
    now_ms: int
    grace_ms: int
    until_ms: int

    @limit_search
    def decide(self) -> tuple[tuple[int, ...], dict[str, int]]:
        """Return the nominal times to enqueue, and the others by reason."""
        definition, newest = self.definition, self.newest_ms
        window = definition.catchup_window_ms
        # The newest time that is too old; whatever is younger lies in the window.
        horizon = self.mark_ms if window is None else self._due_by(self.now_ms - window - 1)
        if newest == horizon:
            return (), {"window": self._count(self.mark_ms, horizon, MISSED_MAX, otherwise=1)}
        nominals = self._chosen(horizon)
        outside = self._count(self.mark_ms, horizon, MISSED_MAX, otherwise=1)
        most = MISSED_MAX + max(definition.max_catchup, 2)
        inside = self._count(horizon, newest, most, otherwise=len(nominals) + 1)
        if outside + inside == 1:
            return (newest,), {}
        rest = min(inside - len(nominals), MISSED_MAX)
        if definition.missed == "all":
            return nominals, {"window": outside, "cap": rest}
        if definition.missed == "skip":
            border = max(horizon, self._due_by(self.now_ms - self.grace_ms))
            late = self._count(horizon, border, MISSED_MAX, otherwise=1)
            on_time = self._count(border, newest, MISSED_MAX + len(nominals), otherwise=len(nominals))
            return nominals, {"window": outside, "policy": late, "cap": on_time - len(nominals)}
        return nominals, {"window": outside, "policy": rest}

    def newest_alone(self) -> tuple[tuple[int, ...], dict[str, int]]:
        """Return the newest nominal time where the others take too many looks: at least one of them was missed."""
        definition = self.definition
        late_ms = self.now_ms - fire_of(definition, self.trigger, self.newest_ms)
        if definition.catchup_window_ms is not None and late_ms > definition.catchup_window_ms:
            return (), {"window": 1}
        if definition.missed == "skip" and late_ms > self.grace_ms:
            return (), {"policy": 1}
        return (self.newest_ms,), {"cap": 1}

    def _chosen(self, horizon: int) -> tuple[int, ...]:
        """Return which of the times in (horizon, newest] are enqueued."""
        missed = self.definition.missed
        if missed == "latest":
            return (self.newest_ms,)
        if missed == "earliest":
            return tuple(self.trigger.nominals(horizon, self.newest_ms, 1))
        if missed == "skip":  # what is late by the grace or more is left out
            horizon = max(horizon, self._due_by(self.now_ms - self.grace_ms))
        return self.trigger.newest(horizon, self.newest_ms, self.definition.max_catchup)

    def _due_by(self, at_ms: int) -> int:
        """Return the newest nominal time whose fire was due at ``at_ms``, else the watermark."""
        found = _newest_due(self.definition, self.trigger, self.mark_ms, min(at_ms, self.until_ms))
        return self.mark_ms if found is None else found

    def _count(self, after_ms: int, until_ms: int, cap: int, *, otherwise: int) -> int:
        try:
            return self.trigger.count(after_ms, until_ms, cap) if until_ms > after_ms else 0
        except SearchLimitError:
            return otherwise
