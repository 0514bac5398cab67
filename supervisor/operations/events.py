"""Operations on events: what happened, as Redis keeps it."""

from __future__ import annotations

from supervisor.operations import Operation, one
from supervisor.store.event_log import EVENT_ID as EVENT_ID  # noqa: PLC0414 - for those who name one
from supervisor.store.event_log import READ_MAX, EventLog, EventPage
from supervisor.store.event_log import KeptEvent as KeptEvent  # noqa: PLC0414 - for those who show one
from supervisor.store.event_log import listened as listened  # noqa: PLC0414 - for those who follow the stream
from supervisor.store.keys import Keys


def read(keys: Keys, *, after: str = "", since_ms: int = 0, count: int = READ_MAX) -> Operation[EventPage]:
    """Read at most ``count`` events, oldest first: those after one, or the newest since a time of Redis' clock."""
    return one(EventLog(keys).read(after=after, since_ms=since_ms, count=count))
