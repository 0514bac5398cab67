"""From the time fields of a Cloudforet schedule to the trigger of a native one.

N hours are anchored: hours 0, N, 2N … of the zone where N divides 24, else every N hours
from 1970. The original counts from the start of its process, so a restart moves it, and one
that restarts daily never reaches 24 hours; ``phase: start`` asks for that phase all the same.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

from supervisor.core.cron.errors import CronError
from supervisor.core.cron.fields import parse
from supervisor.core.durations import format_duration, parse_duration
from supervisor.importers.cloudforet.classes import ARGUMENTS, SourceClass, TimingKind
from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.settings.base import Path
from supervisor.settings.document import Node

HOURS_WITHOUT_UNIT_MAX = 168
"""More hours than a week has are not believed beside a ``minute``: somebody meant seconds."""

INTERVAL_S_MIN = Decimal("0.1")
INTERVAL_MAX = 10 * 366 * 86_400
MINUTES_MAX = 59
_MINUTE = re.compile(r":([0-5][0-9])\Z")
_MINUTE_SECOND = re.compile(r"([0-5][0-9]):([0-5][0-9])\Z")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,3})?\Z")
_MINUTE_REMEDY = "write ':15' for 15 past, '15:30' for half a minute later, or a whole number from 0 to 59"


class Interval(NamedTuple):
    """A number whose unit depends on the class, or a duration with its own."""

    number: Decimal
    has_unit: bool  # then it is seconds


class Minute(NamedTuple):
    """Offset within the hour."""

    minute: int
    second: int = 0


def read_interval(node: Node, path: Path, report: ImportReport) -> Interval | None:
    """Return an ``interval``; None when it is a problem."""
    value = node.value
    if isinstance(value, str) and _NUMBER.match(value):
        report.remark(node, path, f"{value!r} is text; read as {value} (python-core made it nothing)")
        found = Interval(Decimal(value), has_unit=False)
    elif isinstance(value, str):
        try:
            found = Interval(Decimal(str(parse_duration(value))), has_unit=True)
        except ValueError:
            report.wrong(node, path, "must be a number", "write 30, or 30s with a unit")
            return None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        report.wrong(node, path, "must be a number", "write how many seconds or hours, e.g. 30")
        return None
    else:
        found = Interval(Decimal(str(value)), has_unit=False)
    if not 0 < found.number <= INTERVAL_MAX:
        message = f"must be above 0 and at most {INTERVAL_MAX}, got {shown(node)}"
        report.problem(node, path, message, "python-core would run for ever at 0; write a positive number")
        return None
    return found


def read_minute(node: Node, path: Path, report: ImportReport) -> Minute | None:
    """Return a ``minute``; None when it is a problem."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= MINUTES_MAX:
            return Minute(value)
        hint = f"was {value // 60}:{value % 60:02d} meant? quote it" if MINUTES_MAX < value < 3600 else _MINUTE_REMEDY
        report.problem(node, path, f"must be 0 to 59 as a number, got {value}", hint)
        return None
    if isinstance(value, str):
        if match := _MINUTE.match(value):
            return Minute(int(match[1]))
        if match := _MINUTE_SECOND.match(value):
            return Minute(int(match[1]), int(match[2]))
    report.wrong(node, path, "must be ':MM' or 'MM:SS'", _MINUTE_REMEDY)
    return None


UNITS = {"seconds": TimingKind.INTERVAL, "hours": TimingKind.HOURLY}
_ONE = Interval(Decimal(1), has_unit=False)
_DAY_HOURS = 24
_FIELDS = 5
_FIELDS_WITH_SECONDS = 6
_STEPS = re.compile(r"(?:^|(?<=,))\*(?=/)")  # the star of ``*/2``
_NAMES = {
    TimingKind.INTERVAL: "an interval schedule",
    TimingKind.HOURLY: "an hourly schedule",
    TimingKind.CRON: "a cron schedule",
}


ImportedTrigger = tuple[dict[str, Any], dict[str, Any]]
"""Timing of a schedule as native settings, and the options for its class."""


