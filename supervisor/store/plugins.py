"""Records of the cluster's plugins, and of the schedules suspended because of them.

Guarantees
    A suspension never replaces a person's pause, and releasing ends nothing but a suspension by the same plugin.
    At most ``RECORDS_MAX`` records are kept, none longer than a week after the last was written.

Does not guarantee
    That a record is there: whoever needs to know calls ``init`` and ``verify`` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.core.json_values import read_json
from supervisor.store.schedules.control import BATCH_MAX, REASON_MAX
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import foreign_number, number, pairs, text, texts

RECORDS_MAX = 500
RECORD_BYTES_MAX = 16 * 1024
TTL_MS = 7 * 86_400_000


class PluginState(StrEnum):
    """State of a plugin with certain options."""

    REGISTERED = "REGISTERED"  # known, and not tried yet
    ACTIVE = "ACTIVE"  # init and verify passed
    ERROR = "ERROR"  # it cannot be used; its schedules are suspended


class PluginRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Latest status of one plugin with certain options."""

    v: int = 1
    plugin: str
    digest: str
    """Of the options; one plugin may work with some and not with others."""

    state: str
    version: str = ""
    reason: str = ""
    """Why it is in ERROR, or what the last failure was."""

    phase: str = ""
    """What it was doing when it failed: start, init, verify or run."""

    metadata: dict[str, Any] = {}
    """What ``init`` said."""

    failures: int = 0
    """Calls that failed in a row, since it last worked."""

    errors: int = 0
    """How often in a row it came into ERROR; each makes the suspension longer."""

    suspended: int = 0
    """How many schedules were suspended for it."""

    until_ms: int = 0
    """When the suspension ends by itself."""

    by: str = ""
    """Worker or command that found it."""

    at_ms: int = 0
    """When it was written, by Redis' clock."""


class SuspendCode(StrEnum):
    """Result of suspending or releasing one schedule."""

    SUSPENDED = "SUSPENDED"
    RELEASED = "RELEASED"
    HELD = "HELD"  # a person paused it
    RUNNING = "RUNNING"  # it was not suspended
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Suspension:
    """Results of a suspension, one for each schedule in the order asked, and its end."""

    codes: list[SuspendCode]
    until_ms: int


class Plugins(CallBuilder):
    """Builds the calls."""

    def write(self, record: PluginRecord) -> Call[bool]:
        """Keep ``record`` in place of an earlier one of the same plugin and options."""
        body = msgspec.json.encode(record)
        if len(body) > RECORD_BYTES_MAX:
            body = msgspec.json.encode(msgspec.structs.replace(record, metadata={"omitted": "it is over 16 KiB"}))
        args = {"field": f"{record.plugin} {record.digest}", "json": body, "most": RECORDS_MAX, "ttl_ms": TTL_MS}
        return self._call("plugin_write", args, bool)

    def read_one(self, plugin: str, digest: str) -> Call[PluginRecord | None]:
        """Read the record of one plugin with certain options; None when there is none."""
        return self._call("plugin_read", {"field": f"{plugin} {digest}"}, _record)

    def read(self) -> Call[list[PluginRecord]]:
        """Read every record."""
        return self._hash(self.keys.plugins, _records)

    def suspend(self, ids: Sequence[str], *, by: str, reason: str, for_ms: int) -> Call[Suspension]:
        """Stop the starts of at most 250 schedules for a time, but for those that a person paused."""
        assert 0 < len(ids) <= BATCH_MAX
        args = {"by": by, "reason": reason[:REASON_MAX], "for_ms": for_ms, "ids": ids}
        parse = lambda r: Suspension([SuspendCode(code) for code in texts(r[2:])], number(r[1]))  # noqa: E731
        return self._call("schedule_suspend", args, parse)

    def release(self, ids: Sequence[str], *, by: str) -> Call[list[SuspendCode]]:
        """Undo ``suspend`` by the same one, for at most 250 schedules."""
        assert 0 < len(ids) <= BATCH_MAX
        args = {"by": by, "ids": ids}
        return self._call("schedule_release", args, lambda reply: [SuspendCode(code) for code in texts(reply[1:])])


def _record(stored: Any) -> PluginRecord | None:
    at_ms, _, body = text(stored or b"").partition(" ")
    try:
        record = read_json(body, PluginRecord)
    except msgspec.DecodeError:
        return None  # there is none, or a later version wrote it
    return msgspec.structs.replace(record, at_ms=foreign_number(at_ms) or 0)


def _records(reply: Any) -> list[PluginRecord]:
    found = [record for _, stored in pairs(reply) if (record := _record(stored)) is not None]
    return sorted(found, key=lambda record: (record.plugin, record.digest))
