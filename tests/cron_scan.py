"""``make cron-scan``: the cron engine against brute force, in every zone of the tz database, 2024 to 2030.

Two days around every change of a clock, each minute is walked as Debian's cron walks it. Between
the changes each reading of the wall clock is judged by the calendar alone. Every fire of every
expression must be found by both, forwards, backwards and when they are counted.

Zones with equal histories are scanned once; that their tables are equal is checked for each.
"""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

from rich.console import Console
from rich.progress import track

from supervisor.core.cron.expression import Cron, compile_cron
from supervisor.core.cron.zones import zone
from tests.cron_oracle import Calendar, instant, local_minutes, utc, walk

BEGIN, END = instant("2024-01-01T00:00Z"), instant("2031-01-01T00:00Z")
AROUND_S = 2 * 86_400
SHOWN_MAX = 20
EXPRESSIONS = (
    "30 2 * * *", "0 0 * * *", "59 23 * * *", "0 */6 * * *", "30 * * * *", "15,45 1-4 * * *", "0 9 * * 1-5", "0 0 1 * *",
    "30 3 L * *", "0 12 15W * *", "0 0 LW */3 *", "45 1 * * 7L", "0 2 * 3,10 SUN", "20 0 */2 * 5", "0 3 13 * 5", "*/20 2 * * *",
)  # fmt: skip


def main() -> int:
    """Scan everything; return 1 and print what differs if anything does."""
    console = Console(stderr=True)
    calendars = {text: Calendar(text) for text in EXPRESSIONS}
    histories: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name in track(
        sorted(zoneinfo.available_timezones() - {"localtime", "Factory"}), "reading zones", console=console
    ):
        if not name.startswith(("posix/", "right/")):
            histories.setdefault(history(name), []).append(name)
    found = []
    for changes, names in track(histories.items(), "scanning", total=len(histories), console=console):
        found += [difference for name in names for difference in compare_tables(name, changes)]
        found += compare_fires(names[0], changes, calendars)
    zones = sum(len(names) for names in histories.values())
    sys.stdout.write(
        f"{zones} zones, {len(histories)} histories, {len(EXPRESSIONS)} expressions: {len(found)} differences\n"
    )
    for difference in found[:SHOWN_MAX]:
        sys.stdout.write(f"{difference}\n")
    return 1 if found else 0


def history(name: str) -> tuple[tuple[int, int], ...]:
    """Return (instant, offset) for the begin and for every change, looking at each quarter of an hour."""
    info = zoneinfo.ZoneInfo(name)
    found: list[tuple[int, int]] = []
    for at in range(BEGIN - AROUND_S, END + AROUND_S, 900):
        offset = datetime.fromtimestamp(at, info).utcoffset()
        assert offset is not None
        seconds = int(offset.total_seconds())
        if not found or seconds != found[-1][1]:
            found.append((at, seconds))
    return tuple(found)


def compare_tables(name: str, changes: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield where the engine's table of a zone differs from ``changes``."""
    for at, offset in changes:
        segment = zone(name).at(at)
        if segment.offset != offset or (at != changes[0][0] and segment.start != at):
            yield f"{name}: the table differs at {utc(at)}"


def compare_fires(name: str, changes: tuple[tuple[int, int], ...], calendars: dict[str, Calendar]) -> list[str]:
    """Return every stretch and expression whose fires differ."""
    found = []
    instants = [at for at, _ in changes[1:] if BEGIN < at < END]
    for change in instants:
        begin, end = change - AROUND_S, change + AROUND_S
        minutes = local_minutes(name, begin, end)
        for text, calendar in calendars.items():
            found += difference(compile_cron(text, name), begin, end, walk(calendar, minutes, begin, end))
    edges = [BEGIN, *(edge for at in instants for edge in (at - AROUND_S, at + AROUND_S)), END]
    for index, (begin, end) in enumerate(pairwise(edges)):
        if index % 2 == 0 and begin < end:
            offset = next(offset for at, offset in reversed(changes) if at <= begin)
            for text, calendar in calendars.items():
                found += difference(compile_cron(text, name), begin, end, readings(calendar, begin, end, offset))
    return found


def readings(calendar: Calendar, begin: int, end: int, offset: int) -> list[int]:
    """Return the fires in (begin, end] where the clock does not change: the minutes of each day that match."""
    of_day = sorted(calendar.minutes)
    first, last = (begin + offset) // 86_400, (end + offset) // 86_400
    days = (day for day in range(first, last + 1) if calendar.has_day(day))
    found = (day * 86_400 + minute * 60 - offset for day in days for minute in of_day)
    return [at for at in found if begin < at <= end]


def difference(cron: Cron, begin: int, end: int, expected: list[int]) -> list[str]:
    """Return a line when the engine does not find exactly ``expected``."""
    forwards = list(cron.fires(begin, end))
    backwards = []
    at = cron.prev(end)
    while at is not None and at > begin:
        backwards.append(at)
        at = cron.prev(at - 1)
    if forwards == expected == backwards[::-1] and cron.count(begin, end, 10**9) == len(expected):
        return []
    missing = [utc(at) for at in sorted(set(expected) - set(forwards))[:3]]
    extra = [utc(at) for at in sorted(set(forwards) - set(expected))[:3]]
    return [f"{cron.describe()} from {utc(begin)} to {utc(end)}: missing {missing}, extra {extra}"]


if __name__ == "__main__":
    sys.exit(main())
