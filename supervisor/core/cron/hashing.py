"""``H`` in cron expressions: a value drawn from a hash, so that many schedules spread evenly and for ever.

The value depends on the id of the schedule and on the field alone: the same on every replica
and after every restart. ``H`` is any value of its field, in day-of-month 1 to 28 so that every
month has it; ``H(9-17)`` one within a range; ``H/15`` every fifteenth from a drawn start, and
``H(0-29)/10`` the same within a range. The result holds plain numbers, so that schedules
which drew the same share one compiled expression.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from supervisor.core.cron.elements import DAY_OF_MONTH, FIVE, SIX, number, step_of, values_between
from supervisor.core.cron.errors import CronError, ExpressionPosition, Field, brief
from supervisor.core.cron.fields import words_of

_MAYBE = re.compile(r"(?:^|[\s,])H(?![A-Za-z])", re.IGNORECASE)
_HASHED = re.compile(
    r"H(?:\((?P<first>[0-9]+|[A-Za-z]+)-(?P<last>[0-9]+|[A-Za-z]+)\))?(?:/(?P<step>[0-9]+))?", re.ASCII | re.IGNORECASE
)
_COMMON_DAYS = 28


def is_hashed(expression: str) -> bool:
    """Return whether ``expression`` holds an ``H``, well-formed or not."""
    return _MAYBE.search(expression) is not None


def resolve(expression: str, seed: str) -> str:
    """Return ``expression``, of five or six fields, with numbers in place of ``H``; ``seed`` is the schedule's id.

    Raises:
        CronError: an ``H`` has no form that is known, or there is no id to draw from.
    """
    if not seed:
        raise CronError(f'cron "{brief(expression)}": H is drawn from the id of a schedule; use numbers here')
    words = words_of(expression)
    fields = FIVE if len(words) == len(FIVE) else SIX
    resolved = []
    for field, word in zip(fields, words, strict=True):
        column = word.start() + 1
        elements = []
        for element in word[0].split(","):
            place = ExpressionPosition(word.string, field, column)
            elements.append(_resolve_element(place, element, seed) if element[:1] in {"H", "h"} else element)
            column += len(element) + 1
        resolved.append(",".join(elements))
    return " ".join(resolved)


def _resolve_element(place: ExpressionPosition, element: str, seed: str) -> str:
    match = _HASHED.fullmatch(element)
    if match is None:
        place.refuse(element, "not a form of H", "write H, H(1-5), H/10 or H(0-29)/10")
    field = place.field
    first, last = field.low, field.top
    if match["first"] is not None:
        first, last = number(place, element, match["first"]), number(place, element, match["last"])
    elif field is DAY_OF_MONTH and match["step"] is None:
        last = _COMMON_DAYS
    values, drawn = values_between(field, first, last), _draw(seed, field)
    if match["step"] is None:
        return str(values[drawn % len(values)])
    step = step_of(place, element, match["step"], len(values))
    start = drawn % step
    return f"{values[start]}-{last}/{step}" if start + step < len(values) else str(values[start])


def _draw(seed: str, field: Field) -> int:
    return int.from_bytes(blake2b(f"{seed}\0{field.name}".encode(), digest_size=8).digest(), "big")
