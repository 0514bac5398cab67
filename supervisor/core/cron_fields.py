"""The five fields of a cron expression: text in, sets of numbers out, or an error that helps.

A field is a bit mask of the values it allows, because the next allowed value, the previous
one and their count are then single operations on integers.

Accepted is what Debian's cron accepts, and refused is what it accepts without meaning
anything: a step larger than its range, a step without a range.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from supervisor.core.errors import EXIT_CONFIG, TenureError

EXPRESSION_CHARACTERS_MAX = 1000  # the longest line that cron(8) reads
_SHOWN_CHARACTERS_MAX = 80

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_WORD = re.compile(r"[^ \t]+")
_STRAY = re.compile(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f]")  # line breaks, no-break spaces, control characters
_ELEMENT = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?(?:/(?P<step>[0-9]+))?", re.ASCII)
_ZONE_PREFIX = re.compile(r"(CRON_TZ|TZ)=(\S*)")


class CronError(TenureError):
    """An expression that cannot be used: names the field, the value, its position and the remedy."""

    exit_code = EXIT_CONFIG


@dataclass(frozen=True, slots=True)
class Field:
    """What one position of an expression may hold."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # the first stands for ``first_named``
    first_named: int = 0

    @property
    def top(self) -> int:
        """The largest value that ``*`` means: 7 is Sunday again, so it is no value of its own."""
        return 6 if self.name == "day-of-week" else self.high


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, _MONTHS, 1),
    Field("day-of-week", 0, 7, _DAYS, 0),
)


@dataclass(frozen=True, slots=True)
class Fields:
    """A parsed expression. Bit n of a mask is set when the value n is allowed."""

    text: str  # five fields, separated by single spaces
    minute: int
    hour: int
    day_of_month: int
    month: int
    day_of_week: int  # bit 0 is Sunday
    is_wildcard: bool  # minute or hour starts with *: follows real time across a change of the clock
    needs_both_days: bool  # day-of-month or day-of-week starts with *: both must match, not either


class _Place(NamedTuple):
    """Where in the expression the parser stands, for errors."""

    expression: str
    field: Field
    column: int  # of the element that is read, from 1

    def refuse(self, element: str, reason: str, remedy: str) -> NoReturn:
        raise CronError(
            f'cron "{_shown(self.expression)}": {self.field.name} "{_shown(element)}" '
            f"at character {self.column}: {reason}; {remedy}"
        )


def parse(expression: str) -> Fields:
    """Return what ``expression`` allows.

    Raises:
        CronError: it is no cron expression of five fields, nor an alias of one.
    """
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise CronError(
            f'cron "{_shown(expression)}": {len(expression)} characters; at most {EXPRESSION_CHARACTERS_MAX} are read'
        )
    text = _expand(expression.rstrip("\r\n"))  # a block of YAML ends in a line break
    stray = _STRAY.search(text)
    if stray:
        raise CronError(
            f'cron "{_shown(expression)}": {stray[0]!r} at character {stray.start() + 1} is no plain space; '
            f"separate the fields with spaces"
        )
    words = list(_WORD.finditer(text))
    if len(words) != len(FIELDS):
        raise CronError(_wrong_number(expression, len(words)))
    masks = [
        _parse_field(_Place(text, field, word.start() + 1), word[0]) for field, word in zip(FIELDS, words, strict=True)
    ]
    minute, hour, day_of_month, month, day_of_week = masks
    starred = [word[0].startswith("*") for word in words]
    return Fields(
        text=" ".join(word[0] for word in words),
        minute=minute,
        hour=hour,
        day_of_month=day_of_month,
        month=month,
        day_of_week=(day_of_week | day_of_week >> 7) & 0x7F,
        is_wildcard=starred[0] or starred[1],
        needs_both_days=starred[2] or starred[4],
    )


def _expand(expression: str) -> str:
    """Return the five fields that an alias stands for, or the expression as it is."""
    stripped = expression.strip(" \t")
    prefix = _ZONE_PREFIX.match(stripped)
    if prefix:
        raise CronError(
            f'cron "{_shown(expression)}": {prefix[1]}= is not part of an expression; '
            f"set timezone: {prefix[2] or 'Europe/Berlin'} instead"
        )
    if not stripped.startswith("@"):
        return expression
    alias = stripped.lower()
    if alias in ALIASES:
        return ALIASES[alias]
    raise CronError(f'cron "{_shown(expression)}": {_alias_remedy(alias)}')