class TimingReader:
    """Reads the timing of one entry."""

    def __init__(self, entry: Node, path: Path, found: SourceClass, name: str, report: ImportReport) -> None:
        self._entry = entry
        self._path = path
        self._found = found
        self._class = name
        self._report = report

    def trigger(self) -> ImportedTrigger | None:
        """Return when it is due; None when that is a problem."""
        before = len(self._report.problems)
        kind = self._kind()
        if kind is None:
            return None
        interval = self._interval()
        minute = self._value("minute")
        at = read_minute(minute, (*self._path, "minute"), self._report) if minute is not None else Minute(0)
        if len(self._report.problems) > before or at is None:
            return None
        if kind is TimingKind.CRON:
            return self._cron()
        if kind is TimingKind.INTERVAL:
            return self._every(interval)
        return self._hourly(interval or _ONE, at, minute)

    def _value(self, key: str) -> Node | None:
        """Return the value of one key: the entry's, else the one that the class fixes."""
        given = self._entry.given(key)
        if given is None and key in self._found.fixed:
            return Node(self._found.fixed[key], self._found.where)
        return given

    def _kind(self) -> TimingKind | None:
        unit = self._entry.given("unit")
        if unit is not None and unit.value not in tuple(UNITS):
            self._report.wrong(unit, (*self._path, "unit"), "must be seconds or hours")
            return None
        asked = UNITS[unit.value] if unit is not None else None
        if self._found.kind is not None:
            if asked is not None and asked is not self._found.kind and unit is not None:
                message = f"{unit.value} contradicts the class, {_NAMES[self._found.kind]} ({self._found.where})"
                self._complain(unit, "unit", message, "remove it")
            return self._fitting(self._found.kind)
        return self._fitting(asked) if asked is not None else self._guessed()

    def _fitting(self, kind: TimingKind) -> TimingKind | None:
        """Return ``kind`` unless the entry has a value that such a schedule cannot take."""
        own = self._found.takes
        taken = ARGUMENTS[kind] if own is None else own  # a class with a constructor of its own dies of what that lacks
        wrong = [key for key in ("interval", "minute", "rule") if self._entry.given(key) and key not in taken]
        for key in wrong:
            interval = self._entry.given("interval") if key != "interval" else None
            seen = f" (interval is {interval.value} seconds)" if kind is TimingKind.INTERVAL and interval else ""
            message = f"not accepted by {_NAMES[kind]}"
            if key in ARGUMENTS[kind]:
                message = f"the constructor of the class does not take it ({self._found.where})"
            self._complain(self._entry.given(key), key, message, f"remove it{seen}")
        return None if wrong else kind

    def _guessed(self) -> TimingKind | None:
        """Return the kind that the keys leave no doubt about."""
        rule, minute, interval = (self._entry.given(key) for key in ("rule", "minute", "interval"))
        if rule is not None:
            return self._fitting(TimingKind.CRON)
        if minute is not None:
            return self._hours_believed(interval, minute)
        if interval is None:
            seen = f"has neither interval nor rule, and the source of its class {self._class} is not on the path"
            self._complain(self._entry, "", seen, "add interval: or rule:, or say where the class is with -m DIRECTORY")
            return None
        if "hour" in self._class.rpartition(".")[2].lower() and not isinstance(interval.value, str):
            seen = f"{shown(interval)} may be seconds or hours: the class {self._class} sounds hourly"
            message = f"{seen}, and its source is not on the path"
            self._complain(interval, "interval", message, "add unit: hours or unit: seconds")
            return None
        return TimingKind.INTERVAL

    def _hours_believed(self, interval: Node | None, minute: Node) -> TimingKind | None:
        value = interval.value if interval is not None else 1
        number = float(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(number, int | float) and number > HOURS_WITHOUT_UNIT_MAX and interval is not None:
            seen = f"{shown(interval)} with minute {shown(minute)} is a contradiction: that many hours, or seconds?"
            decides = f"the class {self._class} would decide, but its source is not on the path"
            remedy = f"add unit: hours, or remove minute and add unit: seconds; {decides}"
            self._complain(interval, "interval", seen, remedy)
            return None
        return TimingKind.HOURLY

    def _interval(self) -> Interval | None:
        node = self._value("interval")
        return read_interval(node, (*self._path, "interval"), self._report) if node is not None else None

    def _cron(self) -> ImportedTrigger | None:
        rule = self._value("rule")
        if rule is None:
            self._complain(self._entry, "rule", "is missing: the class takes it", "add rule: '*/5 * * * *'")
            return None
        if not isinstance(rule.value, str):
            self._report.wrong(rule, (*self._path, "rule"), "must be text", "quote it: '*/5 * * * *'")
            return None
        fields = rule.value.split()
        if len(fields) > _FIELDS_WITH_SECONDS:
            remedy = "write five, or six with seconds last"
            self._report.wrong(rule, (*self._path, "rule"), f"has {len(fields)} fields", remedy)
            return None
        if len(fields) == _FIELDS_WITH_SECONDS:
            self._report.remark(rule, (*self._path, "rule"), "its last field is seconds")
            fields = [fields[-1], *fields[:-1]]
        if len(fields) >= _FIELDS and (native := _days_of_croniter(fields)) != fields:
            words = f"as croniter has it, its days are {' '.join(native[-3:])}"
            self._report.remark(rule, (*self._path, "rule"), words)
            fields = native
        return {"cron": Node(" ".join(fields), rule.origin)}, self._options()

    def _every(self, interval: Interval | None) -> ImportedTrigger | None:
        if interval is None:
            self._complain(self._entry, "interval", "is missing: the class takes it", "add interval: 60 (seconds)")
            return None
        place = self._value("interval") or self._entry
        if interval.number < INTERVAL_S_MIN:
            message, remedy = f"must be at least {INTERVAL_S_MIN} seconds", "write how many seconds, e.g. 30"
            self._report.wrong(place, (*self._path, "interval"), message, remedy)
            return None
        every = format_duration(float(interval.number))
        settings = {"every": Node(every, place.origin)}
        return self._phased(settings, "first_seen"), self._options(interval)

    def _hourly(self, interval: Interval, at: Minute, minute: Node | None) -> ImportedTrigger | None:
        place = self._value("interval") or self._entry
        hours = interval.number / 3600 if interval.has_unit else interval.number
        if hours != int(hours):
            path, remedy = (*self._path, "interval"), "an hourly schedule counts hours"
            self._report.wrong(place, path, "must be whole hours", remedy)
            return None
        settings = _hours(int(hours), at, (minute or place).origin)
        phase = self._entry.given("phase")
        if phase is not None and phase.value == "start" and hours > 1:  # every hour is the same either way
            settings = _grid(int(hours), at, place.origin)
        return self._phased(settings, "first_seen_hour"), self._options(Interval(hours, has_unit=False))

    def _phased(self, settings: dict[str, Any], anchor: str) -> dict[str, Any]:
        phase = self._entry.given("phase")
        if phase is not None and phase.value not in ("anchored", "start"):
            self._report.wrong(phase, (*self._path, "phase"), "must be anchored or start")
        is_grid = "every" in settings and phase is not None and phase.value == "start"
        return {**settings, "anchor": Node(anchor, phase.origin)} if is_grid and phase is not None else settings

    def _options(self, interval: Interval | None = None) -> dict[str, Any]:
        """Return the arguments for the constructor of the class, from the entry."""
        found: dict[str, Any] = {}
        if interval is not None and self._entry.given("interval") is not None:
            number = interval.number
            found["interval"] = int(number) if number == int(number) else float(number)
        for key in ("minute", "rule"):
            node = self._entry.given(key)
            if node is not None:
                found[key] = f":{node.value:02d}" if isinstance(node.value, int) else node.value
        return found

    def _complain(self, node: Node | None, key: str, message: str, remedy: str) -> None:
        path = (*self._path, key) if key else self._path
        self._report.problem(node or self._entry, path, message, remedy)


def _days_of_croniter(fields: list[str]) -> list[str]:
    """Return ``fields`` with fields of days that mean here what they mean to croniter.

    For croniter any field but ``*`` restricts the days, and one that matches either field is due. In cron's rule, which
    is ours, a field that begins with ``*`` restricts nothing alone, and both must match: steps become ranges. Beside a
    star a field that names every day is ``*`` to croniter, too, and where there is a ``#``, it alone decides.
    """
    *times, day, month, weekday = fields
    if "#" in weekday:
        return fields if day == "?" else [*times, "*", month, weekday]
    if ("*" in day and _is_every_day("*", weekday)) or ("*" in weekday and _is_every_day(day, "*")):
        return fields
    day, weekday = _STEPS.sub("1-31", day), _STEPS.sub("0-7", weekday)
    return fields if {"*", "?"} & {*day, *weekday} else [*times, day, month, weekday]


def _is_every_day(day: str, weekday: str) -> bool:
    """Return whether no day is left out where both fields must match; False where they cannot be read."""
    try:
        found, every = parse(f"0 0 {day} * {weekday}"), parse("0 0 * * *")
    except CronError:
        return False
    return (found.day_of_month, found.day_of_week) == (every.day_of_month, every.day_of_week)


def _hours(hours: int, at: Minute, origin: str) -> dict[str, Any]:
    """Return every N hours at a minute, anchored."""
    if _DAY_HOURS % hours:
        return _grid(hours, at, origin)
    step = {1: "*", _DAY_HOURS: "0"}.get(hours, f"*/{hours}")
    seconds = f"{at.second} " if at.second else ""
    return {"cron": Node(f"{seconds}{at.minute} {step} * * *", origin)}


def _grid(hours: int, at: Minute, origin: str) -> dict[str, Any]:
    settings = {"every": Node(f"{hours}h", origin)}
    if at != Minute(0):
        settings["phase"] = Node(format_duration(at.minute * 60 + at.second), origin)
    return settings
