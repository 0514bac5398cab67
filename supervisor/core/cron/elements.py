"""One field of a cron expression: text in, a bit mask of the values it allows out, or an error that helps.

Bit n of a mask is the value n. The fields of days hold more than numbers, in bits above
those: see ``days`` for their meaning there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from supervisor.core.cron.days import FROM_END, LAST_WEEKDAYS, NEAREST, NTH_WEEKDAYS, WEEK
from supervisor.core.cron.errors import ExpressionPosition, Field, brief, refuse_name, refuse_syntax

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY_OF_MONTH = Field("day-of-month", 1, 31)
MONTH = Field("month", 1, 12, _MONTHS, 1)
DAY_OF_WEEK = Field("day-of-week", 0, 7, _DAYS, 0)

FIVE = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
SIX = (SECOND, *FIVE)

_DIGITS_MAX = 4  # more are out of every range, and are not turned into a number
_TOO_LARGE = 99_999
_ELEMENT = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?(?:/(?P<step>[0-9]+))?", re.ASCII)
_FROM_END = re.compile(r"L(?:-(?P<days>[0-9]+))?", re.ASCII | re.IGNORECASE)
_NEAREST = re.compile(r"(?P<day>[0-9]+|L)W", re.ASCII | re.IGNORECASE)
_NTH = re.compile(r"(?P<day>[0-9]+|[A-Za-z]+)#(?P<nth>[0-9]+)", re.ASCII)
_LAST_WEEKDAY = re.compile(r"(?P<day>[0-9]+|[A-Za-z]{3,9})L", re.ASCII | re.IGNORECASE)


def parse_field(place: ExpressionPosition, text: str) -> int:
    """Return the mask of a whole field.

    Raises:
        CronError: an element of it cannot be read, is out of range or has no meaning.
    """
    if "," not in text:
        return _parse_element(place, text)
    mask = 0
    column = place.column
    for element in text.split(","):
        mask |= _parse_element(ExpressionPosition(place.expression, place.field, column), element)
        column += len(element) + 1
    return mask


def _parse_element(place: ExpressionPosition, element: str) -> int:
    """Return the mask of ``*``, ``*/2``, ``5``, ``5/10``, ``Monday``, ``FRI-MON``, ``0-30/10``, ``L`` or ``5#2``."""
    field = place.field
    if element == "*":
        return (1 << field.top + 1) - (1 << field.low)
    if not element:
        place.refuse("", "an empty element", "remove the comma")
    if field.is_day:
        special = _parse_special(place, element)
        if special is not None:
            return special
    match = _ELEMENT.fullmatch(element)
    if not match or (match["first"] == "*" and match["last"]):
        refuse_syntax(place, element)
    first = field.low if match["first"] == "*" else number(place, element, match["first"])
    last = number(place, element, match["last"]) if match["last"] else first
    if not match["last"] and (match["first"] == "*" or match["step"]):
        last = field.top  # ``5/10`` means ``5-59/10``, as in every dialect that reads it
    values = values_between(field, first, last)
    step = step_of(place, element, match["step"], len(values)) if match["step"] else 1
    return sum(1 << value for value in values[::step])


def values_between(field: Field, first: int, last: int) -> Sequence[int]:
    """Return the values from ``first`` to ``last``, over the end of the field and on from its start if need be."""
    if first > last:
        first = first if first <= field.top else field.low  # 7 is Sunday, as 0 is
    return range(first, last + 1) if first <= last else [*range(first, field.top + 1), *range(field.low, last + 1)]


def number(place: ExpressionPosition, element: str, text: str) -> int:
    """Return the value of a number or a name, within the range of the field."""
    field = place.field
    if text.isdigit():
        value = _whole(text)
    elif (named := field.value_of(text)) is not None:
        value = named
    else:
        refuse_name(place, element, text)
    if not field.low <= value <= field.high:
        place.refuse(element, f"{brief(text)} is not within {field.low}-{field.high}", f"use {field.low}-{field.high}")
    return value


def step_of(place: ExpressionPosition, element: str, text: str, values: int) -> int:
    """Return a step through ``values`` values."""
    step = _whole(text)
    if step == 0:
        place.refuse(element, "a step of 0 never moves", "use 1 or more")
    if step > values:
        place.refuse(
            element,
            f"the step {brief(text)} is larger than the range, which has {values} values",
            "name the values you mean",
        )
    return step


def _parse_special(place: ExpressionPosition, element: str) -> int | None:
    """Return the mask of an element that only the fields of days know; None when ``element`` is nothing of the kind."""
    if element == "?":
        return (1 << place.field.top + 1) - (1 << place.field.low)
    if place.field is DAY_OF_WEEK:
        return _parse_weekday(place, element)
    if match := _FROM_END.fullmatch(element):
        days = _whole(match["days"] or "0")
        if match["days"] and not 1 <= days <= 30:
            place.refuse(element, f"{brief(match['days'])} days before the last are not within 1-30", "write L-1 or L")
        return 1 << FROM_END + days
    if match := _NEAREST.fullmatch(element):
        if match["day"].isdigit():
            return 1 << NEAREST + number(place, element, match["day"])
        return 1 << NEAREST
    return None


def _parse_weekday(place: ExpressionPosition, element: str) -> int | None:
    if match := _NTH.fullmatch(element):
        day, nth = number(place, element, match["day"]) % WEEK, _whole(match["nth"])
        if not 1 <= nth <= 5:
            place.refuse(element, f"no month has a weekday number {brief(match['nth'])}", "use #1 to #5, or L")
        return 1 << NTH_WEEKDAYS + (nth - 1) * WEEK + day
    if match := _LAST_WEEKDAY.fullmatch(element):
        return 1 << LAST_WEEKDAYS + number(place, element, match["day"]) % WEEK
    return None


def _whole(text: str) -> int:
    return int(text) if len(text.lstrip("0")) <= _DIGITS_MAX else _TOO_LARGE
