"""Durations as people write them: ``250ms 15s 5m 2h 7d``, and sums such as ``1h30m``.

Guarantees
    A written value is kept to the millisecond, so a duration that is printed and read
    again is the same one. Finer ones are refused instead of rounded.

Does not guarantee
    That a number from Python code carries the right unit: there it means seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}){{1,5}}", re.ASCII)
DURATION_PATTERN = r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$"
_MS_MAX = 2**53  # beyond it a float no longer holds every whole number
DELAY_S_MAX = 366 * 86_400.0
_WORDS = re.compile(r"([0-9]{1,9})(w|weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)")
_ISO_8601 = re.compile(r"p(?:([0-9]{1,9})d)?(?:t(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?)?")
_EXAMPLES = "write 250ms, 15s, 5m, 2h or 7d"


def parse_duration(value: Any) -> float:
    """Return the seconds in ``value``.

    Raises:
        ValueError: no number with a unit, or finer than a millisecond. A bare number is
            refused, because half of the readers would take it for milliseconds.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value:
        raise ValueError(f"{value!r} has no unit: write {value:g}s if seconds are meant")
    if value == "0" or (value == 0 and value is not False):
        return 0.0
    if not isinstance(value, str) or not _WHOLE.fullmatch(value):
        raise ValueError(f"{value!r} is not a duration: {_hint(value)}")
    milliseconds = sum(Decimal(number) * _UNITS_MS[unit] for number, unit in _PART.findall(value))
    if milliseconds != int(milliseconds) or milliseconds > _MS_MAX:
        raise ValueError(f"{value!r} is not a whole number of milliseconds below 2**53: {_EXAMPLES}")
    return int(milliseconds) / 1000


def delay_to_ms(delay: float | str | None) -> int:
    """Return the milliseconds of a delay in Python code: seconds, a text such as ``5m``, or None for none.

    Raises:
        ValueError: it is no duration, negative, or over 366 days.
    """
    if delay is None:
        return 0
    seconds = parse_duration(delay) if isinstance(delay, str) else float(delay)
    if not 0 <= seconds <= DELAY_S_MAX:
        raise ValueError(f"delay must be 0 seconds to 366 days, got {delay!r}")
    return round(seconds * 1000)


def _hint(value: Any) -> str:
    if not isinstance(value, str):
        return _EXAMPLES
    squeezed = "".join(value.split()).lower()
    if squeezed != value and _WHOLE.fullmatch(squeezed):
        return f"write {squeezed}"
    if found := _WORDS.fullmatch(squeezed):
        number, unit = int(found[1]), found[2][0]
        return f"write {7 * number}d" if unit == "w" else f"write {number}{unit}"
    if (found := _ISO_8601.fullmatch(squeezed)) and any(found.groups()):
        parts = zip(found.groups(), "dhms", strict=True)
        return "write " + "".join(f"{number}{unit}" for number, unit in parts if number)
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
