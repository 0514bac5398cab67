"""Output of attempts, as Redis keeps it: one expiring hash of a run, with an entry for each execution."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from supervisor.core.json_values import json_reader
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import pairs, text
from supervisor.store.wire.envelope import check_run_id


class AttemptLog(msgspec.Struct, frozen=True):
    """Output of one execution of a run: its start and its end, at most 32 KiB each, and how much lies between."""

    number: int
    """When it was fetched: of each execution another, also where a process died or a dead run was requeued."""

    attempt: int
    job: str
    queue: str
    worker: str
    """Session of the worker process."""

    started_ms: int
    updated_ms: int
    is_open: bool = False
    """Whether it was written while the attempt went on; of one that its process did not survive, that remains."""

    head: str = ""
    tail: str = ""
    cut_chars: int = 0
    """How many characters were left out between the two."""

    cut_lines: int = 0


class LogItem(NamedTuple):
    """Output of an execution, and which it is of."""

    run_id: str
    born: int
    """When the run was enqueued: distinguishes it from an earlier one of the same id."""

    number: int
    """Of the execution: when it was fetched."""

    log: bytes
    """JSON; empty: none is kept."""

    queue: str = ""
    fence: str = ""
    """Session, attempt and when it was fetched, parted by bars."""

    @property
    def packed(self) -> bytes:
        """The form in which it travels with an acknowledgement."""
        return b"%d %d %b" % (self.born, self.number, self.log)


_DECODER = json_reader(AttemptLog)


class RunLogs(CallBuilder):
    """Builds the calls."""

    def write(self, items: Sequence[LogItem]) -> Call[int]:
        """Keep the output of executions that go on; returns of how many: the others are no longer the caller's."""
        flat: list[Argument] = []
        for item in items:
            flat += [item.queue, check_run_id(item.run_id), item.fence, item.born, item.number, item.log]
        return self._call("run_log_write", {"items": flat}, int)

    def read(self, run_id: str) -> Call[list[AttemptLog]]:
        """Read what is kept of a run, the oldest execution first."""
        return self._hash(self.keys.run_log(check_run_id(run_id)), _logs)


def _logs(reply: Any) -> list[AttemptLog]:
    found: dict[int, AttemptLog] = {}
    for name, body in pairs(reply):
        if (number := text(name)).isdecimal():
            with suppress(msgspec.DecodeError):  # written by hand, or by a newer version
                found[int(number)] = _DECODER(body)
    return [found[number] for number in sorted(found)]
