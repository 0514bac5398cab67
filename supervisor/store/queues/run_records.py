"""Records of a run beside its queue: steps, progress, output of its attempts, its end, counts of the runs below it.

Steps are a hash of the run, under the fence of the attempt that executes it. Progress is an expiring string. Output is
an expiring hash, with an entry for each execution. Counts are written by scripts (lua/lib/run.lua), and read here.

Guarantees
    A run that had not ended when a process asked to be told of its end, and ends by any script of this version, puts
    its id into that process's list in the script that ends it. Ids of runs whose end older versions wrote do not
    come: ask again. The record of an end is of the run's last life: whatever brings its id back to life removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.json_values import json_reader
from supervisor.store.keys import Keys
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import foreign_number, number, pairs, text, texts, unpack_json
from supervisor.store.wire.envelope import check_run_id

STEPS_MAX = 100
STEP_BYTES_MAX = 16 * 1024
STEPS_BYTES_MAX = 256 * 1024
PROGRESS_BYTES_MAX = 4096


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of a step that ended."""

    status: str
    """``done`` or ``failed``."""

    number: int
    """Which it was, from 1."""

    attempt: int
    ended_ms: int = 0
    duration_ms: int = 0
    result: Any = None
    error: str = ""
    has_spawned: bool = False
    """Whether a later attempt calls it again: runs that an attempt spawned come into being at its end alone."""


_read_step = json_reader(Step)


class StepCalls(CallBuilder):
    """Builds the calls for the steps of one run's attempt."""

    def __init__(self, keys: Keys, *, run_id: str, queue: str, fence: str, born: str) -> None:
        """Build it.

        Args:
            keys: of the cluster.
            run_id: the run.
            queue: where it is.
            fence: session, attempt and when it was fetched, parted by bars.
            born: distinguishes the run from an earlier one of the same id.
        """
        super().__init__(keys)
        self._steps, self._run = keys.steps(check_run_id(run_id)), keys.queue(queue).run
        self._run_id, self._fence, self._born = run_id, fence, born

    def read(self, *, ttl_ms: int) -> Call[dict[str, Step]]:
        """Read how steps of earlier attempts ended, by name, and keep them for so long from now on."""
        args = {"born": self._born, "ttl_ms": max(1, ttl_ms)}
        return self._call("step_read", args, _steps, keys={"steps": self._steps})

    def write(self, name: str, data: bytes, *, ttl_ms: int) -> Call[int]:
        """Note a step; 1 noted, 0: the run is another's by now, -1: too many, or too large together."""
        args = {
            "id": self._run_id, "fence": self._fence, "born": self._born, "name": name, "ttl_ms": max(1, ttl_ms),
            "steps_max": STEPS_MAX, "bytes_max": STEPS_BYTES_MAX, "step": data,
        }  # fmt: skip
        return self._call("step_write", args, int, keys={"steps": self._steps, "run": self._run})


def _steps(reply: Any) -> dict[str, Step]:
    found = {}
    for name, data in pairs(reply):
        if not text(name).startswith("#"):
            with suppress(msgspec.DecodeError):  # written by hand: it is executed again
                found[text(name)] = _read_step(data)
    return found


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


_read_item = json_reader(ProgressItem)


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
        return _read_item(reply.partition(b" ")[2]) if reply else None
    except msgspec.DecodeError:
        return None


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


_read_log = json_reader(AttemptLog)


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
        if (at := foreign_number(name)) is not None:
            with suppress(msgspec.DecodeError):  # written by hand, or by a newer version
                found[at] = _read_log(body)
    return [found[at] for at in sorted(found)]


OUTCOMES = ("ok", "dead", "cancelled", "purged", "expired", "replaced", "duplicate", "rejected")
"""How a run that another one counts can have ended. Dead: given up, until somebody requeues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The runs that a run spawned, that they spawned, and so on: exact, each by its last end."""

    total: int
    left: int
    """How many have not ended."""

    outcomes: dict[str, int]
    counts: dict[str, int] = field(default_factory=dict)
    """What they counted, summed; from the fifty-first name on under ``other``."""

    errors: int = 0
    """How many errors they told of."""

    first_errors: list[dict[str, Any]] = field(default_factory=list)
    """Run, code and message of the first hundred."""

    waiting: list[str] = field(default_factory=list)
    """Ids of the runs that start when nothing is left."""


class Tallies(CallBuilder):
    """Builds the calls."""

    def read(self, run_id: str) -> Call[Tally | None]:
        """Read the tally of a run; None when nothing is counted below it, or it expired."""
        return self._hash(self.keys.tally(check_run_id(run_id)), _tally)

    def steps(self, run_id: str) -> Call[dict[str, dict[str, Any]]]:
        """Read the steps of a run that ended, by name, in the order in which they did."""
        return self._hash(self.keys.steps(check_run_id(run_id)), _ended_steps)


def _tally(reply: Any) -> Tally | None:
    fields = {text(name): value for name, value in pairs(reply)}
    if "total" not in fields:
        return None
    numbered = ((foreign_number(name[2:]), value) for name, value in fields.items() if name.startswith("e:"))
    told = sorted((at, value) for at, value in numbered if at is not None)
    following = [text(value).split(" ", 4) for name, value in sorted(fields.items()) if name.startswith("then:")]
    return Tally(
        total=number(fields["total"]),
        left=number(fields.get("left")),
        outcomes={name: number(fields[name]) for name in OUTCOMES if number(fields.get(name))},
        counts={name[2:]: number(value) for name, value in sorted(fields.items()) if name.startswith("c:")},
        errors=number(fields.get("errors")),
        first_errors=[unpack_json(text(value).encode()) for _, value in told],
        waiting=[parts[3] for parts in following if len(parts) == 5],
    )


def _ended_steps(reply: Any) -> dict[str, dict[str, Any]]:
    found = {text(name): unpack_json(value) for name, value in pairs(reply) if not text(name).startswith("#")}
    return dict(sorted(found.items(), key=lambda item: item[1].get("number", 0)))


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


_read_end = json_reader(RunEnd)


def parse_end(data: bytes) -> RunEnd | None:
    """Return the record in ``data``; None for none, or one that no version of ours wrote."""
    try:
        return _read_end(data) if data else None
    except msgspec.DecodeError:
        return None


class RunEnds(CallBuilder):
    """Builds the calls."""

    def awaited(self, bell: str, runs: Sequence[tuple[str, str]], position: str = "0") -> Call[tuple[str, list[str]]]:
        """Ask that ``bell`` be told of the end of ``runs``; answer the queue of each, empty where it has ended.

        One that is not in its queue, and left no end, is searched in a page of all queues. The answer begins with the
        position of the next page, "0" at the end; see ``await_runs`` in run_search.py.

        Args:
            bell: of the calling process; hexadecimal digits.
            runs: queue (empty: wherever it is) and id of at most ``AWAIT_MAX``.
            position: of the page.
        """
        assert 0 < len(runs) <= AWAIT_MAX
        flat: list[Argument] = [value for run in runs for value in run]
        args = {"bell": bell, "position": position, "runs": flat}
        return self._call("runs_await", args, lambda r: (text(r[0]), texts(r[1:])))
