"""A cron expression in words: when it is due, and the effect of a change of the clock.

``explain`` is for people who check their expressions; ``Cron.fires`` is the truth.
"""

from __future__ import annotations

import re

from supervisor.core.cron.dst import DstPolicy, Gap, Overlap
from supervisor.core.cron.elements import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH
from supervisor.core.cron.errors import Field
from supervisor.core.cron.fields import Fields

_TIMES_MAX = 6
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_SPAN = re.compile(r"(?P<first>[0-9A-Za-z]+|\*)(?:-(?P<last>[0-9A-Za-z]+))?(?:/(?P<step>[0-9]+))?")
_GAPS = {
    Gap.RUN: "runs as the gap ends",
    Gap.SKIP: "does not run that day",
    Gap.SHIFT: "runs later by the length of the gap",
}
PASSES = {Overlap.FIRST: "on the first pass", Overlap.LAST: "on the last pass", Overlap.BOTH: "on both passes"}


def explain(fields: Fields, timezone: str, policy: DstPolicy) -> str:
    """Return the meaning of ``fields`` in ``timezone``: one sentence, and another where its clocks change."""
    *second, minute, hour, day_of_month, month, day_of_week = fields.text.split(" ")
    parts = [
        _time(second[0] if second else "0", minute, hour),
        _days(day_of_month, day_of_week, needs_both=fields.needs_both_days),
        "" if month == "*" else f"in {_listed(month, MONTH)}",
        f"in {timezone}",
    ]
    sentence = ", ".join(part for part in parts if part)
    return f"{sentence[0].upper()}{sentence[1:]}.{_changes(timezone, policy, is_wildcard=fields.is_wildcard)}"


def _time(second: str, minute: str, hour: str) -> str:
    numbers = [word.split(",") for word in (hour, minute, second)]
    if all(value.isdigit() for values in numbers for value in values):
        hours, minutes, seconds = ([int(value) for value in values] for values in numbers)
        if len(hours) * len(minutes) * len(seconds) <= _TIMES_MAX:
            times = sorted({(h, m, s) for h in hours for m in minutes for s in seconds})
            return f"at {_and([f'{h:02d}:{m:02d}' + (f':{s:02d}' if second != '0' else '') for h, m, s in times])}"
    parts = [] if second == "0" else [_rhythm(second, "second")]
    if minute != "*" or second == "0":
        parts.append(_rhythm(minute, "minute"))
    parts.append("of every hour" if hour == "*" and not minute.startswith("*") else "")
    if hour != "*":
        parts.append(f"of {_listed(hour, HOUR)}" if "/" in hour else f"during {_listed(hour, HOUR, 'hour')}")
    return " ".join(part for part in parts if part)


def _rhythm(word: str, unit: str) -> str:
    """Return ``every 5 minutes``, ``every minute`` or ``at minute 5 and 35``."""
    if word == "*":
        return f"every {unit}"
    match = re.fullmatch(r"(?P<span>\*|[0-9]+(?:-[0-9]+)?)/(?P<step>[0-9]+)", word)
    if match is None:
        return f"at {_listed(word, MINUTE, unit)}"
    within = "" if match["span"] in {"*", "0"} else f" from {match['span'].replace('-', ' to ')}"
    return f"every {match['step']} {unit}s{within}" if match["step"] != "1" else f"every {unit}{within}"


def _days(day_of_month: str, day_of_week: str, *, needs_both: bool) -> str:
    date = "" if day_of_month in {"*", "?"} else f"on {_listed(day_of_month, DAY_OF_MONTH, 'day')} of the month"
    weekday = "" if day_of_week in {"*", "?"} else f"on {_listed(day_of_week, DAY_OF_WEEK)}"
    if date and weekday:
        return f"{date} {'if it is also' if needs_both else 'or'} {weekday}"
    return date or weekday


def _listed(word: str, field: Field, unit: str = "") -> str:
    elements = [_element(element, field) for element in word.split(",")]
    if not unit or not all(element[:1].isdigit() for element in elements):
        return _and(elements)
    is_one = len(elements) == 1 and elements[0].isdigit()
    return f"{unit if is_one else unit + 's'} {_and(elements)}"


def _element(element: str, field: Field) -> str:
    if field is DAY_OF_MONTH and (special := _special_date(element.upper())):
        return special
    if field is DAY_OF_WEEK and (special := _special_weekday(element.upper())):
        return special
    match = _SPAN.fullmatch(element)
    assert match is not None, "only what was parsed is explained"
    first, last, step = match["first"], match["last"], match["step"]
    unit = {"day-of-week": "weekday", "day-of-month": "day"}.get(field.name, field.name)
    every = f"every {unit}" if step in {None, "1"} else f"every {_nth(int(step))} {unit}"
    if first == "*":
        return every
    span = _value(first, field) if last is None else f"{_value(first, field)} to {_value(last, field)}"
    return span if step is None else f"{every} from {span}"


def _special_date(element: str) -> str:
    if element == "L":
        return "the last day"
    if element == "LW":
        return "the last weekday (Monday to Friday)"
    if element.startswith("L-"):
        return f"the last day but {element[2:]}"
    return f"the weekday (Monday to Friday) nearest to day {element[:-1]}" if element.endswith("W") else ""


def _special_weekday(element: str) -> str:
    day, has_nth, nth = element.partition("#")
    if has_nth:
        return f"the {_ORDINALS[int(nth) - 1]} {_value(day, DAY_OF_WEEK)} of the month"
    return f"the last {_value(element[:-1], DAY_OF_WEEK)} of the month" if element[-1:] == "L" else ""


def _value(text: str, field: Field) -> str:
    if not field.names:
        return text.lstrip("0") or "0"
    number = int(text) if text.isdigit() else field.value_of(text) or 0
    return field.names[(number - field.first_named) % len(field.names)]


def _nth(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _changes(timezone: str, policy: DstPolicy, *, is_wildcard: bool) -> str:
    if timezone.rpartition("/")[2] in {"UTC", "GMT", "Zulu", "UCT", "Universal", "Greenwich"}:
        return ""
    if is_wildcard:
        return " It follows real time when the clock changes."
    return (
        f" A time that a change of the clock skips {_GAPS[policy.gap]}; "
        f"one that comes twice runs {PASSES[policy.overlap]}."
    )
