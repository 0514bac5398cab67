"""Backfills: requests to run due times of a schedule's past, and their progress.

Guarantees
    Enqueueing and the advance of the cursor are one step of the current term, so a crash of the
    leader, a lost reply or an old term neither doubles nor loses a nominal time.
    Enqueued runs are remembered for seven days, at most 10,000 of one schedule.

Does not guarantee
    Anything about nominal times after the watermark: the schedule itself still decides those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.core.election.lease import Term
from supervisor.core.json_values import read_json
from supervisor.core.model import Envelope
from supervisor.core.schedules.backfill import STRETCHES_MAX, EnqueuedSpan, SchedulePast
from supervisor.store.schedules.reads import LOST, REASONS, Inspection, ScheduleState
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import cut, pairs, text
from supervisor.store.wire.envelope import pack

STEP_MAX = 100
MEMORY_MS = 7 * 86_400_000
REMEMBERED_MAX = 10_000
OVERLAPS = ("allow", "skip", "buffer_all")


class BackfillState(StrEnum):
    """State of a backfill."""

    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AddCode(StrEnum):
    """Result code of adding a backfill."""

    ADDED = "ADDED"
    UNKNOWN = "UNKNOWN"
    FULL = "FULL"  # too many are under way or remembered
    CAPPED = "CAPPED"  # too many runs of this schedule would have to be remembered


class StepCode(StrEnum):
    """Result code of a step."""

    STEPPED = "STEPPED"
    BLOCKED = "BLOCKED"  # the next nominal time waits for an earlier run, or is the schedule's own
    OVER = "OVER"
    MOVED = "MOVED"  # the cursor is not the one that was seen
    STALE = "STALE"
    GONE = "GONE"


class BackfillCancelCode(StrEnum):
    """Result code of a cancellation."""

    CANCELLED = "CANCELLED"
    OVER = "OVER"
    UNKNOWN = "UNKNOWN"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requested backfill."""

    v: int = 1
    from_ms: int  # inclusive, as until_ms
    until_ms: int
    overlap: str = "allow"
    by: str = ""
    at_ms: int = 0
    revision: int = 0  # of the schedule, and no other: who asked was judged by it; 0: any

    def __post_init__(self) -> None:
        """Take no more of who asked than is shown."""
        msgspec.structs.force_setattr(self, "by", cut(self.by))


_NUMBERS = ("cursor_ms", "enqueued", "skipped", "updated_ms", "limit", "number")
"""Fields of a backfill between its state and whether it is forced, in the order of its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A request and how far it got."""

    id: str
    schedule: str
    state: BackfillState
    cursor_ms: int  # nominal times up to this one are done
    enqueued: int
    skipped: int  # known to have run, or held up by ``overlap: skip``
    updated_ms: int
    limit: int  # at most so many runs
    number: int  # of this request, in the ids of forced runs
    is_forced: bool
    note: str
    request: Request


@dataclass(frozen=True, slots=True)
class Stepped:
    """Result of a step, and the record now."""

    code: StepCode
    backfill: Backfill | None


