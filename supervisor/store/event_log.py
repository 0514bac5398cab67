"""The events that Redis keeps: a capped stream of all replicas.

Guarantees
    A batch is added once, however often it is sent within ten minutes. About ``kept`` events are kept.
    Entries that are no event, written by a newer version or a stranger, are passed over by every reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.events import Event
from supervisor.core.json_values import json_reader
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import number, text

BATCH_MAX = 100
READ_MAX = 1000
TTL_MS = 600_000
EVENT_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
_encode = msgspec.json.Encoder().encode
_decode = json_reader(Event)


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event and its place in the stream."""

    id: str
    event: Event

    def row(self) -> dict[str, Any]:
        """Return it as a flat mapping for scripts; ``fields`` stay a mapping of their own."""
        return {"id": self.id, **msgspec.structs.asdict(self.event), "subject": self.event.subject or None}


class EventPage(list[KeptEvent]):
    """The events of one read. ``last_id`` is where the next one goes on, ``entries`` counts what is no event too."""

    last_id = ""
    entries = 0


class EventLog(CallBuilder):
    """Builds the calls."""

    @property
    def key(self) -> str:
        """Key of the stream, for those who wait for additions to it."""
        return self.keys.event_log

    def add(self, events: Sequence[Event], *, writer: str, batch: int, kept: int) -> Call[int]:
        """Add at most ``BATCH_MAX`` events; return how many were: none if this batch was added before."""
        args = {"number": batch, "kept": kept, "ttl_ms": TTL_MS, "events": [_encode(event) for event in events]}
        return self._call(
            "event_add", args, number, keys={"log": self.keys.event_log, "writer": self.keys.event_writer(writer)}
        )

    def read(self, *, after: str = "", since_ms: int = 0, count: int = READ_MAX) -> Call[EventPage]:
        """Read at most ``count`` events, oldest first: those after one, or the newest since a time of Redis' clock."""
        args = {"after": after, "since_ms": since_ms, "count": min(count, READ_MAX)}
        return self._call("event_read", args, _page)


def _page(reply: Any) -> EventPage:
    ids, bodies = reply[1::2], reply[2::2]
    page = EventPage(events_of((text(entry_id), body) for entry_id, body in zip(ids, bodies, strict=True)))
    page.last_id, page.entries = text(reply[0]), len(ids)
    return page


def events_of(entries: Iterable[tuple[str, bytes | str]]) -> list[KeptEvent]:
    """Return the events among ``entries``: id and JSON of each."""
    found = []
    for entry_id, body in entries:
        try:
            found.append(KeptEvent(entry_id, _decode(body)))
        except msgspec.DecodeError:
            continue
    return found


def listened(entries: Iterable[tuple[str, dict[str, str]]]) -> list[KeptEvent]:
    """Return the events in the reply of a blocking read of the stream."""
    return events_of((entry_id, fields.get("e", "")) for entry_id, fields in entries)
