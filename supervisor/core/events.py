"""Events: changes of a replica that interest a person or a program, and the folding of equal ones.

A series is the events of one process about one subject for one reason at one level. Its first event is told at
once; further ones are counted, and reported together, with the count so far, once in ``PACE_NS``.

Guarantees
    At most ``SERIES_MAX`` series are known and ``FRESH_PER_S`` new ones begin in a second, whatever comes:
    events beyond that are refused, and counted by the caller.
    An admitted event is reported at once or counted in a later report of its series.

Time enters as an argument. Nothing here logs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from supervisor.core.units import MILLISECOND_NS

Value = str | int | float | bool | None
Key = tuple[str, str, str]

LEVELS = ("info", "warning", "error")
SERIES_MAX = 256
FRESH_PER_S = 50
PACE_NS = 5_000 * MILLISECOND_NS
"""How often a series that goes on is told."""

IDLE_NS = 360_000 * MILLISECOND_NS
"""A series that was quiet for so long is over; client-go's own figure."""

_SECOND_NS = 1_000 * MILLISECOND_NS


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One report of a series, as it travels and as it is kept."""

    reason: str
    level: str
    subject: str
    note: str
    count: int
    first_ms: int
    last_ms: int
    replica: str
    role: str
    fields: dict[str, Value] = {}


@dataclass(slots=True)
class Series:
    """Equal events of one process."""

    reason: str
    level: str
    subject: str
    first_ms: int
    last_ms: int
    last_ns: int
    told_ns: int
    note: str = ""
    fields: dict[str, Value] = field(default_factory=dict)
    is_logged: bool = False
    count: int = 0
    told: int = 0

    @property
    def untold(self) -> int:
        """Number of its events that no report has counted yet."""
        return self.count - self.told


class EventAggregator:
    """The series of one process."""

    def __init__(self) -> None:
        self._series: OrderedDict[Key, Series] = OrderedDict()  # the one that was quiet longest comes first
        self._second_ns = -_SECOND_NS
        self._fresh = 0

    def __len__(self) -> int:
        return len(self._series)

    def admit(
        self, key: Key, *, note: str, fields: dict[str, Value], now_ns: int, wall_ms: int, is_logged: bool = False
    ) -> tuple[bool, list[Series]]:
        """Count one event; return whether it was admitted, and the report due now."""
        series = self._series.get(key)
        due: list[Series] = []
        if series is not None and now_ns - series.last_ns >= IDLE_NS:
            due += [series] if series.untold else []
            del self._series[key]
            series = None
        if series is None:
            if not self._has_room(now_ns):
                return False, due
            due += self._make_room()
            series = Series(*key, first_ms=wall_ms, last_ms=wall_ms, last_ns=now_ns, told_ns=now_ns - PACE_NS)
            self._series[key] = series
        series.count += 1
        series.is_logged = is_logged
        series.note, series.fields, series.last_ms, series.last_ns = note, fields, wall_ms, now_ns
        self._series.move_to_end(key)
        if now_ns - series.told_ns >= PACE_NS:
            due.append(series)
        return True, due

    def due(self, now_ns: int, *, is_last: bool = False) -> list[Series]:
        """Return the series that have something untold for long enough; with ``is_last`` for any time."""
        return [
            series
            for series in self._series.values()
            if series.untold and (is_last or now_ns - series.told_ns >= PACE_NS)
        ]

    def _has_room(self, now_ns: int) -> bool:
        if now_ns - self._second_ns >= _SECOND_NS:
            self._second_ns, self._fresh = now_ns, 0
        if self._fresh >= FRESH_PER_S:
            return False
        self._fresh += 1
        return True

    def _make_room(self) -> list[Series]:
        """Close the series that was quiet longest if there are too many; return it if something of it is untold."""
        if len(self._series) < SERIES_MAX:
            return []
        _, oldest = self._series.popitem(last=False)
        return [oldest] if oldest.untold else []


def tell(series: Series, *, replica: str, role: str, now_ns: int) -> Event:
    """Note that ``series`` is reported now, and return the report."""
    series.told, series.told_ns = series.count, now_ns
    return Event(
        reason=series.reason,
        level=series.level,
        subject=series.subject,
        note=series.note,
        count=series.count,
        first_ms=series.first_ms,
        last_ms=series.last_ms,
        replica=replica,
        role=role,
        fields=series.fields,
    )
