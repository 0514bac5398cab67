"""Cron expressions, compiled: instants in whole seconds since 1970 in, and out.

Guarantees
    Fire times are Debian cron's, also where the clock changes. An entry whose minute and
    hour are fixed and fall into a gap fires once, at the instant the gap ends; in an overlap
    it fires on the first pass only; ``dst_gap`` and ``dst_overlap`` choose otherwise. An entry
    whose minute or hour starts with ``*`` follows real time: nothing is invented in a gap, both
    passes of an overlap count. A change by more than three hours corrects the zone: times it
    skipped are not made up for. A field of seconds does not change the class.
    ``prev(next(t)) <= t < next(t)``, and ``count`` agrees with ``next``.

Differs from Debian on purpose
    Several fixed times in one gap are one fire, because a run is known by its instant.

Compiled expressions are immutable, hold no position and are shared, so that many schedules
with one expression cost one. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from supervisor.core.cron.days import days_of
from supervisor.core.cron.dst import DEFAULT, REAL_TIME, DstPolicy, count_between, first_in, last_in
from supervisor.core.cron.errors import CronError, brief
from supervisor.core.cron.explain import explain
from supervisor.core.cron.fields import Fields, is_hashed, parse, resolved_hashes, split_zone
from supervisor.core.cron.times import EVERY_SECOND, Times
from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, UnknownZoneError, Zone, zone

__all__ = ["SEARCH_S", "Cron", "CronError", "compile_cron"]

SEARCH_S = 40 * 366 * 86_400
"""How far a search goes: 40 years hold every date that comes back, also across 2100."""


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """One expression in one zone. Get it from ``compile_cron``, which shares it."""

    expression: str
    timezone: str
    policy: DstPolicy
    _fields: Fields
    _zone: Zone
    _times: Times

    @property
    def is_wildcard(self) -> bool:
        """True if it follows real time across a change of the clock, because minute or hour start with ``*``."""
        return self._fields.is_wildcard

    def next(self, after_s: int) -> int | None:
        """Return the first fire after ``after_s``; None when there is none within 40 years."""
        at = max(after_s, SECOND_MIN) + 1
        limit = min(at + SEARCH_S, SECOND_MAX)
        policy, times = self.policy, self._times
        while at < limit:
            segment = self._zone.at(at)
            start, end, offset, first_local, _ = segment
            if policy is REAL_TIME:
                local = at + offset
            elif policy is DEFAULT:  # at its start a segment also owns the times that the gap before it skipped
                local = first_local if at == start else max(at + offset, first_local)
            else:
                chosen = first_in(times, policy, segment, at)
                if chosen is not None:
                    return chosen
                at = end
                continue
            found = times.first(local, end + offset - 1)
            if found is not None:
                return max(found - offset, start)
            at = end
        return None

    def prev(self, before_or_at_s: int) -> int | None:
        """Return the last fire at or before ``before_or_at_s``; None when there is none within 40 years."""
        at = min(before_or_at_s, SECOND_MAX)
        limit = max(at - SEARCH_S, SECOND_MIN)
        while at >= limit:
            segment = self._zone.at(at)
            found = last_in(self._times, self.policy, segment, at)
            if found is not None:
                return found
            at = segment.start - 1
        return None

    def count(self, after_s: int, until_s: int, cap: int) -> int:
        """Return how many fires lie in (after_s, until_s], or ``cap`` when they are at least that many."""
        at, until = max(after_s, SECOND_MIN) + 1, min(until_s, SECOND_MAX)
        return count_between(self._zone, self._times, self.policy, at, until=until, cap=cap)

    def fires(self, after_s: int, until_s: int) -> Iterator[int]:
        """Yield every fire in (after_s, until_s]."""
        at = self.next(after_s)
        while at is not None and at <= until_s:
            yield at
            at = self.next(at)

    @property
    def matches_either_day(self) -> bool:
        """True if both fields of days are restricted, so that a day is due if either of them matches."""
        fields = self._fields
        day_of_month, _, day_of_week = fields.text.split(" ")[-3:]
        return not fields.needs_both_days and "*" not in (day_of_month, day_of_week)

    def readings(self) -> Times:
        """Return the readings of a wall clock that match: whole minutes, for an expression without seconds."""
        fields = self._fields
        return _times(fields, fields.second if fields.has_seconds else EVERY_SECOND)

    def clock_changes(self, after_s: int, within_s: int) -> Iterator[tuple[int, bool]]:
        """Yield each instant at which a change of the clock meets a fixed time of this expression.

        And whether it skips that time; else it repeats it. Independent of the policies: they decide the consequence.
        """
        at, until = after_s, min(after_s + within_s, SECOND_MAX)
        while at < until and not self.is_wildcard:
            segment = self._zone.at(at)
            opening, passed = segment.start + segment.offset, segment.first_local
            # A segment may reach back behind where a table begins: then its start was seen before.
            if segment.start == at > after_s and passed != opening:
                low, high = min(passed, opening), max(passed, opening) - 1
                if self._times.first(low, high) is not None:
                    yield segment.start, passed < opening
            at = segment.end

    def describe(self) -> str:
        """Return the expression and its zone, for people."""
        return f"cron {self.expression} {self.timezone}"

    def explain(self) -> str:
        """Return it in words: ``At 02:30, on day 1 of the month or on Monday, in Europe/Berlin``."""
        return explain(self._fields, self.timezone, self.policy)


def compile_cron(
    expression: str,
    timezone: str | None = None,
    *,
    dst_gap: str = "run",
    dst_overlap: str = "first",
    seed: str = "",
) -> Cron:
    """Return the compiled form of ``expression``.

    Args:
        expression: five fields, or six with seconds in front; an alias such as ``@daily``. A prefix
            ``CRON_TZ=`` or ``TZ=`` names the zone, where ``timezone`` does not.
        timezone: an IANA name; None: that of the prefix, else UTC.
        dst_gap: the rule for a fixed time that a change of the clock skips: run, skip or shift.
        dst_overlap: on which pass a fixed time fires that comes twice: first, last or both.
        seed: id of the schedule, which ``H`` is drawn from.

    Raises:
        CronError: the expression cannot be read, can never match, or the zone is unknown.
    """
    if "TZ=" in expression:
        prefix, rest = split_zone(expression)
        if prefix is not None:
            if timezone is not None:
                raise CronError(
                    f'cron "{brief(expression)}": names a zone, and timezone is {timezone}; '
                    f"remove one of them, such as the prefix"
                )
            expression, timezone = rest, prefix
    if is_hashed(expression):
        expression = resolved_hashes(expression, seed)
    return _compile(expression, "UTC" if timezone is None else timezone, dst_gap, dst_overlap)


@lru_cache(maxsize=16_384)
def _compile(expression: str, timezone: str, dst_gap: str, dst_overlap: str) -> Cron:
    fields = parse(expression)
    try:
        in_zone = zone(timezone)
    except UnknownZoneError as error:
        raise CronError(f'cron "{fields.text}": {error}') from error
    return Cron(
        expression=fields.text,
        timezone=timezone,
        policy=REAL_TIME if fields.is_wildcard else DstPolicy.of(dst_gap, dst_overlap),
        _fields=fields,
        _zone=in_zone,
        _times=_times(fields, fields.second),
    )


def _times(fields: Fields, seconds: int) -> Times:
    days = days_of(
        day_of_month=fields.day_of_month,
        month=fields.month,
        day_of_week=fields.day_of_week,
        needs_both=fields.needs_both_days,
    )
    if days.is_never:
        raise CronError(_never(fields))
    return Times(days=days, minutes=_minutes_of_day(fields.minute, fields.hour), seconds=seconds)


@lru_cache(maxsize=4096)
def _minutes_of_day(minute: int, hour: int) -> int:
    return sum(minute << 60 * h for h in range(24) if hour >> h & 1)


def _never(fields: Fields) -> str:
    day_of_month, month, day_of_week = fields.text.split(" ")[-3:]
    together = f" and day-of-week {day_of_week!r}" if fields.needs_both_days and day_of_week not in {"*", "?"} else ""
    return (
        f'cron "{fields.text}": never matches: no day-of-month {day_of_month!r}{together} exists in month {month!r}; '
        f"use a day that exists"
    )
