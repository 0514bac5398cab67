"""Time zones as tables of segments: stretches of real time that share one UTC offset.

Guarantees
    Offsets and the instants at which they change are those of the tz database that
    ``zoneinfo`` finds, exact to the second.
    ``first_local`` and ``again_local`` carry the facts that fixed-time entries need across a
    change: which local times a gap before the segment skipped or an overlap repeats in it,
    and which of its own come again after it. A correction of the zone skips and repeats nothing.

Does not guarantee
    That two changes less than three days apart are seen. The closest pair in the database lies
    four days apart (Freetown 1939; a week for those since 1970), and a test compares the zones
    with the most restless histories with their files.

Tables are made for a block of about four years when an instant in it is first asked for,
and shared by everything that names the zone.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from supervisor.core.durations import EPOCH
from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.core.suggestions import closest

CORRECTION_S = 3 * 3600
"""A change by more than this corrects the zone (Samoa skipped a day); nobody's 02:30 was cut short by it."""

SECOND_MIN = -62_000_000_000
"""First instant that is served, in the year 5."""

SECOND_MAX = 253_000_000_000
"""First instant that is no longer served, in the year 9987."""

_VERSION_MAX = 100
_BLOCK_BITS = 27  # 2**27 s is 4.25 years: 0.7 ms to scan, and most processes need one or two
_DAY_S = 86_400
_STEP_S = 3 * _DAY_S  # no two changes are as close
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)
_NOT_PORTABLE = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})


table_reader: ContextVar[Callable[[str, int], None] | None] = ContextVar("told which tables are read", default=None)
"""Called with zone and number of each table that ``Zone.at`` looks into; what it raises is the caller's."""


class UnknownZoneError(TenureError):
    """A name that the tz database does not have."""

    exit_code = EXIT_CONFIG


class Segment(NamedTuple):
    """A stretch of real time [start, end) with one offset. All in whole seconds."""

    start: int
    end: int
    offset: int  # local = UTC + offset
    first_local: (
        int  # earliest local time not yet passed before: lies before the start by the gap, after it in an overlap
    )
    again_local: int  # from this local time on, the next segment comes back to what this one had; else its end


