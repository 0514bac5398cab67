"""Durations as people write them: ``250ms 15s 5m 2h 7d 1w``, sums such as ``1h30m``, and ISO 8601 such as ``PT5M``.

Guarantees
    A written value is kept to the millisecond, so a duration that is printed and read
    again is the same one. Finer ones are refused instead of rounded.

Does not guarantee
    That a number from Python code carries the right unit: there it means seconds.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from supervisor.core.errors import OptionError, shown

Duration = float | str | timedelta
"""A duration in Python code: seconds, a text such as ``5m``, or a timedelta."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WEEK_MS = 7 * _UNITS_MS["d"]  # read, never printed: many expect 7d
_PART = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}){{1,6}}", re.ASCII)
_NUMBER = r"([0-9]{1,16}(?:\.[0-9]{1,6})?)"
_ISO_8601 = re.compile(
    rf"P(?=[0-9T])(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.ASCII
)
DURATION_PATTERN = (  # as JSON Schema has it
    r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+"
    r"|P(?=[0-9T])([0-9.]+W)?([0-9.]+D)?(T(?=[0-9])([0-9.]+H)?([0-9.]+M)?([0-9.]+S)?)?)$"
)
SECONDS_MAX = 4e9
"""More than a hundred years: what runs carry."""

_MS_MAX = 2**51  # far beyond it, seconds in a float are those of another millisecond
DELAY_S_MAX = 366 * 86_400.0
_WORDS = re.compile(r"([0-9]{1,9})(weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)")
_EXAMPLES = "write 250ms, 15s, 5m, 2h or 7d"


def parse_duration(value: Any) -> float:
    """Return the seconds in ``value``.

    Raises:
        ValueError: no number with a unit, or finer than a millisecond. A bare number is
            refused, because half of the readers would take it for milliseconds.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value:
        raise ValueError(f"{shown(value)} has no unit: write {shown(value)}s if seconds are meant")
    if value == "0" or (value == 0 and value is not False):
        return 0.0
    parts = _parts(value) if isinstance(value, str) else []
    if not parts:
        raise ValueError(f"{shown(value)} is not a duration: {_hint(value)}")
    milliseconds = sum(Decimal(number) * _UNITS_MS.get(unit, _WEEK_MS) for number, unit in parts)
    if milliseconds != int(milliseconds) or milliseconds > _MS_MAX:
        raise ValueError(f"{shown(value)} is not a whole number of milliseconds up to 2**51: {_EXAMPLES}")
    return int(milliseconds) / 1000


def _parts(text: str) -> list[tuple[str, str]]:
    """Return the numbers and units of a duration; none: it is no duration."""
    if _WHOLE.fullmatch(text):
        return _PART.findall(text)
    if found := _ISO_8601.fullmatch(text):
        return [(number, unit) for number, unit in zip(found.groups(), "wdhms", strict=True) if number]
    return []


def seconds_of(option: str, value: Duration) -> float:
    """Return the seconds of a duration in Python code.

    Raises:
        OptionError: it is none, or longer than a hundred years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise OptionError(f"{option} must be seconds, a duration such as '5m' or a timedelta, got {shown(value)}")
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise OptionError(f"{option}: {error}") from None
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if not abs(seconds) <= SECONDS_MAX:  # nor NaN, of which nothing is true
        raise OptionError(f"{option} must be at most {SECONDS_MAX:.0f} seconds, got {shown(value)}")
    return float(seconds)


def delay_to_ms(delay: Duration | None, at: datetime | None = None, *, now_ms: int = 0) -> int:
    """Return the milliseconds before a run may start.

    Args:
        delay: seconds, a text such as ``5m``, or a timedelta; None for none.
        at: the moment instead, with a time zone; one that has passed is now.
        now_ms: the time, counted from 1970.

    Raises:
        OptionError: both are given, the moment has no time zone, or either is beyond 366 days.
    """
    if at is not None:
        return _until(at, delay, now_ms)
    if delay is None:
        return 0
    seconds = seconds_of("delay", delay)
    if not 0 <= seconds <= DELAY_S_MAX:
        raise OptionError(f"delay must be 0 seconds to 366 days, got {shown(delay)}")
    return round(seconds * 1000)


def _until(at: datetime, delay: Duration | None, now_ms: int) -> int:
    if not isinstance(at, datetime):
        raise OptionError(f"at must be a datetime with a time zone, got {shown(at)}")
    if delay is not None:
        raise OptionError(f"delay {shown(delay)} and at {at.isoformat()} exclude each other; give one")
    if at.utcoffset() is None:
        raise OptionError(
            f"at={at.isoformat()} has no time zone, so it is another moment on each machine; "
            f"write datetime(…, tzinfo=UTC) or .astimezone()"
        )
    wait_ms = max(0, math.ceil((at - EPOCH) / timedelta(milliseconds=1)) - now_ms)
    if wait_ms > DELAY_S_MAX * 1000:
        raise OptionError(f"at must be at most 366 days from now, got {at.isoformat()}")
    return wait_ms


def _hint(value: Any) -> str:
    if not isinstance(value, str):
        return _EXAMPLES
    squeezed = "".join(value.split()).lower()
    if squeezed != value and _WHOLE.fullmatch(squeezed):
        return f"write {squeezed}"
    if found := _WORDS.fullmatch(squeezed):
        return f"write {int(found[1])}{found[2][0]}"
    if re.fullmatch(r"p[0-9.]+[ym].*", squeezed):
        return "years and months have no fixed length; write days, such as 30d"
    if _ISO_8601.fullmatch(squeezed.upper()):
        return f"write {squeezed.upper()}"
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,6})?", value):
        return f"write {value}s if seconds are meant"
    return _EXAMPLES


def format_duration(seconds: float) -> str:
    """Return ``seconds`` in the largest unit that holds it as a whole number."""
    milliseconds = round(seconds * 1000)
    for unit, size in reversed(_UNITS_MS.items()):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return "0s"
