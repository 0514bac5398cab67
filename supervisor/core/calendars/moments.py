"""Nominal times as people write them: a calendar in one zone, and steps on it.

Guarantees
    The same instant and zone give the same text on every replica: no name that depends on a locale, and no
    clock and no zone of the machine.
    A step of whole days keeps the time of day. Where a change of the clock skips that time, it is later by
    the skipped time; where the time comes twice, it is the first.

Does not guarantee
    A calendar before the year 5 or after 9987: times outside are taken for the nearest inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import NamedTuple

from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, zone
from supervisor.core.durations import EPOCH

DAYS_MAX = 36_600
"""Longest step, a hundred years."""

_DAY_S = 86_400
_ORDINAL_MIN, _ORDINAL_MAX = 2_000, 3_640_000  # days since the year 1, inside what ``zones`` serves
_LENGTHS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_DAYS = {"d": 1, "w": 7}
_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)", re.ASCII)
_SPAN = re.compile(rf"(?:{_PART.pattern}){{1,6}}", re.ASCII)


class Span(NamedTuple):
    """A step: days of the calendar, then real time."""

    days: int
    ms: int

    def __neg__(self) -> Span:
        return Span(-self.days, -self.ms)


def parse_span(text: str) -> Span | None:
    """Return the step written as ``text``, such as ``1d``, ``2w`` or ``1d6h``; None when it is none."""
    if not _SPAN.fullmatch(text):
        return None
    days = ms = 0
    for number, unit in _PART.findall(text):
        days += int(number) * _DAYS.get(unit, 0)
        ms += int(number) * _LENGTHS_MS.get(unit, 0)
    return Span(days, ms) if days + ms // (1000 * _DAY_S) <= DAYS_MAX else None


class Moment(NamedTuple):
    """An instant, and the zone in which people read it."""

    instant_ms: int
    zone: str

    def local(self) -> datetime:
        """Return it as the zone's calendar shows it, to the millisecond."""
        second, ms = divmod(self.instant_ms, 1000)
        second = min(max(second, SECOND_MIN), SECOND_MAX)
        offset = timedelta(seconds=zone(self.zone).at(second).offset)
        return (EPOCH + timedelta(seconds=second, milliseconds=ms)).astimezone(timezone(offset))

    def iso(self) -> str:
        """Return ISO 8601 with the offset; milliseconds only where there are some."""
        precision = "milliseconds" if self.instant_ms % 1000 else "seconds"
        text = self.local().isoformat(timespec=precision)
        return text.removesuffix("+00:00") + "Z" if self.zone == "UTC" else text

    def moved(self, span: Span) -> Moment:
        """Return it ``span`` later: first by days of the calendar, then by real time."""
        moment = self
        if span.days:
            local = self.local()
            ordinal = min(max(local.toordinal() + span.days, _ORDINAL_MIN), _ORDINAL_MAX)
            moment = _at_local(datetime.combine(date.fromordinal(ordinal), local.time()), self.zone)
        return moment._replace(instant_ms=moment.instant_ms + span.ms)

    def start_of(self, unit: str) -> Moment:
        """Return where the ``unit`` that it lies in begins: one of ``UNITS``."""
        local = self.local()
        if unit in {"minute", "hour"}:  # in real time, so that the second pass of an hour keeps its own beginning
            into = timedelta(seconds=local.second, microseconds=local.microsecond)
            into += timedelta(minutes=local.minute if unit == "hour" else 0)
            return self._replace(instant_ms=self.instant_ms - into // timedelta(milliseconds=1))
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        return _at_local(midnight - timedelta(days=_days_into(midnight, unit)), self.zone)


UNITS = ("minute", "hour", "day", "week", "month", "year")
"""What ``Moment.start_of`` knows. A week begins on Monday."""


def _days_into(midnight: datetime, unit: str) -> int:
    days = {"day": 0, "week": midnight.weekday(), "month": midnight.day - 1, "year": midnight.timetuple().tm_yday - 1}
    return days[unit]


def _at_local(local: datetime, zone_name: str) -> Moment:
    """Return the instant at which the zone's clocks show ``local``: the first, or, in a gap, as if it had not come."""
    second, ms = divmod((local.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1), 1000)
    table = zone(zone_name)
    # A day to either side is outside every offset, and the tz database has no two changes as close.
    earlier, later = table.at(second - _DAY_S).offset, table.at(second + _DAY_S).offset
    at = second - earlier
    if table.at(at).offset != earlier and table.at(second - later).offset == later:
        at = second - later
    return Moment(at * 1000 + ms, zone_name)


# How text is made, by letter, as strftime knows it; without what depends on the locale or on the machine.
LETTERS: Mapping[str, Callable[[datetime], str]] = {
    "Y": lambda at: f"{at.year:04d}",
    "m": lambda at: f"{at.month:02d}",
    "d": lambda at: f"{at.day:02d}",
    "H": lambda at: f"{at.hour:02d}",
    "M": lambda at: f"{at.minute:02d}",
    "S": lambda at: f"{at.second:02d}",
    "f": lambda at: f"{at.microsecond:06d}",
    "F": lambda at: f"{at.year:04d}-{at.month:02d}-{at.day:02d}",
    "T": lambda at: f"{at.hour:02d}:{at.minute:02d}:{at.second:02d}",
    "y": lambda at: f"{at.year % 100:02d}",
    "j": lambda at: f"{at.timetuple().tm_yday:03d}",
    "u": lambda at: str(at.isoweekday()),
    "G": lambda at: f"{at.isocalendar().year:04d}",
    "V": lambda at: f"{at.isocalendar().week:02d}",
    "q": lambda at: str((at.month + 2) // 3),
    "z": lambda at: at.strftime("%z"),
    "s": lambda at: str((at - EPOCH) // timedelta(seconds=1)),
    "%": lambda _at: "%",
}


def unknown_letter(pattern: str) -> str | None:
    """Return the first ``%`` of ``pattern`` that is followed by no letter of ``LETTERS``, with its next character."""
    for found in re.finditer(r"%(.?)", pattern, re.DOTALL):
        if found[1] not in LETTERS:
            return found[0]
    return None


def format_moment(moment: Moment, pattern: str) -> str:
    """Return ``moment`` by ``pattern``, whose letters are all known."""
    at = moment.local()
    return re.sub(r"%(.)", lambda found: LETTERS[found[1]](at), pattern, flags=re.DOTALL)
