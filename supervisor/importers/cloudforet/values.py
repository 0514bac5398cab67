"""The timing values of a Cloudforet schedule, one rule for each way they were ever written."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.settings.base import Path
from supervisor.settings.document import Node
from supervisor.settings.sections.durations import parse_duration

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

    @property
    def text(self) -> str:
        """The number as people write it."""
        return f"{self.number.normalize():f}"


class Minute(NamedTuple):
    """Offset within the hour."""

    minute: int
    second: int = 0


def read_interval(node: Node, path: Path, report: ImportReport) -> Interval | None:
    """Return an ``interval``; None when it is a problem."""
    value = node.value
    if isinstance(value, str) and _NUMBER.match(value):
        report.notice(
            f"{node.origin}: {_dotted(path)}: {value!r} is text; read as {value} (python-core made it nothing)"
        )
        found = Interval(Decimal(value), has_unit=False)
    elif isinstance(value, str):
        try:
            found = Interval(Decimal(str(parse_duration(value))), has_unit=True)
        except ValueError:
            report.problem(node, path, f"must be a number, got {shown(node)}", "write 30, or 30s with a unit")
            return None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        report.problem(node, path, f"must be a number, got {shown(node)}", "write how many seconds or hours, e.g. 30")
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
    report.problem(node, path, f"must be ':MM' or 'MM:SS', got {shown(node)}", _MINUTE_REMEDY)
    return None


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
