r"""Arguments with placeholders, filled in from the nominal time of a run: ``{{ date | minus:"1d" }}``.

Guarantees
    One nominal time gives one set of arguments, on every replica and in every catch-up and backfill.
    Arguments that pass ``check`` are rendered by ``render``, into at most ``PAYLOAD_BYTES_MAX`` bytes.
    Nothing but the names and filters below is looked up: no expression, attribute or format string of Python.

Grammar
    ``{{ name }}`` and ``{{ name | filter | filter:"argument" }}`` in any text, at any depth of lists and
    mappings; keys of mappings stay as they are. A text that is one placeholder and nothing else becomes its
    value, a number where it is one. ``\{{`` means two braces; of backslashes in front of two braces each
    pair is one backslash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from supervisor.core.calendars.moments import LETTERS, UNITS, Moment, format_moment, parse_span, unknown_letter
from supervisor.core.errors import Fault, TenureError
from supervisor.core.model import PAYLOAD_BYTES_MAX, scheduled_run_id
from supervisor.core.schedules.neighbours import ALONE, Neighbours
from supervisor.core.suggestions import suggestion

ARGUMENT_MAX = 64
"""Longest argument of a filter, in characters."""

FILTERS_MAX = 8
"""Most filters of one placeholder."""

_WIDTH_MAX = 256  # of what any placeholder without strftime becomes: a run id is the longest
_LETTER_WIDTH_MAX = 20
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*", re.ASCII)
_FILTER = re.compile(r"""\|\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*(?::\s*(?:"([^"]*)"|'([^']*)')\s*)?""", re.ASCII)
_BRACES = re.compile(r"(\\*)\{\{")
_AS_IT_IS = r"write \{{ where two braces are meant as they are"
_REST = re.compile(r"[^{}]{0,40}")

NAMES: Mapping[str, Callable[[Moment], Any]] = {
    "nominal": Moment.iso,
    "nominal_utc": Moment.iso,
    "nominal_ms": lambda at: at.instant_ms,
    "date": lambda at: format_moment(at, "%F"),
    "time": lambda at: format_moment(at, "%T"),
    "year": lambda at: at.local().year,
    "month": lambda at: at.local().month,
    "day": lambda at: at.local().day,
    "hour": lambda at: at.local().hour,
    "minute": lambda at: at.local().minute,
    "second": lambda at: at.local().second,
    "weekday": lambda at: at.local().isoweekday(),
}
"""What is made of the nominal time, by name. Filters move the time first."""

NEIGHBOURS = ("previous", "next", "interval_start", "interval_end")
"""Names of the due times around the nominal one. The interval of a run goes from the one before to its own."""

TIMES = (*NAMES, *NEIGHBOURS)
"""Names that stand for a time; they take filters."""

TEXTS = ("schedule", "run")
"""Names that stand for an id; they take no filter."""

FILTERS: Mapping[str, str] = {
    "plus": "1d",
    "minus": "1d",
    "start": "day",
    "utc": "",
    "strftime": "%Y%m%d",
}
"""Filters, each with an example of its argument; empty: it takes none."""


class TemplateError(TenureError):
    """Arguments that ``check`` would not have passed."""

    http_status = 400


class _Placeholder(NamedTuple):
    name: str
    steps: tuple[Callable[[Moment], Moment], ...]
    pattern: str | None  # of strftime, which comes last

    @property
    def width(self) -> int:
        """Bound of the characters that it becomes."""
        return _WIDTH_MAX if self.pattern is None else max(_WIDTH_MAX, _LETTER_WIDTH_MAX * len(self.pattern))

    def value(self, subject: _Subject) -> Any:
        """Return the value of the placeholder."""
        if self.name in TEXTS:
            return subject.run if self.name == "run" else subject.schedule
        moment = subject.time(self.name)
        if moment is None:
            return None
        for step in self.steps:
            moment = step(moment)
        return NAMES.get(self.name, Moment.iso)(moment) if self.pattern is None else format_moment(moment, self.pattern)