def _alias_remedy(alias: str) -> str:
    if alias == "@reboot":
        return (
            "@reboot has no time, and replicas start at different ones; "
            "run it from the service manager, or use a schedule such as @daily"
        )
    if alias.split(" ", 1)[0] == "@every":
        return "@every is not a cron expression; use every: 5m instead of cron"
    close = difflib.get_close_matches(alias, ALIASES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {' '.join(ALIASES)}"
    return f"{_shown(alias.split(' ', 1)[0])!r} is not an alias; {hint}"


def _wrong_number(expression: str, count: int) -> str:
    found = "1 field" if count == 1 else f"{count} fields"
    wanted = "five are needed: minute hour day-of-month month day-of-week"
    remedy = "remove the field of the seconds or of the year" if count in {6, 7} else 'write "30 2 * * *" for 02:30'
    return f'cron "{_shown(expression)}": {found}, {wanted}; {remedy}'


def _parse_field(place: _Place, text: str) -> int:
    if "," not in text:
        return _parse_element(place, text)
    mask = 0
    column = place.column
    for element in text.split(","):
        mask |= _parse_element(_Place(place.expression, place.field, column), element)
        column += len(element) + 1
    return mask


def _parse_element(place: _Place, element: str) -> int:
    """Return the mask of ``*``, ``*/2``, ``5``, ``MON``, ``1-5``, ``MON-FRI`` or ``0-30/10``."""
    field = place.field
    if element == "*":
        return (1 << field.top + 1) - (1 << field.low)
    if not element:
        place.refuse("", "an empty element", "remove the comma")
    match = _ELEMENT.fullmatch(element)
    if not match or (match["first"] == "*" and match["last"]):
        _refuse_syntax(place, element)
    if match["first"] == "*":
        first, last = field.low, field.top
    else:
        first = _number(place, element, match["first"])
        last = _number(place, element, match["last"]) if match["last"] else first
    if first > last:
        place.refuse(element, "the range runs backwards", f"write {_as_list(field, element, first, last)}")
    step = _step(place, element, match, last - first + 1)
    return sum(1 << value for value in range(first, last + 1, step))


def _number(place: _Place, element: str, text: str) -> int:
    field = place.field
    if text.isdigit():
        # Longer than any value, and so out of range, without turning a thousand digits into a number.
        value = int(text) if len(text.lstrip("0")) <= 4 else 99_999
    elif text.upper() in field.names:
        value = field.names.index(text.upper()) + field.first_named
    else:
        _refuse_name(place, element, text)
    if not field.low <= value <= field.high:
        place.refuse(element, f"{_shown(text)} is not within {field.low}-{field.high}", f"use {field.low}-{field.high}")
    return value


def _step(place: _Place, element: str, match: re.Match[str], values: int) -> int:
    text = match["step"]
    if text is None:
        return 1
    if match["first"] != "*" and match["last"] is None:
        place.refuse(
            element, "a step needs a range", f"write {match['first']}-{place.field.top}/{text} or {match['first']}"
        )
    step = int(text) if len(text.lstrip("0")) <= 4 else 99_999
    if step == 0:
        place.refuse(element, "a step of 0 never moves", "use 1 or more")
    if step > values:
        place.refuse(
            element,
            f"the step {_shown(text)} is larger than the range, which has {values} values",
            "name the values you mean",
        )
    return step


def _refuse_name(place: _Place, element: str, text: str) -> NoReturn:
    names = place.field.names
    if not names:
        special = {"L": "the last day", "W": "the nearest weekday", "H": "a hashed value"}.get(text.upper())
        reason = f"{text} ({special}) is not supported" if special else f"{_shown(text)} is not a number"
        place.refuse(element, reason, f"use {place.field.low}-{place.field.high}")
    close = difflib.get_close_matches(text.upper(), names, n=1, cutoff=0.5)
    remedy = f"did you mean {close[0]}?" if close else f"use {names[0]} to {names[-1]} or a number"
    place.refuse(element, f"{_shown(text)} is not a name", remedy)


def _refuse_syntax(place: _Place, element: str) -> NoReturn:
    low, high = place.field.low, place.field.high
    if element.startswith("-") or re.search(r"/-|--", element):
        place.refuse(element, "negative numbers have no meaning here", f"use {low}-{high}")
    if re.search(r"[#LWH?]", element):
        place.refuse(element, "L, W, #, H and ? are not supported", f"use *, {low}-{high}, lists, ranges and steps")
    if any(character.isnumeric() and not character.isascii() for character in element):
        place.refuse(element, "only the digits 0-9 are read", "type it again with plain digits")
    place.refuse(element, "not a value, range or step", f"write *, */2, {low}, {low}-{high} or {low}-{high}/2")


def _as_list(field: Field, element: str, first: int, last: int) -> str:
    """Return what the writer of a range such as FRI-MON probably meant."""
    if field.names and element[0].isalpha():
        cycle = [*field.names, *field.names]
        start, stop = first - field.first_named, last - field.first_named
        return ",".join(cycle[start : stop + len(field.names) + 1])
    return ",".join([_span(first, field.top), _span(field.low, last)])


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def _shown(text: str) -> str:
    """Return ``text`` short and on one line."""
    short = text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
    return short if short.isprintable() else repr(short)[1:-1]
