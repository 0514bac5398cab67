"""Queues: the calls that move runs. What only reads them is in ``queue_reads``.

Guarantees
    A run that was taken stays in Redis until its worker acknowledged it under its fence,
    (session, attempt). Each call may be sent twice.

Does not guarantee
    That a run's code executes once: a run whose worker vanished runs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.core.model import Envelope, Kind, Outcome, Release
from supervisor.store.codec import (
    Packed,
    charges,
    check_run_id,
    chunks,
    number,
    optional_number,
    pack,
    pack_error,
    pack_result,
    text,
    texts,
    unpack,
)
from supervisor.store.keys import KIND_LETTER, check_name
from supervisor.store.queue_reads import QueueReads
from supervisor.store.scripts import Argument, Call, script
from supervisor.store.sessions import check_session

ENQUEUE_MAX = 500
TURN_MAX = 200
CHILDREN_MAX = 1000
"""Most children that the acknowledgements of one turn may carry together, and so most of one run."""

CHILDREN_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of them: what one script may keep Redis busy with."""

RELEASE_MAX = 200
HISTORY = 10_000
DEAD_CAP = 10_000
_NOTE_MAX = 200


@dataclass(frozen=True, slots=True)
class Child:
    """A run that another one spawned: it comes into being with the acknowledgement of that one."""

    packed: Packed
    delay_ms: int
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """How an attempt ended, as its worker reports it."""

    run_id: str
    queue: str
    attempt: int
    outcome: Outcome
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

    @property
    def children_bytes(self) -> int:
        """How much its children add to a turn."""
        return sum(len(child.packed.data) for child in self.children)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRun:
    """A run that is the caller's until it acknowledges it."""

    queue: str
    envelope: Envelope
    attempt: int  # from 1
    crashes: int
    interrupts: int
    suspect: bool  # to be run alone
    fetched_ms: int = field(default=0, compare=False)  # by Redis' time; a repeated reply has another


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRun:
    """A run that is the caller's, and whose envelope it cannot read; to be acknowledged as dead."""

    queue: str
    run_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReply:
    """What a turn brought. ``lost``: the session is not open, nothing was done, and nothing the caller holds is its."""

    lost: bool
    runs: list[FetchedRun]
    stale: list[str]  # acknowledged, but no longer the caller's
    next_due_ms: int | None  # by Redis' time: when the next delayed run is due
    now_ms: int
    broken: list[BrokenRun]


@dataclass(frozen=True, slots=True)
class UnwantedRun:
    """A run that must give way to a newer one of its schedule."""

    queue: str
    run_id: str
    session: str
    is_killed: bool  # its time to stop is over: Redis has let go of it already