class BackfillCalls(CallBuilder):
    """Builds the calls."""

    def add(self, backfill: str, schedule: str, request: Request, *, limit: int, is_forced: bool) -> Call[AddCode]:
        """Ask for the runs of the past of ``schedule``. A repeated call is the same request."""
        assert request.overlap in OVERLAPS
        args = {
            "backfill": backfill, "schedule": schedule, "cursor_ms": request.from_ms - 1, "limit": limit,
            "is_forced": int(is_forced), "keep_ms": MEMORY_MS, "memory": REMEMBERED_MAX,
            "json": msgspec.json.encode(request),
        }  # fmt: skip
        return self._call("backfill_add", args, lambda reply: AddCode(text(reply[0])))

    def all(self) -> Call[list[Backfill]]:
        """Read every request of the last seven days, newest last."""
        return self._hash(self.keys.schedule_backfills, _all)

    def step(
        self,
        backfill: Backfill,
        *,
        term: Term,
        cursor_ms: int,
        revision: int,
        envelopes: Sequence[Envelope],
        skipped: int,
        max_running: int,
        state: BackfillState = BackfillState.ACTIVE,
        note: str = "",
    ) -> Call[Stepped]:
        """Enqueue ``envelopes``, at most 100 in nominal order, and advance the cursor to ``cursor_ms``.

        Args:
            backfill: as it was read: the step counts only if its cursor is still the same.
            term: the caller's.
            cursor_ms: nominal times up to this one are then done.
            revision: of the definition that the runs were made from.
            envelopes: one for each nominal time to run.
            skipped: how many nominal times up to the cursor are known to have run.
            max_running: of the definition.
            state: the state of the backfill then.
            note: for people, on one line.
        """
        assert len(envelopes) <= STEP_MAX
        args = {
            "epoch": term.epoch, "nonce": term.nonce, "backfill": backfill.id, "seen_ms": backfill.cursor_ms,
            "cursor_ms": cursor_ms, "state": state.value, "note": " ".join(note.split())[:500], "revision": revision,
            "overlap": backfill.request.overlap, "max_running": max_running, "memory_ms": MEMORY_MS,
            "skipped_before": skipped, "items": [value for envelope in envelopes for value in _item(envelope)],
        }  # fmt: skip
        parse = lambda r: Stepped(StepCode(text(r[0])), unpack_backfill(backfill.id, r[2]))  # noqa: E731
        return self._call("backfill_step", args, parse)

    def cancel(self, backfill: str) -> Call[tuple[BackfillCancelCode, Backfill | None]]:
        """Stop a backfill: its enqueued runs stay, nothing more follows."""
        parse = lambda r: (BackfillCancelCode(text(r[0])), unpack_backfill(backfill, r[1]))  # noqa: E731
        return self._call("backfill_cancel", {"backfill": backfill}, parse)

    def ran(self, run_ids: Sequence[str]) -> Call[list[bool]]:
        """Read which of these runs were enqueued by a backfill or a keyed trigger and are remembered."""
        return self._call("runs_remembered", {"ids": run_ids}, lambda reply: [digit == "1" for digit in text(reply)])


def _item(envelope: Envelope) -> list[Argument]:
    packed = pack(envelope)
    assert envelope.nominal_ms is not None
    return [envelope.nominal_ms, packed.run_id, packed.queue, packed.data]


def _all(reply: Any) -> list[Backfill]:
    found = [unpack_backfill(text(name), stored) for name, stored in pairs(reply)]
    return sorted((each for each in found if each is not None), key=lambda each: each.number)


def unpack_backfill(name: str, stored: bytes) -> Backfill | None:
    """Return the backfill in ``stored``; None where this version cannot read it."""
    head, _, rest = stored.partition(b"\n")
    note, _, body = rest.partition(b"\n")
    words = text(head).split(" ")
    if len(words) != 9:
        return None
    state, *numbers, forced, schedule = words
    try:
        return Backfill(
            id=name,
            schedule=schedule,
            state=BackfillState(state),
            **dict(zip(_NUMBERS, map(int, numbers), strict=True)),
            is_forced=forced == "1",
            note=cut(text(note)),
            request=read_json(body, Request),
        )
    except (msgspec.DecodeError, ValueError):
        return None


_RUNS = {"F", "U"}  # under the id of their nominal time; the initial run has one of its own


def known_of(inspection: Inspection) -> SchedulePast:
    """Return the remembered past of a schedule that exists."""
    assert inspection.record is not None
    stretches = ScheduleState.parse(inspection.state).stretches
    return SchedulePast(
        revision=inspection.record.revision,
        mark_ms=inspection.record.mark_ms,
        enqueued=tuple(
            EnqueuedSpan(each.from_ms, each.to_ms, each.count, each.revision)
            for each in stretches
            if each.code in _RUNS
        ),
        # One that was missed begins behind ``from_ms``: that due time was decided by an older stretch, now forgotten.
        since_ms=min(each.from_ms + (each.code == "M") for each in stretches)
        if len(stretches) >= STRETCHES_MAX
        else None,
        lost=tuple(
            (each.from_ms - (each.code != "M"), each.to_ms) for each in stretches if REASONS[LOST] in each.reasons
        ),
        waiting=frozenset(inspection.first_buffered_ms),
    )
