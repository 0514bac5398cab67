"""The event recorder: ``record`` anywhere in the tree records an event of interest to people.

An event goes to the log of the process that records it, and through a pipe that the tree shares to the web
child, which writes it to the capped stream in Redis and sends it to the webhook (roles/web/events/sink.py).

Guarantees
    Nothing here waits: not for Redis, not for the web child, not for room in the pipe. Events without room are
    dropped and counted (``tenure_events_dropped_total``).
    Equal events are sent once, then together with their count. Memory is bounded.
    A message is one ``write`` of at most ``PIPE_BUF`` bytes, so those of several processes never mix; it
    survives the death of its process, and that of the web child.
    Values under secret names are masked as in the log.

Does not guarantee
    That an event arrives. The log has the decision, and Redis the record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec
import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.events import LEVELS, Event, Value
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.telemetry.masking import mask_entry, mask_text
from supervisor.telemetry.metrics import EVENTS, EVENTS_DROPPED

PIPE_BYTES = 1 << 20
MESSAGE_BYTES_MAX = 4096
"""PIPE_BUF of Linux."""

REASON_CHARS_MAX = 64
SUBJECT_CHARS_MAX = 200
NOTE_CHARS_MAX = 1000
FIELDS_MAX = 16
VALUE_CHARS_MAX = 200
LOCK_S = 0.01
"""How long a thread waits for another one's turn of microseconds; a signal handler may wait for itself."""

SERIES_MAX = 256
FRESH_PER_S = 50
PACE_NS = 5_000 * MILLISECOND_NS
"""How often a series that goes on is told."""

IDLE_NS = 360_000 * MILLISECOND_NS
"""A series that was quiet for so long is over; client-go's own figure."""

Key = tuple[str, str, str]
_encode = msgspec.json.Encoder().encode


class Mailbox:
    """The pipe from every process of a tree to the one that passes events on. Made once, before the first fork."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # beyond what this user may: then it holds less, and more is dropped
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def descriptors(self) -> tuple[int, int]:
        """Descriptors that a child must keep."""
        return self.read_fd, self.write_fd


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
    """The series of one process: the events about one subject for one reason at one level.

    The first event of a series is told at once; further ones are counted, and reported together, with the count so
    far, once in ``PACE_NS``.

    Guarantees
        At most ``SERIES_MAX`` series are known and ``FRESH_PER_S`` new ones begin in a second, whatever comes: events
        beyond that are refused, and counted by the caller.
        An admitted event is reported at once or counted in a later report of its series.
    """

    def __init__(self) -> None:
        self._series: OrderedDict[Key, Series] = OrderedDict()  # the one that was quiet longest comes first
        self._second_ns = -SECOND_NS
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
        if now_ns - self._second_ns >= SECOND_NS:
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
        reason=series.reason, level=series.level, subject=series.subject, note=series.note, count=series.count,
        first_ms=series.first_ms, last_ms=series.last_ms, replica=replica, role=role, fields=series.fields,
    )  # fmt: skip


@dataclass(slots=True)
class Recorder:
    """The events of one process."""

    clock: Clock = field(default_factory=SystemClock)
    write_fd: int | None = None
    replica: str = ""
    role: str = ""
    runs: str = "failures"  # which ends of runs are events: failures, all or none
    folding: EventAggregator = field(default_factory=EventAggregator)
    dropped: int = 0  # not yet in the metric
    _lock: Any = field(default_factory=Lock)

    def record(
        self,
        reason: str,
        note: str = "",
        *,
        subject: str = "",
        level: str = "info",
        is_logged: bool = False,
        **fields: Any,
    ) -> None:
        """Record one event; see the function of the same name."""
        assert level in LEVELS, level
        key = (reason[:REASON_CHARS_MAX], level, subject[:SUBJECT_CHARS_MAX])
        if not self._lock.acquire(timeout=LOCK_S):
            self.dropped += 1
            return
        try:
            now_ns = self.clock.elapsed_ns()
            is_admitted, due = self.folding.admit(
                key, note=note, fields=fields, now_ns=now_ns, wall_ms=self.clock.wall_ms(), is_logged=is_logged
            )
            self.dropped += not is_admitted
            for series in due:
                self._tell(series, now_ns)
        finally:
            self._lock.release()

    def flush(self, *, is_last: bool = False) -> None:
        """Send counted events that are due; with ``is_last`` all of them."""
        if not (self.dropped or len(self.folding)) or not self._lock.acquire(timeout=LOCK_S):
            return
        try:
            now_ns = self.clock.elapsed_ns()
            for series in self.folding.due(now_ns, is_last=is_last):
                self._tell(series, now_ns)
            if self.dropped:
                EVENTS_DROPPED.labels(sink="recorder").inc(self.dropped)
                self.dropped = 0
        finally:
            self._lock.release()

    def _tell(self, series: Series, now_ns: int) -> None:
        EVENTS.labels(reason=series.reason).inc(series.untold)
        series.note = _text(mask_text(series.note, NOTE_CHARS_MAX), NOTE_CHARS_MAX)
        series.fields = _plain(series.fields)
        event = tell(series, replica=self.replica, role=self.role, now_ns=now_ns)
        if not series.is_logged:
            _write_line(event)
        if self.write_fd is None:
            return
        message = _encode(event) + b"\n"
        if len(message) > MESSAGE_BYTES_MAX:
            message = _encode(msgspec.structs.replace(event, note=event.note[:200], fields={"cut": True})) + b"\n"
        try:
            os.write(self.write_fd, message)
        except OSError:  # no room, or nobody left who could read
            self.dropped += 1


class _ProcessRecorder:
    """The recorder of this process."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def after_fork(self) -> None:
        """In a forked process: a lost thread may hold the lock, and counted events are the parent's to send."""
        was = self.recorder
        self.recorder = Recorder(clock=was.clock, write_fd=was.write_fd, replica=was.replica, role=was.role)