class Zone:
    """One time zone. Get it from ``zone``, which shares it."""

    __slots__ = ("_recent", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._recent = Segment(0, 0, 0, 0, 0)  # a memo: one reference, so a race can only cost a lookup

    def at(self, instant_s: int) -> Segment:
        """Return the segment that holds ``instant_s``.

        Segments also end where tables do, so neighbours may have equal offsets.
        """
        segment = self._recent
        if segment.start <= instant_s < segment.end:
            return segment
        block = instant_s >> _BLOCK_BITS
        reader = table_reader.get()
        if reader is not None:
            reader(self.name, block)
        segments = _segments(self.name, block)
        segment = segments[bisect_right(segments, instant_s, key=_start_of) - 1]
        self._recent = segment
        return segment

    def first_showing(self, reading_s: int) -> int:
        """Return the first instant at which clocks show ``reading_s`` or, where they skip it, later."""
        segment = self.at(reading_s - 2 * _DAY_S)  # before every instant that can show it
        while segment.end + segment.offset <= reading_s:
            segment = self.at(segment.end)
        return max(segment.start, reading_s - segment.offset)


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Return the zone called ``name``.

    Raises:
        UnknownZoneError: the database has no such zone, or the name means something else elsewhere.
    """
    _info(name)
    return Zone(name)


@lru_cache(maxsize=1024)
def _info(name: str) -> zoneinfo.ZoneInfo:
    if _NAME.fullmatch(name) and name.split("/", 1)[0] not in _NOT_PORTABLE:
        try:
            return zoneinfo.ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # absent; not a zone file; a directory such as "America"
            pass
    raise UnknownZoneError(f"timezone {name!r} is not in the time zone database; {_remedy(name)}")


@lru_cache(maxsize=1)
def database_version() -> str:
    """Return which data ``zone`` reads: that of the system, where it has some, and of the package for the rest.

    It is that of the first question. A process that forks asks before: its children have its tables, however the files
    change while they live.
    """
    found = [metadata.version("tzdata")]
    for folder in map(Path, zoneinfo.TZPATH):
        try:
            with Path(folder, "tzdata.zi").open(encoding="utf-8") as file:
                found.append(file.readline(_VERSION_MAX).removeprefix("# version ").strip())
        except (OSError, UnicodeDecodeError):  # other systems do not say; the time of the last installation does
            with suppress(OSError):
                found.append(str(folder.stat().st_mtime_ns))
    return " ".join(found)


def _remedy(name: str) -> str:
    known = zoneinfo.available_timezones() - _NOT_PORTABLE
    inside = sorted(zone_name for zone_name in known if zone_name.startswith(f"{name}/"))
    if inside:
        return f"that is a region; name a place in it, such as {inside[0]}"
    by_lower = {zone_name.lower(): zone_name for zone_name in sorted(known)}
    by_lower |= {zone_name.rpartition("/")[2].lower(): zone_name for zone_name in sorted(known) if "/" in zone_name}
    close = closest(name.strip().replace(" ", "_"), by_lower, likeness_min=0.7)
    if close:
        return f"did you mean {by_lower[close[0]]}?"
    return "use an IANA name such as Europe/Berlin or UTC"


def _start_of(segment: Segment) -> int:
    return segment.start


@lru_cache(maxsize=8192)
def _segments(name: str, block: int) -> tuple[Segment, ...]:
    """Return the segments that hold the instants of one block, in order and without holes.

    A segment that began up to two days before the block keeps its true start, so that times a gap
    shifted across the border of the block are known behind it. All of them end with the block.
    """
    info = _info(name)
    begin, end = block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS
    lead_in, lead_out = begin - 2 * _DAY_S, end + 2 * _DAY_S
    found: list[Segment] = []
    offset = _offset(info, lead_in)
    first_local = lead_in + offset
    for start, stop in pairwise([lead_in, *_changes(info, lead_in, lead_out), lead_out]):
        passed = max(first_local, start + offset)
        offset = _offset(info, start)
        opening = start + offset
        is_correction = abs(opening - passed) > CORRECTION_S
        first_local = opening if is_correction else passed
        if found and opening < found[-1].again_local and not is_correction:
            found[-1] = found[-1]._replace(again_local=opening)
        found.append(Segment(start, stop, offset, first_local, stop + offset))
    return tuple(_cut(segment, begin, end) for segment in found if segment.end > begin and segment.start < end)


def _cut(segment: Segment, begin: int, end: int) -> Segment:
    """Return ``segment`` without the part behind its block, and without a start that is none."""
    start, stop, offset, first_local, again_local = segment
    if start == begin - 2 * _DAY_S:  # where the search began: nothing changed there
        start = begin
        first_local = begin + offset
    return Segment(start, min(stop, end), offset, first_local, again_local)


def _changes(info: zoneinfo.ZoneInfo, begin: int, end: int) -> list[int]:
    """Return the instants in (begin, end) at which the offset changes, found step by step, then halved."""
    if info.utcoffset(None) is not None:
        return []  # a fixed offset
    found = []
    before = _offset(info, begin)
    for low in range(begin, end, _STEP_S):
        high = min(low + _STEP_S, end - 1)
        after = _offset(info, high)
        if after != before:
            found.append(_change_between(info, low, high, before))
            before = after
    return found


def _change_between(info: zoneinfo.ZoneInfo, low: int, high: int, before: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(info: zoneinfo.ZoneInfo, instant_s: int) -> int:
    clipped = min(max(instant_s, SECOND_MIN), SECOND_MAX)
    offset = (EPOCH + timedelta(seconds=clipped)).astimezone(info).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())
