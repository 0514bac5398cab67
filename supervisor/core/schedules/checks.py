"""Hooks that the leader itself asks: pure, bounded questions about a schedule and one of its nominal times.

    closed    gate     nothing of the profile is fired, for ever or until an instant
    blackout  filter   nominal times that lie in a window are not fired
    weekdays  filter   only nominal times on these days are fired
    quota     filter   only the first so many nominal times of each period are fired

Guarantees
    The same nominal time gets the same answer on every replica and after a restart, unless ``closed`` has ended
    meanwhile: nothing is counted, everything follows from the definition.
    An answer costs at most ``QUOTA_MAX`` steps of the trigger.

Does not guarantee
    Anything about runs without a nominal time of the plan: runs by hand, backfills, the initial run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from supervisor.core.calendars.days import DAY_S, OverExcludedError, weekday_of
from supervisor.core.cron.fields import is_hashed
from supervisor.core.cron.zones import zone
from supervisor.core.jobs.hooks import Hook, Point
from supervisor.core.model import Check, ScheduleDef
from supervisor.core.schedules.exclusions import exclusions_of
from supervisor.core.schedules.trigger_kinds import Trigger

QUOTA_MAX = 1000
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LETTERS = {"closed": "g", "blackout": "b", "weekdays": "d", "quota": "q"}
"""As the decision is kept with a schedule: ``store/schedules/reads.py`` reads them."""

POINT = {"closed": Point.GATE, "blackout": Point.FILTER, "weekdays": Point.FILTER, "quota": Point.FILTER}


class FireRefusal(NamedTuple):
    """A nominal time that is not fired."""

    hook: str
    letter: str
    reason: str

    @property
    def point(self) -> Point:
        """Point at which its hook was called."""
        return POINT[self.hook]


Question = Callable[[int, int, Trigger], str | None]
"""From a due time, the time by the wall clock and the trigger to what is against firing it; None: nothing."""


class Checks(NamedTuple):
    """The checks of one schedule, gates first, each group in the order of its profile."""

    questions: tuple[tuple[str, Question], ...]

    def refusal(self, nominal_ms: int, now_ms: int, trigger: Trigger) -> FireRefusal | None:
        """Return which check has something against ``nominal_ms``, the first that does; None when none has."""
        for hook, question in self.questions:
            reason = question(nominal_ms, now_ms, trigger)
            if reason is not None:
                return FireRefusal(hook, LETTERS[hook], reason)
        return None


@lru_cache(maxsize=4096)
def checks_of(checks: tuple[Check, ...], timezone: str, seed: str) -> Checks | None:
    """Return the compiled ``checks``; None when there are none.

    One that is not known here comes from a newer version, and asks nothing. Zone and seed, from which expressions draw
    ``H``, are those of the schedule; a check may name another zone.
    """
    known = [check for check in checks if check.hook in _MAKE]
    known.sort(key=lambda check: POINT[check.hook] is not Point.GATE)
    found = tuple((check.hook, _MAKE[check.hook](check, check.timezone or timezone, seed)) for check in known)
    return Checks(found) if found else None


def checks_of_definition(definition: ScheduleDef) -> Checks | None:
    """Return the compiled checks of ``definition``, shared by schedules that differ in their id only."""
    if not definition.checks:
        return None
    expressions = [item.cron for check in definition.checks for item in check.exclude if item.cron is not None]
    return checks_of(definition.checks, definition.timezone, definition.id if any(map(is_hashed, expressions)) else "")


def hooks() -> list[Hook]:
    """Return the checks as hooks of the registry."""
    return [Hook(name, "in-tree", (POINT[name],), is_check=True) for name in LETTERS]


def _closed(check: Check, _timezone: str, _seed: str) -> Question:
    until_ms, reason = check.until_ms, check.reason or "closed"
    if until_ms is None:
        return lambda *_: reason
    text = f"{reason} until {datetime.fromtimestamp(until_ms / 1000, UTC).isoformat()}"
    return lambda _nominal_ms, now_ms, _trigger: text if now_ms < until_ms else None


def _blackout(check: Check, timezone: str, seed: str) -> Question:
    exclusions = exclusions_of(check.exclude, timezone, seed)
    reason = check.reason or "in a blackout window"

    def question(nominal_ms: int, _now_ms: int, _trigger: Trigger) -> str | None:
        try:
            return reason if exclusions.has(nominal_ms) else None
        except OverExcludedError:  # the window has no end
            return reason

    return question


def _weekdays(check: Check, timezone: str, _seed: str) -> Question:
    days, of = frozenset(check.days), zone(timezone)

    def question(nominal_ms: int, _now_ms: int, _trigger: Trigger) -> str | None:
        at = nominal_ms // 1000
        day = weekday_of((at + of.at(at).offset) // DAY_S)
        return None if day in days else f"not on {DAYS[day]}"

    return question


def _quota(check: Check, _timezone: str, _seed: str) -> Question:
    count, per_ms = check.count, check.per_ms

    def question(nominal_ms: int, _now_ms: int, trigger: Trigger) -> str | None:
        begin_ms = nominal_ms // per_ms * per_ms
        before = trigger.count(begin_ms - 1, nominal_ms - 1, count)
        return None if before < count else f"{count} due times of its period came before it"

    return question


_MAKE: dict[str, Callable[[Check, str, str], Question]] = {
    "closed": _closed,
    "blackout": _blackout,
    "weekdays": _weekdays,
    "quota": _quota,
}


_SENTENCES: dict[str, Callable[[Check], str]] = {
    "closed": lambda check: f"Its profile is closed: {check.reason or 'no reason given'}.",
    "blackout": lambda check: f"Not fired in {len(check.exclude)} blackout window(s).",
    "weekdays": lambda check: f"Only on {', '.join(DAYS[day] for day in check.days)}.",
    "quota": lambda check: f"Only the first {check.count} due times of each {check.per_ms / 1000:g} s.",
}


def sentences(checks: Sequence[Check]) -> list[str]:
    """Return the conditions of ``checks`` in words."""
    return [_SENTENCES[check.hook](check) if check.hook in _SENTENCES else f"Asked: {check.hook}." for check in checks]
