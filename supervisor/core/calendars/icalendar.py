"""All-day events of iCalendar files (RFC 5545) as days: what files of holidays hold, and nothing else.

Guarantees
    Every event is either read whole or refused with its line: a file never gives fewer days than it names, of the
    years in which schedules can be due. An event may begin before, as old holidays do.
    Reading costs time by the size of the file; a rule without an end stops at ``YEAR_MAX``.

Does not guarantee
    Anything about times of day, tasks, alarms and time zones of a file: days are those of the schedule's zone.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

EVENTS_MAX = 2000
YEAR_MAX = 2050
"""Last year of a rule without an end, unless it is the same date each year, which has none."""

RULE_DAYS_MAX = 10_000
"""How many days one rule may name, counted before they are looked for: each day of 27 years."""

NAME_MAX = 64
LENGTH_MAX = 366
_YEARS = range(1970, 9987)
_PROPERTY = re.compile(r'([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:"[^"]*"|[^";:])*)*):(.*)', re.DOTALL)
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T000000)?", re.ASCII)
_DURATION = re.compile(r"P(\d{1,3})([DW])", re.ASCII)
_BY_DAY = re.compile(r"([+-]?[1-5])(MO|TU|WE|TH|FR|SA|SU)")
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RULE_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "WKST"})
_ALL_DAY = "write it as a date such as 20261225, or remove the event"
_LIST = "list its dates under dates instead"


class IcsError(ValueError):
    """A file that is no calendar of days; ``line`` counts from 1."""

    def __init__(self, line: int, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.line, self.message, self.remedy = line, message, remedy


class IcsDays(NamedTuple):
    """Days of one event. ``is_annual``: the same date each year, from whatever year."""

    line: int
    first: date
    length: int
    name: str
    is_annual: bool = False


class _Value(NamedTuple):
    line: int
    text: str


_Event = dict[str, list[_Value]]


def read_ics(text: str) -> list[IcsDays]:
    """Return the days of all events of ``text``.

    Raises:
        IcsError: it is no iCalendar file, it has no event, or one that is not understood.
    """
    found: list[IcsDays] = []
    for count, (line, event) in enumerate(_events(text), start=1):
        if max(count, len(found)) > EVENTS_MAX:
            raise IcsError(line, f"has more than {EVENTS_MAX} days", "keep the years that are needed")
        try:
            found += (each for each in _days(line, event) if each.is_annual or each.first.year in _YEARS)
        except (ValueError, OverflowError) as error:
            if isinstance(error, IcsError):
                raise
            raise IcsError(line, f"has an event that cannot be read: {error}", _LIST) from None
    if not found:
        raise IcsError(1, "has no event since 1970", "export the calendar with its events")
    return found


def _events(text: str) -> Iterator[tuple[int, _Event]]:
    """Yield the events with the lines they begin on."""
    open_parts: list[_Value] = []
    event: _Event = {}
    for line, content in _unfolded(text):
        match = _PROPERTY.fullmatch(content)
        name = match[1].upper() if match else ""
        if match is None or (not open_parts and (name, match[3].strip().upper()) != ("BEGIN", "VCALENDAR")):
            raise IcsError(line, "is not an iCalendar file", "it begins with BEGIN:VCALENDAR")
        value = match[3].strip()
        if name == "BEGIN":
            open_parts.append(_Value(line, value.upper()))
            event = {} if value.upper() == "VEVENT" else event
        elif name == "END":
            if open_parts.pop().text != value.upper():
                raise IcsError(line, f"ends {value[:NAME_MAX]}, which is not open", "export the file again")
            if value.upper() == "VEVENT":
                yield line, event
        elif open_parts[-1].text == "VEVENT":
            event.setdefault(name, []).append(_Value(line, value))
    if open_parts:
        raise IcsError(open_parts[-1].line, f"breaks off within {open_parts[-1].text}", "export the file again")


def _unfolded(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their continuations."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if line[:1] in {" ", "\t"} and parts:
            parts.append(line[1:])
        elif line.strip():
            if parts:
                yield begun, "".join(parts)
            begun, parts = number, [line]
    if parts:
        yield begun, "".join(parts)


def _days(end_line: int, event: _Event) -> Iterator[IcsDays]:
    if "RECURRENCE-ID" in event:  # cancelled ones too: the event that recurs still names that date
        raise IcsError(event["RECURRENCE-ID"][0].line, "changes one date of an event that recurs", _LIST)
    if any(value.text.upper() == "CANCELLED" for value in event.get("STATUS", ())):
        return
    if "DTSTART" not in event:
        raise IcsError(end_line, "has an event without DTSTART", "export the file again")
    if "EXRULE" in event:
        raise IcsError(event["EXRULE"][0].line, "has an event that leaves out dates by a rule", _LIST)
    line, first = event["DTSTART"][0].line, _date(event["DTSTART"][0])
    length, name = _length(event, first), _name(event)
    left_out = {_date(each) for each in _listed(event, "EXDATE")}
    rules = event.get("RRULE", [])
    if len(rules) > 1:
        raise IcsError(rules[1].line, "has an event with two rules", _LIST)
    if rules and _is_annual(_rule(rules[0]), first) and length == 1 and not left_out:
        yield IcsDays(line, first, 1, name, is_annual=True)
    else:
        starts = {first, *(day for rule in rules for day in _recurring(rule, first))} - left_out
        yield from (IcsDays(line, day, length, name) for day in sorted(starts))
    yield from (IcsDays(line, _date(each), length, name) for each in _listed(event, "RDATE"))


def _date(value: _Value) -> date:
    match = _DATE.fullmatch(value.text)
    if match is None:
        raise IcsError(value.line, f"has an event with a time of day, {value.text[:NAME_MAX]}", _ALL_DAY)
    return date(*(int(part) for part in match.groups()))


def _listed(event: _Event, name: str) -> Iterator[_Value]:
    for line, text in event.get(name, ()):
        yield from (_Value(line, part.strip()) for part in text.split(","))


def _length(event: _Event, first: date) -> int:
    """Return the number of days; the day of DTEND is not one of them."""
    length, line = 1, event["DTSTART"][0].line
    if "DTEND" in event:
        length, line = max((_date(event["DTEND"][0]) - first).days, 0), event["DTEND"][0].line
    elif "DURATION" in event:
        line, text = event["DURATION"][0]
        match = _DURATION.fullmatch(text)
        if match is None:
            raise IcsError(line, f"has an event of {text[:NAME_MAX]}", "write whole days such as P1D")
        length = int(match[1]) * (7 if match[2] == "W" else 1)
    if not 1 <= length <= LENGTH_MAX:
        raise IcsError(line, f"has an event of {length} days", f"from 1 to {LENGTH_MAX}; DTEND is the day behind it")
    return length


def _name(event: _Event) -> str:
    text = re.sub(r"\\([\\;,nN])", lambda match: " " if match[1] in "nN" else match[1], _text(event, "SUMMARY"))
    return " ".join(text.split())[:NAME_MAX].rstrip()


def _text(event: _Event, name: str) -> str:
    return event[name][0].text if name in event else ""


def _rule(value: _Value) -> dict[str, str]:
    parts = dict(part.partition("=")[::2] for part in value.text.upper().split(";") if part)
    unknown = sorted(parts.keys() - _RULE_PARTS)
    if parts.get("FREQ") != "YEARLY" or unknown:
        what = unknown[0] if unknown else f"FREQ={parts.get('FREQ', '')}"
        raise IcsError(value.line, f"has a rule with {what[:NAME_MAX]}, of which only yearly ones are read", _LIST)
    return parts


def _is_annual(rule: dict[str, str], first: date) -> bool:
    """Return whether ``rule`` is the same date each year, without an end."""
    same = {"FREQ": "YEARLY", "INTERVAL": "1", "BYMONTH": str(first.month), "BYMONTHDAY": str(first.day)}
    is_of_every_month = "BYMONTHDAY" in rule and "BYMONTH" not in rule
    return not is_of_every_month and all(key == "WKST" or same.get(key) == value for key, value in rule.items())


def _recurring(value: _Value, first: date) -> Iterator[date]:
    """Yield the dates of a yearly rule, oldest first."""
    rule = _rule(value)
    until = _date(_Value(value.line, rule["UNTIL"].partition("T")[0])) if "UNTIL" in rule else date(YEAR_MAX, 12, 31)
    months = sorted({int(part) for part in rule.get("BYMONTH", str(first.month)).split(",")})
    if "BYMONTHDAY" in rule and "BYMONTH" not in rule:  # of each month, as RFC 5545, 3.3.10, has it
        months = list(range(1, 13))
    if ("BYDAY" in rule and "BYMONTHDAY" in rule) or ("BYDAY" in rule and "BYMONTH" not in rule):
        raise IcsError(value.line, "has a rule with BYDAY, and not the month alone", _LIST)
    named = len(months) * (rule.get("BYDAY", rule.get("BYMONTHDAY", "")).count(",") + 1)
    if named * (min(until.year, YEAR_MAX) - first.year) > RULE_DAYS_MAX:
        raise IcsError(value.line, f"has a rule of more than {RULE_DAYS_MAX} days", _LIST)
    left = int(rule.get("COUNT", YEAR_MAX))
    step = max(1, int(rule.get("INTERVAL", "1")))
    for year in range(first.year, min(until.year, YEAR_MAX) + 1, step):
        days = sorted({day for month in months for day in _in_month(value.line, rule, first, year, month)})
        for day in days:
            if day < first:
                continue
            if left <= 0 or day > until:
                return
            left -= 1
            yield day


def _in_month(line: int, rule: dict[str, str], first: date, year: int, month: int) -> Iterator[date]:
    begin, length = date(year, month, 1), monthrange(year, month)[1]
    for part in rule["BYDAY"].split(",") if "BYDAY" in rule else ():
        match = _BY_DAY.fullmatch(part)
        if match is None:
            raise IcsError(line, f"has a rule with BYDAY={part[:NAME_MAX]}", "a number belongs before it: 4TH, -1MO")
        number, weekday = int(match[1]), _DAYS.index(match[2])
        matching = [day for day in range(1, length + 1) if (begin.weekday() + day - 1) % 7 == weekday]
        index = number - 1 if number > 0 else number
        yield from (begin + timedelta(days=day - 1) for day in matching[index : index + 1 or None])
    for part in rule.get("BYMONTHDAY", str(first.day)).split(",") if "BYDAY" not in rule else ():
        day = int(part) if int(part) > 0 else length + 1 + int(part)
        if 1 <= day <= length:
            yield date(year, month, day)
