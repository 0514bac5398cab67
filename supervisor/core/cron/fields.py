"""A whole cron expression: text in, the masks of its fields out, or an error that helps.

Accepted are Debian's forms; a field of seconds in front; ``L L-n LW nW`` and ``?``
for dates, ``dow#n dowL ?`` for weekdays; ``H``. Refused are forms that Debian's cron
accepts without meaning anything: a step larger than its range, a step without a range.

``H`` is a value drawn from a hash, so that many schedules spread evenly and for ever. It depends on the id of the
schedule and on the field alone: the same on every replica and after every restart. ``H`` is any value of its field, in
day-of-month 1 to 28 so that every month has it; ``H(9-17)`` one within a range; ``H/15`` every fifteenth from a drawn
start, and ``H(0-29)/10`` the same within a range. The result holds plain numbers, so that schedules which drew the same
share one compiled expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from supervisor.core.cron.elements import DAY_OF_MONTH, FIVE, SIX, number, parse_field, step_of, values_between
from supervisor.core.cron.errors import CronError, ExpressionPosition, Field, brief
from supervisor.core.suggestions import suggestion

EXPRESSION_CHARACTERS_MAX = 1000  # the longest line that cron(8) reads

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_WORD = re.compile(r"[^ \t]+")
_STRAY = re.compile(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f]")  # line breaks, no-break spaces, control characters
_MAYBE = re.compile(r"(?:^|[\s,])H(?![A-Za-z])", re.IGNORECASE)
_HASHED = re.compile(
    r"H(?:\((?P<first>[0-9]+|[A-Za-z]+)-(?P<last>[0-9]+|[A-Za-z]+)\))?(?:/(?P<step>[0-9]+))?", re.ASCII | re.IGNORECASE
)
_COMMON_DAYS = 28
_ZONE_PREFIX = re.compile(r"\s*(?:CRON_TZ|TZ)=(\S*)[ \t]*(.*)", re.DOTALL)
_EVERY = re.compile(r"@every[ \t]+(\S.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fields:
    """A parsed expression. Bit n of a mask is set when the value n is allowed."""

    text: str  # five or six fields, separated by single spaces
    second: int
    minute: int
    hour: int
    day_of_month: int  # and what cron_days adds
    month: int
    day_of_week: int  # bit 0 is Sunday; and what cron_days adds
    is_wildcard: bool  # minute or hour starts with *: follows real time across a change of the clock
    needs_both_days: bool  # day-of-month or day-of-week starts with * or ?: both must match, not either

    @property
    def has_seconds(self) -> bool:
        """True if the expression has six fields."""
        return self.text.count(" ") == len(SIX) - 1


def split_zone(expression: str) -> tuple[str | None, str]:
    """Return the zone in a ``CRON_TZ=`` or ``TZ=`` prefix, None without one, and the rest."""
    match = _ZONE_PREFIX.fullmatch(expression)
    return (match[1], match[2]) if match else (None, expression)


def interval_of(expression: str) -> str | None:
    """Return the duration in ``@every 5m``, as written; None when the expression is no such thing."""
    match = _EVERY.fullmatch(expression.strip())
    return match[1].strip() if match else None


def words_of(expression: str) -> list[re.Match[str]]:
    """Return the five or six fields of ``expression``, aliases expanded; ``string`` of each is the split text.

    Raises:
        CronError: it has another number of fields, or is separated by something other than plain space.
    """
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise CronError(
            f'cron "{brief(expression)}": {len(expression)} characters; at most {EXPRESSION_CHARACTERS_MAX} are read'
        )
    text = _expand(expression.rstrip("\r\n"))  # a block of YAML ends in a line break
    stray = _STRAY.search(text)
    if stray:
        raise CronError(
            f'cron "{brief(expression)}": {stray[0]!r} at character {stray.start() + 1} is no plain space; '
            f"separate the fields with spaces"
        )
    words = list(_WORD.finditer(text))
    if len(words) not in {len(FIVE), len(SIX)} or _dialect(expression):
        raise CronError(_wrong_number(expression, len(words)))
    if len(words) == len(SIX) and (_YEAR.fullmatch(words[-1][0]) or words[2][0] == "?"):  # EventBridge's order
        raise CronError(f'cron "{brief(expression)}": the first of six fields is that of seconds; {_NO_YEAR}')
    return words


def parse(expression: str) -> Fields:
    """Parse ``expression``. It has no prefix for a zone, and no ``H``.

    Raises:
        CronError: it is no cron expression of five or six fields, nor an alias of one.
    """
    words = words_of(expression)
    fields = FIVE if len(words) == len(FIVE) else SIX
    masks = [
        parse_field(ExpressionPosition(word.string, field, word.start() + 1), word[0])
        for field, word in zip(fields, words, strict=True)
    ]
    minute, hour, day_of_month, month, day_of_week = masks[-5:]
    starred = [word[0][0] in "*?" for word in words[-5:]]
    return Fields(
        text=" ".join(word[0] for word in words),
        second=masks[0] if fields is SIX else 1,
        minute=minute,
        hour=hour,
        day_of_month=day_of_month,
        month=month,
        day_of_week=day_of_week & ~0x80 | day_of_week >> 7 & 1,  # 7 is Sunday too
        is_wildcard=starred[0] or starred[1],
        needs_both_days=starred[2] or starred[4],
    )


def _expand(expression: str) -> str:
    """Return the five fields of an alias, or the expression as it is."""
    stripped = expression.strip(" \t")
    if not stripped.startswith("@"):
        return expression
    alias = stripped.lower()
    if alias in ALIASES:
        return ALIASES[alias]
    raise CronError(f'cron "{brief(expression)}": {_alias_remedy(alias)}')


def _alias_remedy(alias: str) -> str:
    if alias == "@reboot":
        return (
            "@reboot has no time, and replicas start at different ones; "
            "set run_on_create: true for one run when the schedule is new"
        )
    if alias.split(" ", 1)[0] == "@every":
        return "@every is not a cron expression here; use every: 5m instead of cron"
    hint = suggestion(alias, ALIASES, f"use one of {' '.join(ALIASES)}")
    return f"{brief(alias.split(' ', 1)[0])!r} is not an alias; {hint}"


_DIALECTS = (
    ("rate(", "that is EventBridge's; write every: 5m instead of cron"),
    ("cron(", "that is EventBridge's; write its first five fields, and days of the week by name"),
    ("rrule:", "that is iCalendar's; write every: 1d, or a cron expression"),
    ("r/", "that is ISO 8601's; write every: 1h with start_at instead of cron"),
    ("every ", "write every: 5m instead of cron"),
)


_YEAR = re.compile(r"(?:19|20)[0-9]{2}(?:[-,/][0-9,/-]+)?", re.ASCII)
_NO_YEAR = "there is no field of the year: remove it, and use start_at and end_at"


def _dialect(expression: str) -> str | None:
    return next((text for start, text in _DIALECTS if expression.strip().lower().startswith(start)), None)


def _wrong_number(expression: str, count: int) -> str:
    dialect = _dialect(expression)
    if dialect is None and ("*-*" in expression or ".." in expression):
        dialect = 'that is systemd\'s OnCalendar; write "0 9 * * MON-FRI" for Mon..Fri 09:00'
    if dialect is not None:
        return f'cron "{brief(expression)}": is not a cron expression; {dialect}'
    found = "1 field" if count == 1 else f"{count} fields"
    wanted = "five are needed: minute hour day-of-month month day-of-week; or six, with seconds in front"
    remedy = _NO_YEAR if count == 7 else 'write "30 2 * * *" for 02:30'
    return f'cron "{brief(expression)}": {found}, {wanted}; {remedy}'


def is_hashed(expression: str) -> bool:
    """Return whether ``expression`` holds an ``H``, well-formed or not."""
    return _MAYBE.search(expression) is not None


def resolved_hashes(expression: str, seed: str) -> str:
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