_process = _ProcessRecorder()
os.register_at_fork(after_in_child=_process.after_fork)


def attach(
    write_fd: int | None, *, replica: str, role: str, runs: str = "failures", clock: Clock | None = None
) -> Recorder:
    """Send the events of this process to the tree's mailbox from now on. Once in each process, after the fork."""
    _process.recorder = Recorder(clock=clock or SystemClock(), write_fd=write_fd, replica=replica, role=role, runs=runs)
    return _process.recorder


def follow(*, runs: str) -> None:
    """Let other ends of runs be events in this process from now on."""
    _process.recorder.runs = runs


def run_events() -> str:
    """Return which ends of runs are events in this process: failures, all or none."""
    return _process.recorder.runs


def record(
    reason: str, note: str = "", *, subject: str = "", level: str = "info", is_logged: bool = False, **fields: Any
) -> None:
    """Record that something happened. Costs a microsecond or two, never waits, never raises for its arguments.

    Args:
        reason: the kind of event, as a name like ``fire_rejected``: few of them, written in the code.
        note: one sentence for people; of equal events the last one's is kept.
        subject: the object concerned: a schedule, a plugin, a slot, a job. Few enough to distinguish; no run ids.
        level: ``info``, ``warning`` or ``error``.
        is_logged: a line in the log already reports it.
        fields: further facts, flat; of equal events the last one's are kept.

    Events of one process with equal reason, level and subject are a series, and sent together.
    """
    _process.recorder.record(reason, note, subject=subject, level=level, is_logged=is_logged, **fields)


def flush(*, is_last: bool = False) -> None:
    """Send counted events that are due. Every process calls it with its beats; costs next to nothing."""
    _process.recorder.flush(is_last=is_last)


def _plain(fields: dict[str, Any]) -> dict[str, Value]:
    """Return at most ``FIELDS_MAX`` of ``fields`` as short plain values, without secrets."""
    found: dict[str, Value] = {}
    for name in list(fields)[:FIELDS_MAX]:
        value = mask_entry(name, fields[name], chars=VALUE_CHARS_MAX)
        if not (value is None or isinstance(value, bool | int | float)):
            is_list = isinstance(value, list)
            value = _text(", ".join(map(str, value)) if is_list else str(value), VALUE_CHARS_MAX)
        found[mask_text(str(name), REASON_CHARS_MAX)[:REASON_CHARS_MAX]] = value
    return found


def _text(text: str, limit: int) -> str:
    return text[:limit].encode("utf-8", "replace").decode()  # a lone surrogate is no JSON


def _write_line(event: Event) -> None:
    fields: dict[str, Any] = {f"{name}_" if name == "event" else name: value for name, value in event.fields.items()}
    if event.subject:
        fields["subject"] = event.subject
    if event.note:
        fields["note"] = event.note
    if event.count > 1:
        fields["count"] = event.count
    getattr(structlog.get_logger(), event.level)(event.reason, **fields)
