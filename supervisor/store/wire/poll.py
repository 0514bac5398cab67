"""The turn of a worker on the wire: its call, acknowledgements to Redis, runs from it.

Made and read for each run, so these are structs without dictionaries, and most acknowledgements
are one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.model import PAYLOAD_BYTES_MAX, Envelope, Kind, Outcome
from supervisor.core.names import check_name
from supervisor.store.keys import KIND_LETTER
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import foreign_number, number, optional_number, text, texts
from supervisor.store.wire.envelope import Packed, unpack

ERROR_BYTES_MAX = 4096
TURN_MAX = 200
CHILDREN_MAX = 1000
"""Most children that the acknowledgements of one turn may carry together, and so most of one run."""

CHILDREN_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of them: what one script may keep Redis busy with."""

PAYLOADS_BYTES_MAX = 1024 * 1024
"""Beyond so many bytes a turn takes no further acknowledgement: one that is not answered is repeated as it was."""

HISTORY = 10_000
HISTORY_MAX = 1_000_000
"""Most of ``queues.history``, and the cap of whoever does not know that: turns of the queue trim to it."""

DEAD_CAP = 10_000
_CHARGES = re.compile(rb"(\d{1,15}),(\d{1,15}),(\d{1,15})")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Child:
    """A run that another one spawned: it comes into being with the acknowledgement of that one."""

    packed: Packed
    delay_ms: int
    job: str


class Ack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Acknowledgement of an attempt, with its outcome."""

    run_id: str
    queue: str
    attempt: int
    outcome: Outcome
    fetched_ms: int = 0  # of the execution, as its FetchedRun has it; one that is not told is nobody's
    schedule: str | None = None
    result: bytes | None = None  # JSON; kept for result_ttl_ms
    result_ttl_ms: int = 0
    retry_delay_ms: int = 0
    error: dict[str, Any] | None = None  # cut to 4 KiB
    started_ms: int = 0  # wall clock of the worker, for people
    ended_ms: int = 0
    history_note: str = ""
    job: str = ""  # for the history
    kind: Kind | None = None  # with GIVEBACK: the kind that the run really has
    children: tuple[Child, ...] = ()  # with OK
    left_behind: bytes | None = None  # with OK, and errors of it with DEAD: JSON of roles/worker/attempt/run_output.py
    log: bytes | None = None  # output of the attempt, by store/queues/run_records.py

    @property
    def payload_bytes(self) -> int:
        """Bytes that its result, its children and its output add to a turn."""
        own = len(self.result or b"") + len(self.left_behind or b"") + len(self.log or b"")
        return own + sum(len(child.packed.data) for child in self.children) if self.children else own


class FetchedRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that is the caller's until it acknowledges it."""

    queue: str
    envelope: Envelope
    attempt: int  # from 1
    crashes: int
    interrupts: int
    suspect: bool  # to be run alone
    fetched_ms: int = 0  # by Redis' time; with session and attempt it tells this execution from any other


class BrokenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is the caller's, and whose envelope it cannot read; to be acknowledged as dead."""

    queue: str
    run_id: str
    attempt: int
    fetched_ms: int
    reason: str


class TurnReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a turn. ``lost``: the session is not open, nothing was done, and nothing the caller holds is its."""

    lost: bool
    runs: list[FetchedRun]
    stale: list[str]  # acknowledged, but no longer the caller's
    refused: frozenset[tuple[str, str]] = frozenset()  # queue and id: acknowledged, without effect yet
    failed: str = ""  # the first key of another type that kept runs from being fetched, and its error
    next_due_ms: int | None  # by Redis' time: when the next delayed run is due
    now_ms: int
    broken: list[BrokenRun]


class TurnCalls(CallBuilder):
    """Builds the calls of a worker."""

    def turn(
        self,
        *,
        session: str,
        seq: int,
        kind: Kind,
        queues: Sequence[str | tuple[str, int]],
        want: int,
        want_suspect: bool,
        acks: Sequence[Ack] = (),
        history: int = HISTORY,
        dead_cap: int = DEAD_CAP,
    ) -> Call[TurnReply]:
        """Acknowledge, promote due runs, and fetch.

        Args:
            session: of the calling process.
            seq: grows with each turn. A turn whose reply was lost is asked again, unchanged, with the same one.
            kind: which jobs the caller can run.
            queues: where it takes runs from, each with the most that this turn may take of it; a bare name: ``want``.
            want: how many it can start, at most 200.
            want_suspect: whether it is idle and so can take one suspect run, alone, in place of others.
            acks: at most 200, with at most ``CHILDREN_MAX`` children together.
            history: how many ended attempts each queue remembers.
            dead_cap: how many dead runs each queue keeps.
        """
        assert 0 <= want <= TURN_MAX
        assert len(acks) <= TURN_MAX
        assert sum(len(ack.children) for ack in acks) <= CHILDREN_MAX
        items: list[Argument] = []
        for entry in queues:
            queue, most = (entry, want) if isinstance(entry, str) else entry
            assert most >= 0
            items += [_checked(queue), most]
        for ack in acks:
            items += acknowledgement(session, ack)
        for child in (child for ack in acks for child in ack.children):
            items += [child.packed.run_id, child.packed.queue, child.delay_ms, child.packed.data]
        args = {
            "session": session, "seq": seq, "letter": KIND_LETTER[kind], "want": want,
            "want_suspect": int(want_suspect), "history": history, "dead_cap": dead_cap, "queue_count": len(queues),
            "ack_count": len(acks), "items": items,
        }  # fmt: skip
        return self._call("turn", args, parse_turn)


def acknowledgement(session: str, ack: Ack) -> tuple[Argument, ...]:
    """Return an acknowledgement as the script takes it: most have neither result nor error, nor anything to add."""
    line, where = history_line(session, ack), _place(ack.queue, ack.fetched_ms)
    has_result = ack.result is not None and ack.result_ttl_ms > 0
    is_plain = not (has_result or ack.error or ack.schedule or ack.children or ack.retry_delay_ms or ack.kind)
    if is_plain and ack.left_behind is None and ack.log is None:
        return (line, where)
    kind = "-" if ack.kind is None else KIND_LETTER[ack.kind]
    ttl_ms = ack.result_ttl_ms if has_result else 0
    more = f"{where} {ack.schedule or '-'} {ttl_ms} {ack.retry_delay_ms} {kind} {len(ack.children)}"
    payload = pack_result(ack.run_id, ack.result or b"") if has_result else pack_error(ack.error)
    marks = (" x" if ack.left_behind is not None else "") + (" l" if ack.log is not None else "")
    return (line, more + marks, payload, *(part for part in (ack.left_behind, ack.log) if part is not None))


@lru_cache(maxsize=1024)
def _place(queue: str, fetched_ms: int) -> str:
    """Return where a run lies, and which execution of it is meant: the same for most that came together."""
    return f"{_checked(queue)} {fetched_ms}"


@lru_cache(maxsize=1024)
def _checked(queue: str) -> str:
    """Return the name of a queue; one that cannot be carried raises, as ``check_name`` does."""
    return check_name("queue", queue)


def parse_turn(reply: Any) -> TurnReply:
    """Parse the reply of a turn. A run whose envelope cannot be read is no error: the others are there."""
    now_ms = number(reply[1])
    if reply[0] == b"LOST":
        return TurnReply(lost=True, runs=[], stale=[], next_due_ms=None, now_ms=now_ms, broken=[])
    runs, broken = [], []
    fields = reply[4]
    for i in range(0, len(fields), 3):
        queue, attempts, crashes, interrupts, is_suspect, fetched_ms = _taken(fields[i + 2])
        try:
            envelope = unpack(fields[i + 1])
            if envelope.id.encode() != fields[i]:
                raise msgspec.ValidationError(f"it says that its id is {envelope.id[:80]!r}")
        except msgspec.DecodeError as error:
            broken.append(
                BrokenRun(
                    queue=queue,
                    run_id=text(fields[i]),
                    attempt=attempts + 1,
                    fetched_ms=fetched_ms or now_ms,
                    reason=str(error),
                )
            )
            continue
        run = FetchedRun(
            queue=queue,
            envelope=envelope,
            attempt=attempts + 1,
            crashes=crashes,
            interrupts=interrupts,
            suspect=is_suspect,
            fetched_ms=fetched_ms or now_ms,
        )
        runs.append(run)
    due = optional_number(reply[2])
    refused = frozenset((queue, run_id) for queue, _, run_id in (each.partition(" ") for each in texts(reply[5])))
    return TurnReply(
        lost=False, runs=runs, stale=texts(reply[3]), refused=refused, failed=text(reply[6]), next_due_ms=due,
        now_ms=now_ms, broken=broken,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _taken(what: bytes) -> tuple[str, int, int, int, bool, int]:
    """Read queue, charges, whether a run is a suspect, and when it was fetched, 0: just now; most are the same."""
    queue, *rest = text(what).split(" ")
    fetched_ms = int(rest.pop()[1:]) if rest and rest[-1].startswith("@") else 0
    is_suspect = rest[-1:] == ["s"]
    charged = rest[0].encode() if len(rest) > is_suspect else None
    return (queue, *charges(charged), is_suspect, fetched_ms)


def charges(value: bytes | None) -> tuple[int, int, int]:
    """Return the attempts, crashes and interrupts in ``value``; zeros for a run on a clean first attempt."""
    found = _CHARGES.fullmatch(value or b"")
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def fence_parts(token: bytes) -> tuple[str, int, int]:
    """Return the session, attempt and fetch time in a fence; empty and zeros when there is none."""
    session, _, rest = text(token).partition("|")
    attempt, fetched = map(foreign_number, rest.partition("|")[::2])
    return ("", 0, 0) if attempt is None or fetched is None else (session, attempt, fetched)


def pack_result(run_id: str, result: bytes) -> bytes:
    """Return ``result`` if it is within its cap.

    Raises:
        PayloadTooLargeError: it is over 64 KiB.
    """
    remedy = "store the data elsewhere and return a reference"
    PayloadTooLargeError.check(f"run {run_id}: its result", result, PAYLOAD_BYTES_MAX, remedy)
    return result


def pack_error(error: dict[str, Any] | None) -> bytes:
    """Return ``error`` as JSON of at most 4 KiB, its longest texts cut at the front: a traceback's end matters."""
    if error is None:
        return b""
    body = _encode(error)
    keep = ERROR_BYTES_MAX
    while len(body) > ERROR_BYTES_MAX and keep > 16:
        keep //= 2
        body = _encode({str(k)[:64]: _tail(v, keep) for k, v in list(error.items())[:16]})
    return body if len(body) <= ERROR_BYTES_MAX else b'{"reason":"error too large"}'


