"""Instants and days as people write them: ISO 8601, in the zone of the schedule unless there is an offset."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

from supervisor.core.cron.zones import SECOND_MAX, SECOND_MIN, zone
from supervisor.core.durations import EPOCH

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(
    r"(?P<local>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(?P<offset>Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_EXAMPLE = "write 2027-01-01T09:00:00+01:00, or without the offset to mean the schedule's zone"
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
_DAY_S = 86_400


def is_date(text: str) -> bool:
    """Return whether ``text`` is a day without a time."""
    return _DATE.fullmatch(text.strip()) is not None


def parse_instant(text: str, timezone: str) -> int:
    """Return the instant written as ``text``, in milliseconds since 1970.

    Without an offset it is read in ``timezone``, which is known to exist.

    Raises:
        ValueError: it is none, does not exist in the zone or exists twice. Fault and remedy are
            separated by a semicolon.
    """
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        hint = "add a time, such as T00:00" if is_date(text) else _EXAMPLE
        raise ValueError(f"{text!r} is not a date and time; {hint}")
    try:
        local = datetime.fromisoformat(match["local"])
        offset = match["offset"] and datetime.fromisoformat(f"2000-01-01T00:00{match['offset']}").utcoffset()
    except ValueError:
        raise ValueError(f"{text!r} is not in the calendar; {_EXAMPLE}") from None
    reading_ms = _reading_ms(local, text)
    if match["offset"]:
        assert isinstance(offset, timedelta)
        return reading_ms - offset // timedelta(milliseconds=1)
    second, ms = divmod(reading_ms, 1000)
    instants = _instants(second, timezone)
    if not instants:
        raise ValueError(f"{text!r} does not exist in {timezone}, whose clocks skip it; write it with an offset")
    if len(instants) > 1:
        raise ValueError(f"{text!r} comes twice in {timezone}, whose clocks repeat it; write it with an offset")
    return instants[0] * 1000 + ms


def parse_bound(text: str, *, is_end: bool = False) -> int:
    """Return the first or last instant of a range, in milliseconds since 1970, in UTC without an offset.

    A day without a time is its beginning, or with ``is_end`` its last millisecond.

    Raises:
        ValueError: as for ``parse_instant``.
    """
    if not is_date(text):
        return parse_instant(text, "UTC")
    begin_ms, behind_ms = parse_day(text, "UTC")
    return behind_ms - 1 if is_end else begin_ms


def parse_date(text: str) -> int:
    """Return the day of a date, counted from 1970-01-01.

    Raises:
        ValueError: it is no day. Fault and remedy are separated by a semicolon.
    """
    found = _date(text)
    if found is None or not 1970 <= found.year <= 9986:
        raise ValueError(f"{text!r} is not a day from 1970 to 9986; write the first day, such as 2026-11-23")
    return (found - EPOCH.date()).days


def _date(text: str) -> date | None:
    with suppress(ValueError):  # such as of a 31st of February
        return date.fromisoformat(text.strip()) if is_date(text) else None
    return None


def parse_clock(text: str) -> int:
    """Return the seconds since midnight of a time of day.

    Raises:
        ValueError: it is none. Fault and remedy are separated by a semicolon.
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time of day; write 09:00, from 00:00 to 23:59")
    hour, minute, second = (int(part or 0) for part in found.groups())
    return 3600 * hour + 60 * minute + second


def parse_day(text: str, timezone: str) -> tuple[int, int]:
    """Return when a day begins and when the next one does, in milliseconds since 1970.

    Raises:
        ValueError: it is no day; as for ``parse_instant``.
    """
    day = _date(text)
    if day is None:
        raise ValueError(f"{text!r} is not a day; write 2026-12-25")
    begin = _reading_ms(datetime(day.year, day.month, day.day), text) // 1000  # noqa: DTZ001 - a reading of a wall clock
    of = zone(timezone)
    return of.first_showing(begin) * 1000, of.first_showing(begin + _DAY_S) * 1000


def _reading_ms(local: datetime, text: str) -> int:
    reading_ms = (local.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
    if not SECOND_MIN + 2 * _DAY_S < reading_ms // 1000 < SECOND_MAX - 2 * _DAY_S:
        raise ValueError(f"{text!r} is out of range; use a year from 0006 to 9986")
    return reading_ms


def _instants(reading_s: int, timezone: str) -> list[int]:
    """Return the instants at which clocks in ``timezone`` show ``reading_s``, in order."""
    table = zone(timezone)
    # A day to either side is outside every offset, and the tz database has no two changes as close.
    offsets = {table.at(reading_s + shift).offset for shift in (-_DAY_S, 0, _DAY_S)}
    return sorted(at for at in (reading_s - offset for offset in offsets) if table.at(at).offset == reading_s - at)
