"""Error messages of cron expressions: the field, the value, its position, the remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.core.suggestions import suggestion

_SHOWN_CHARACTERS_MAX = 80


class CronError(TenureError):
    """An expression that cannot be used: names the field, the value, its position and the remedy."""

    exit_code = EXIT_CONFIG


@dataclass(frozen=True, slots=True)
class Field:
    """Permitted values of one position of an expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # in full; the first stands for ``first_named``
    first_named: int = 0

    def value_of(self, name: str) -> int | None:
        """Return the value of a name, in full or by its first three letters, in any case; None: it is none."""
        matches = [name.lower() in {each.lower(), each[:3].lower()} for each in self.names]
        return matches.index(True) + self.first_named if True in matches else None

    @property
    def top(self) -> int:
        """The largest value that ``*`` means: 7 is Sunday again, so it is no value of its own."""
        return 6 if self.name == "day-of-week" else self.high

    @property
    def is_day(self) -> bool:
        """True for the two fields that select days."""
        return self.name in {"day-of-month", "day-of-week"}


class ExpressionPosition(NamedTuple):
    """Position of the parser in the expression."""

    expression: str
    field: Field
    column: int  # of the element that is read, from 1

    def refuse(self, element: str, reason: str, remedy: str) -> NoReturn:
        """Raise an error about ``element``."""
        raise CronError(
            f'cron "{brief(self.expression)}": {self.field.name} "{brief(element)}" '
            f"at character {self.column}: {reason}; {remedy}"
        )


def refuse_name(place: ExpressionPosition, element: str, text: str) -> NoReturn:
    """Raise that ``text`` is neither a number nor a name of the field."""
    field = place.field
    if not field.names:
        special = {"L": "the last day", "W": "the nearest weekday", "LW": "the last weekday"}.get(text.upper())
        reason = f"{brief(text)} is not a number" if special is None else f"{text} ({special}) is for day-of-month only"
        place.refuse(element, reason, f"use {field.low}-{field.high}")
    if text.upper() == "L" and field.name == "day-of-week":
        place.refuse(element, "L needs a day of the week", "write 5L for the last Friday of the month")
    short = [name[:3].upper() for name in field.names]
    remedy = suggestion(text, short, f"use {short[0]} to {short[-1]} or a number")
    place.refuse(element, f"{brief(text)} is not a name", remedy)


def refuse_syntax(place: ExpressionPosition, element: str) -> NoReturn:
    """Raise that ``element`` has no form that the field knows."""
    field = place.field
    low, high = field.low, field.high
    if element.startswith("-") or re.search(r"/-|--", element):
        place.refuse(element, "negative numbers have no meaning here", f"use {low}-{high}")
    if any(character.isnumeric() and not character.isascii() for character in element):
        place.refuse(element, "only the digits 0-9 are read", "type it again with plain digits")
    if "~" in element:
        bounds = re.sub(r"\D+", "-", element).strip("-") if re.fullmatch(r"[0-9]+~[0-9]+", element) else ""
        instead = f"H({bounds})" if bounds else "H"
        place.refuse(element, "a random value is another on each replica", f"write {instead}, drawn from the id once")
    if re.search(r"[#?]|[0-9][LW]|L[-W]", element, re.IGNORECASE):
        place.refuse(element, "has no meaning in this field", _special_remedy(field))
    place.refuse(element, "not a value, range or step", f"write *, */2, {low}, {low}-{high} or {low}-{high}/2")


def _special_remedy(field: Field) -> str:
    if field.name == "day-of-month":
        return "write L, L-2 (the last day but two), LW, 15W, ? or a number"
    if field.name == "day-of-week":
        return "write 5#2 (the second Friday), 5L (the last Friday), ? or a number"
    return f"L, W, # and ? belong in the fields of days; use {field.low}-{field.high}"


def brief(text: str) -> str:
    """Return ``text`` short and on one line."""
    short = text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
    return short if short.isprintable() else repr(short)[1:-1]