class _Subject(NamedTuple):
    schedule: str
    run: str
    moment: Moment
    around: Neighbours

    def time(self, name: str) -> Moment | None:
        """Return the time that ``name`` stands for; None: the schedule has no such due time."""
        if name in {"previous", "interval_start", "next"}:
            at_ms = self.around.next_ms if name == "next" else self.around.previous_ms
            return None if at_ms is None else self.moment._replace(instant_ms=at_ms)
        if name == "interval_end" and self.around.previous_ms is None:
            return None
        return self.moment._replace(zone="UTC") if name == "nominal_utc" else self.moment


class _BadError(Exception):
    """A text that cannot be rendered: message and remedy."""


_Parts = tuple["str | _Placeholder", ...]


def literal(text: str) -> str:
    """Return the text that renders as ``text``, whatever braces and backslashes are in it."""
    return _BRACES.sub(lambda found: found[1] * 2 + r"\{{", text)


def needs_rendering(args: Any) -> bool:
    """Return whether ``args`` holds anything to fill in or to unescape; ask once for each definition."""
    return any("{{" in text for _, text in _texts(args, ()))


def names_in(args: Any) -> set[str]:
    """Return the names that the placeholders of ``args`` fill in; they have passed ``check``."""
    texts = (text for _, text in _texts(args, ()) if "{{" in text)
    return {part.name for text in texts for part in _parse(text) if isinstance(part, _Placeholder)}


def check(args: Mapping[str, Any]) -> list[Fault]:
    """Return everything that is wrong with the placeholders of ``args``, in its order; empty when nothing is."""
    faults = []
    size = 0
    for path, text in _texts(args, ()):
        try:
            size += sum(len(part) if isinstance(part, str) else part.width for part in _parse(text))
        except _BadError as bad:
            message, remedy = bad.args
            faults.append(Fault(path, message, remedy))
    if not faults and size > PAYLOAD_BYTES_MAX and needs_rendering(args):
        message = f"could grow to {size} characters once filled in, the limit is {PAYLOAD_BYTES_MAX}"
        faults.append(Fault((), message, "use fewer placeholders"))
    return faults


def render(
    args: Mapping[str, Any],
    *,
    schedule: str,
    nominal_ms: int,
    timezone: str,
    run: str = "",
    around: Neighbours = ALONE,
) -> dict[str, Any]:
    """Return ``args`` with every placeholder filled in.

    Args:
        args: as defined; they are not changed.
        schedule: id of the schedule.
        nominal_ms: when the run is due by the schedule, milliseconds since 1970.
        timezone: the schedule's, in which ``date``, ``hour`` and the others are read.
        run: id of the run; by default the one that follows from the schedule and the nominal time.
        around: the due times before and after; one that is missing fills in null, or nothing in a longer text.

    Raises:
        TemplateError: ``check`` finds a fault in ``args``.
    """
    run = run or scheduled_run_id(schedule, nominal_ms)
    filled: dict[str, Any] = _fill(dict(args), _Subject(schedule, run, Moment(nominal_ms, timezone), around))
    return filled


def sample(args: Mapping[str, Any], *, schedule: str, timezone: str) -> dict[str, Any]:
    """Return ``args`` as a run at the end of 25 September 2030, a Wednesday, would get them; next to none are longer.

    They show the types, to be checked against a job's signature, and the size.
    """
    nominal_ms = 1_916_611_199_999
    around = Neighbours(nominal_ms - 3_600_000, nominal_ms + 3_600_000)
    return render(args, schedule=schedule, nominal_ms=nominal_ms, timezone=timezone, around=around)


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _fill(value: Any, subject: _Subject) -> Any:
    if isinstance(value, str):
        return _fill_text(value, subject) if "{{" in value else value
    if isinstance(value, dict):
        return {key: _fill(item, subject) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(item, subject) for item in value]
    return value


def _fill_text(text: str, subject: _Subject) -> Any:
    try:
        parts = _parse(text)
    except _BadError as bad:
        raise TemplateError(f"schedule {subject.schedule}: {bad.args[0]}; {bad.args[1]}") from None
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0].value(subject)
    values = (part if isinstance(part, str) else part.value(subject) for part in parts)
    return "".join("" if value is None else str(value) for value in values)


