"""Events: changes of a replica that interest a person or a program, as they travel and as they are kept."""

from __future__ import annotations

import msgspec

Value = str | int | float | bool | None
LEVELS = ("info", "warning", "error")


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
