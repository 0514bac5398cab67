"""Ends of runs for which somebody waits: asking to be told, and the record that such an end leaves.

Guarantees
    A run that had not ended when a process asked, and ends by any script of this version, puts its id into that
    process's list in the script that ends it. Ids of runs whose end older versions wrote do not come: ask again.
    A record is of the run's last life: whatever brings its id back to life removes the record first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisor.core.json_values import json_reader
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import texts

AWAIT_MAX = 100
"""Most runs in one call."""


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """End of an awaited run. Numbers are floats on the wire where Lua wrote them so."""

    outcome: str
    ended_ms: float = 0
    started_ms: float = 0
    enqueued_ms: float = 0
    attempt: float = 0
    job: str = ""
    args: list[str] | None = None
    """Names of its arguments; None: unknown, or none."""

    has_result: bool = False
    result_ttl_s: float = 86_400.0


_read = json_reader(RunEnd)


def parse_end(data: bytes) -> RunEnd | None:
    """Return the record in ``data``; None for none, or one that no version of ours wrote."""
    try:
        return _read(data) if data else None
    except msgspec.DecodeError:
        return None


class RunEnds(CallBuilder):
    """Builds the calls."""

    def awaited(self, bell: str, runs: Sequence[tuple[str, str]]) -> Call[list[str]]:
        """Ask that ``bell`` be told of the end of ``runs``; answer the queue of each, empty where it has ended.

        Args:
            bell: of the calling process; hexadecimal digits.
            runs: queue (empty: wherever it is) and id of at most ``AWAIT_MAX``.
        """
        assert 0 < len(runs) <= AWAIT_MAX
        flat: list[Argument] = [value for run in runs for value in run]
        return self._call("runs_await", {"bell": bell, "runs": flat}, texts)