@lru_cache(maxsize=4096)
def _parse(text: str) -> _Parts:
    """Return ``text`` as literals and placeholders; an error when it is malformed."""
    parts: list[str | _Placeholder] = []
    literal, position = "", 0
    while (braces := text.find("{{", position)) >= 0:
        before = text[position:braces]
        bare = before.rstrip("\\")
        pairs, is_escaped = divmod(len(before) - len(bare), 2)
        literal += bare + "\\" * pairs
        position = braces + 2
        if is_escaped:
            literal += "{{"
            continue
        if literal:
            parts.append(literal)
            literal = ""
        placeholder, position = _placeholder(text, position)
        parts.append(placeholder)
    literal += text[position:]
    return (*parts, literal) if literal else tuple(parts)


def _placeholder(text: str, begin: int) -> tuple[_Placeholder, int]:
    """Read the placeholder whose braces end at ``begin``; return it and where it ends."""
    place = f"at character {begin - 1}"
    named = _NAME.match(text, begin)
    if named is None:
        inside = _REST.match(text, begin)
        raise _BadError(f"'{{{{{inside[0] if inside else ''}' {place} names nothing that is known here", _AS_IT_IS)
    name = named[1]
    if name not in TIMES and name not in TEXTS:
        raise _BadError(f"{name!r} in the placeholder {place} is unknown", _nearest(name, (*TIMES, *TEXTS)))
    position, steps, pattern, count = named.end(), [], None, 0
    while (found := _FILTER.match(text, position)) is not None:
        position, count = found.end(), count + 1
        if pattern is not None or count > FILTERS_MAX:
            limit = "must be the last filter" if pattern is not None else f"has more than {FILTERS_MAX} filters"
            what = "strftime" if pattern is not None else repr(name)
            raise _BadError(f"{what} in the placeholder {place} {limit}", "move the time first, then write it")
        if name in TEXTS:
            raise _BadError(f"{name!r} in the placeholder {place} takes no filter", "it is an id, not a time")
        argument = found[2] if found[2] is not None else found[3]
        if found[1] == "strftime":
            pattern = _pattern(argument, place)
        else:
            steps.append(_step(found[1], argument, place))
    if not text.startswith("}}", position):
        raise _BadError(_unclosed(text, position, place), _AS_IT_IS)
    return _Placeholder(name, tuple(steps), pattern), position + 2


def _step(name: str, argument: str | None, place: str) -> Callable[[Moment], Moment]:
    if name not in FILTERS:
        raise _BadError(f"filter {name!r} in the placeholder {place} is unknown", _nearest(name, FILTERS))
    if name == "utc" and argument is None:
        return lambda at: at._replace(zone="UTC")
    if name == "start" and argument in UNITS:
        return lambda at: at.start_of(argument)
    span = parse_span(argument or "") if name in {"plus", "minus"} else None
    if span is None:
        seen = "no argument" if argument is None else repr(argument[:ARGUMENT_MAX])
        raise _BadError(f"filter {name} in the placeholder {place} got {seen}", _usage(name))
    move = -span if name == "minus" else span
    return lambda at: at.moved(move)


def _pattern(argument: str | None, place: str) -> str:
    if not argument or len(argument) > ARGUMENT_MAX:
        seen = "no argument" if not argument else f"{len(argument)} characters, the limit is {ARGUMENT_MAX}"
        raise _BadError(f"filter strftime in the placeholder {place} got {seen}", _usage("strftime"))
    letter = unknown_letter(argument)
    if letter is not None:
        known = " ".join(f"%{each}" for each in LETTERS)
        raise _BadError(f"filter strftime in the placeholder {place} got {letter!r}", f"it knows {known}")
    return argument


def _usage(name: str) -> str:
    if name == "utc":
        return "write utc without an argument"
    if name == "start":
        return f'write one of {", ".join(UNITS)}, such as start:"day"'
    units = "; units are ms s m h d w, at most a hundred years" if name in {"plus", "minus"} else ""
    return f'write {name}:"{FILTERS[name]}"{units}'


def _nearest(name: str, known: Iterable[str]) -> str:
    return suggestion(name, known, f"known: {', '.join(sorted(known))}; {_AS_IT_IS}")


def _unclosed(text: str, position: int, place: str) -> str:
    if "}}" not in text[position:]:
        return f"the placeholder {place} is not closed by }}}}"
    rest = _REST.match(text, position)
    seen = (rest[0] if rest else "") or text[position]
    return f"the placeholder {place} goes on with {seen!r} where | or }}}} is expected"