@dataclass(frozen=True, slots=True)
class HeldPage:
    """Some of the runs that a session holds. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[tuple[str, int]]  # run id, attempt


@dataclass(frozen=True, slots=True)
class OrphanPage:
    """Some of the runs that no open or dying session holds. ``cursor`` "0": the last page."""

    cursor: str
    items: list[tuple[str, str, int]]  # session, run id, attempt


class Queues(QueueReads):
    """Builds the calls."""

    def enqueue(
        self, *, nonce: str, envelopes: Sequence[Envelope], delays_ms: Sequence[int] | None = None
    ) -> Call[list[bool]]:
        """Put runs into their queues; the reply says for each whether it is new.

        Args:
            nonce: of this call, drawn once and kept for its retries, at most ten minutes.
            envelopes: at most 500.
            delays_ms: how long each waits before it may start.

        Raises:
            PayloadTooLargeError: an envelope is over 64 KiB.
            ValueError: an id or a queue name cannot be carried.
        """
        assert nonce
        assert 0 < len(envelopes) <= ENQUEUE_MAX
        delays = [0] * len(envelopes) if delays_ms is None else delays_ms
        runs: list[Argument] = []
        for envelope, delay in zip(envelopes, delays, strict=True):
            assert delay >= 0
            packed = pack(envelope)
            runs += [packed.run_id, packed.queue, delay, packed.data]
        args = {"nonce": nonce, "runs": runs}
        return script("enqueue").call(keys=self._prefix, args=args, parse=lambda r: [digit == 0x31 for digit in r])

    def turn(
        self,
        *,
        session: str,
        seq: int,
        kind: Kind,
        queues: Sequence[str],
        want: int,
        want_suspect: bool,
        acks: Sequence[Ack] = (),
        history: int = HISTORY,
        dead_cap: int = DEAD_CAP,
    ) -> Call[TurnReply]:
        """Acknowledge, promote what is due, and fetch.

        Args:
            session: of the calling process.
            seq: grows with each turn. A turn whose reply was lost is asked again, unchanged, with the same one.
            kind: which jobs the caller can run.
            queues: where it takes runs from.
            want: how many it can start, at most 200.
            want_suspect: whether it is idle and so can take one suspect run, alone, in place of others.
            acks: at most 200, with at most ``CHILDREN_MAX`` children together.
            history: how many ended attempts each queue remembers.
            dead_cap: how many dead runs each queue keeps.
        """
        assert 0 <= want <= TURN_MAX
        assert len(acks) <= TURN_MAX
        assert sum(len(ack.children) for ack in acks) <= CHILDREN_MAX
        items: list[Argument] = [check_name("queue", queue) for queue in queues]
        for ack in acks:
            items.extend(_ack(check_session(session), ack))
        for child in (child for ack in acks for child in ack.children):
            items += [child.packed.run_id, child.packed.queue, child.delay_ms, child.packed.data]
        args = {
            "session": session,
            "seq": seq,
            "kind": KIND_LETTER[kind],
            "want": want,
            "want_suspect": int(want_suspect),
            "history": history,
            "dead_cap": dead_cap,
            "queue_count": len(queues),
            "ack_count": len(acks),
            "items": items,
        }
        return script("turn").call(keys=self._prefix, args=args, parse=_turn)

    def release_runs(
        self,
        *,
        session: str,
        items: Sequence[tuple[str, str, Release]],
        dead_cap: int = DEAD_CAP,
        history: int = HISTORY,
    ) -> Call[int]:
        """Give back runs that ``session`` holds, as (queue, run id, why); returns how many it still held.

        Condemn the session first: only then is it certain that its worker does not acknowledge them meanwhile.
        """
        assert 0 < len(items) <= RELEASE_MAX
        args = {
            "session": session,
            "history": history,
            "dead_cap": dead_cap,
            "items": [str(value) for item in items for value in item],
        }
        return script("release_runs").call(keys=self._prefix, args=args, parse=int)

    def held(self, *, session: str, queue: str, cursor: str = "0") -> Call[HeldPage]:
        """Read which runs of ``queue`` a session holds; begin with "0", end when the reply's cursor is "0"."""
        assert session
        args = {"session": session, "queue": check_name("queue", queue), "cursor": cursor}
        return script("held").call(keys=self._prefix, args=args, parse=_held)

    def orphans(self, *, queue: str, cursor: str = "0") -> Call[OrphanPage]:
        """Read which runs of ``queue`` belong to sessions that are neither open nor dying."""
        args = {"session": "", "queue": check_name("queue", queue), "cursor": cursor}
        return script("held").call(keys=self._prefix, args=args, parse=_orphans)

    def unwanted(self, sessions: Sequence[str]) -> Call[list[UnwantedRun]]:
        """Read which runs of ``sessions`` must give way, and forget what was asked of others that are gone."""
        parse = lambda reply: [  # noqa: E731 - one expression
            UnwantedRun(text(queue), text(run_id), text(session), how == b"kill")
            for queue, run_id, how, session in chunks(reply, 4)
        ]
        return script("queue_unwanted").call(keys=self._prefix, args={"sessions": list(sessions)}, parse=parse)

    def trim(
        self, queue: str, *, history: int = HISTORY, dead_cap: int = DEAD_CAP, dead_before_ms: int = 0
    ) -> Call[int]:
        """Drop old history and dead runs; returns how many entries went, at most 500 dead runs a call."""
        args = {
            "queue": check_name("queue", queue),
            "history": history,
            "dead_cap": dead_cap,
            "dead_before_ms": dead_before_ms,
        }
        return script("queue_trim").call(keys=self._prefix, args=args, parse=int)


def _ack(session: str, ack: Ack) -> Iterator[Argument]:
    has_result = ack.result is not None and ack.result_ttl_ms > 0
    yield from (check_run_id(ack.run_id), check_name("queue", ack.queue), ack.attempt, ack.outcome.value)
    yield ack.schedule or ""
    yield pack_result(ack.run_id, ack.result or b"") if has_result else b""
    yield ack.result_ttl_ms if has_result else 0
    yield from (ack.retry_delay_ms, pack_error(ack.error), _line(session, ack))
    yield "" if ack.kind is None else KIND_LETTER[ack.kind]
    yield len(ack.children)


def _line(session: str, ack: Ack) -> str:
    """Return the history line; ``queue_reads.HistoryEntry`` is its other half. The note is last: it may hold bars."""
    note = " ".join(ack.history_note.split())[:_NOTE_MAX]
    times = (ack.started_ms, ack.ended_ms)
    return "|".join(
        str(part)
        for part in (ack.run_id, ack.outcome.value, ack.attempt, session, *times, ack.job.replace("|", "/"), note)
    )


def _turn(reply: Any) -> TurnReply:
    if reply[0] == b"LOST":
        return TurnReply(lost=True, runs=[], stale=[], next_due_ms=None, now_ms=number(reply[1]), broken=[])
    runs, broken = [], []
    now_ms = number(reply[1])
    for run_id, queue, data, charged, suspect in chunks(reply[4], 5):
        attempts, crashes, interrupts = charges(charged)
        try:
            envelope = unpack(data)
        except msgspec.DecodeError as error:
            broken.append(BrokenRun(queue=text(queue), run_id=text(run_id), attempt=attempts + 1, reason=str(error)))
            continue
        run = FetchedRun(
            queue=text(queue),
            envelope=envelope,
            attempt=attempts + 1,
            crashes=crashes,
            interrupts=interrupts,
            suspect=suspect == b"1",
            fetched_ms=now_ms,
        )
        runs.append(run)
    due = optional_number(reply[2])
    return TurnReply(lost=False, runs=runs, stale=texts(reply[3]), next_due_ms=due, now_ms=now_ms, broken=broken)


def _held(reply: Any) -> HeldPage:
    return HeldPage(text(reply[0]), [(text(run_id), number(at)) for _, run_id, at in chunks(reply[1:], 3)])


def _orphans(reply: Any) -> OrphanPage:
    return OrphanPage(
        text(reply[0]), [(text(who), text(run_id), number(at)) for who, run_id, at in chunks(reply[1:], 3)]
    )
