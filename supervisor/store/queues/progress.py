"""Progress of runs, as their jobs report it: one expiring string for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.json_values import json_reader
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.envelope import check_run_id

PROGRESS_BYTES_MAX = 4096


class ProgressItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Latest progress of one run, as its job reported it. Of ``value`` and (``done``, ``total``) one is given."""

    run_id: str
    fence: int
    """Of the execution that said it; a smaller one does not replace it."""

    attempt: int
    at_ms: int
    """By the worker's wall clock."""

    value: Any = None
    done: float | None = None
    total: float | None = None
    note: str = ""
    ttl_ms: int = 86_400_000
    """How long it is kept after it was written."""


_DECODER = json_reader(ProgressItem)


def pack_progress(item: ProgressItem) -> bytes:
    """Return ``item`` as JSON.

    Raises:
        PayloadTooLargeError: it is over 4 KiB.
        TypeError: its value is no JSON.
    """
    body = msgspec.json.encode(item)
    remedy = "report a summary, and store the rest elsewhere"
    PayloadTooLargeError.check(f"run {item.run_id}: its progress", body, PROGRESS_BYTES_MAX, remedy)
    return body


class Progresses(CallBuilder):
    """Builds the calls."""

    def write(self, items: Sequence[ProgressItem]) -> Call[int]:
        """Write them; returns how many were not older than the stored ones. At most 200."""
        assert 0 < len(items) <= 200
        flat: list[Argument] = []
        for item in items:
            flat += [check_run_id(item.run_id), item.fence, max(1, item.ttl_ms), pack_progress(item)]
        return self._call("progress_write", {"items": flat}, int)

    def read(self, run_id: str) -> Call[ProgressItem | None]:
        """Read the latest progress of a run; None when there was none, or it expired."""
        return self._call("progress_read", {}, _item, keys={"progress": self.keys.progress(check_run_id(run_id))})


def _item(reply: bytes | None) -> ProgressItem | None:
    try:
        return _DECODER(reply.partition(b" ")[2]) if reply else None
    except msgspec.DecodeError:
        return None