def _tail(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= keep else "…" + value[-keep:]
    return value if isinstance(value, int | float | bool) or value is None else _tail(repr(value), keep)


_NOTE_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One ended attempt, or a person's action on a run.

    ``outcome``: as its worker reported it; crashed, interrupted or lost where it was reclaimed; duplicate or
    rejected where it never began; cancel_asked, cancelled, purged, requeued or dropped where a person did it, who is
    named in ``note``.
    """

    run_id: str
    outcome: str
    attempt: int
    session: str
    started_ms: int
    ended_ms: int
    job: str
    note: str


def history_line(session: str, ack: Ack) -> str:
    """Return the line of an attempt, as ``parse_history`` reads it. The note is last: it may hold bars.

    The script reads id, outcome and attempt from it.
    """
    note = " ".join(ack.history_note.split())[:_NOTE_MAX] if ack.history_note else ""
    job = ack.job.replace("|", "/") if "|" in ack.job else ack.job
    return f"{ack.run_id}|{ack.outcome}|{ack.attempt}|{session}|{ack.started_ms}|{ack.ended_ms}|{job}|{note}"


def parse_history(reply: Any) -> list[HistoryEntry]:
    """Return the entries in the lines of a history; without those that no version of ours wrote."""
    return [entry for line in reply if (entry := _entry(text(line))) is not None]


def _entry(line: str) -> HistoryEntry | None:
    """Return the entry in ``line``; None when no version of ours wrote it."""
    parts = line.split("|", 7)
    if len(parts) != 8:
        return None
    run_id, outcome, _, session, _, _, job, note = parts
    attempt, started_ms, ended_ms = (foreign_number(parts[i]) for i in (2, 4, 5))
    if attempt is None or started_ms is None or ended_ms is None:
        return None
    return HistoryEntry(
        run_id=run_id,
        outcome=outcome,
        attempt=attempt,
        session=session,
        started_ms=started_ms,
        ended_ms=ended_ms,
        job=job,
        note=note,
    )
