"""Operator actions on a schedule: pause, resume, trigger.

Guarantees
    All times are Redis'. A pause is kept beside the definition: neither a reload nor an edit ends it.
    A trigger with a key runs once, however often it is asked for within a day. It moves nothing of
    the plan, and works while the schedule is paused or completed.

Does not guarantee
    That a pause stops a run that has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from supervisor.core.model import Envelope
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, number, optional_number, text
from supervisor.store.wire.envelope import pack

BATCH_MAX = 250
REASON_MAX = 500
TRIGGER_MEMORY_MS = 24 * 3_600_000
RETRY_MEMORY_MS = 600_000
"""How long a trigger without a key is remembered, for its own retries: nobody else knows its id."""

KEYED_MAX = 10_000
"""Triggers with a key of one schedule, within a day: each is remembered for so long."""


class PauseCode(StrEnum):
    """Result code of a pause request for one schedule."""

    PAUSED = "PAUSED"
    KEPT = "KEPT"  # it was paused for longer, and still is
    UNKNOWN = "UNKNOWN"
    STALE = "STALE"  # it is not the definition that the request was judged by


class ResumeCode(StrEnum):
    """Result code of a resume request for one schedule."""

    RESUMED = "RESUMED"
    RUNNING = "RUNNING"  # it was not paused
    UNKNOWN = "UNKNOWN"
    STALE = "STALE"  # as of a pause


class TriggerCode(StrEnum):
    """Result code of a trigger."""

    TRIGGERED = "TRIGGERED"
    DUPLICATE = "DUPLICATE"  # this run was enqueued before
    TAKEN = "TAKEN"  # a run that the schedule did not make has its id
    SKIPPED = "SKIPPED"  # an earlier run is unfinished, and it was asked to heed that
    CAPPED = "CAPPED"  # KEYED_MAX runs of the schedule are remembered
    STALE = "STALE"  # the definition changed: make the run anew
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Paused:
    """Results of a pause, in the order asked, each with the end of the pause that the schedule has."""

    results: list[tuple[PauseCode, int | None]]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Results of a resume, in the order asked, each with the watermark.

    With jitter the leader moves it on when it looks: it tells what still waits.
    """

    results: list[tuple[ResumeCode, int]]
    now_ms: int


class Control(CallBuilder):
    """Builds the calls."""

    def pause(
        self,
        ids: Sequence[str],
        *,
        reason: str = "",
        by: str = "",
        until_ms: int | None = None,
        for_ms: int | None = None,
        revision: int | None = None,
        is_selected: bool = False,
    ) -> Call[Paused]:
        """Stop the scheduled and buffered starts of at most 250 schedules, static or dynamic.

        The call may be sent again: a pause that was ended since stays ended, and none lasts longer.
        A pause that ends by itself does not replace the definition's, which goes on when it has ended.

        Args:
            ids: which.
            reason: for people, cut at 500 characters.
            by: who asks.
            until_ms: when the pause ends by itself; must lie ahead of Redis' now.
            for_ms: or how long it lasts, counted by Redis.
            revision: STALE for each whose stored definition has another one; None: any.
            is_selected: they were selected, not named: none whose pause lasts longer is paused for less.
        """
        assert 0 < len(ids) <= BATCH_MAX
        assert until_ms is None or for_ms is None
        args = {
            "reason": reason[:REASON_MAX], "by": by[:REASON_MAX], "until_ms": "" if until_ms is None else until_ms,
            "for_ms": "" if for_ms is None else for_ms, "nonce": uuid4().hex,
            "revision": "" if revision is None else revision, "selected": int(is_selected), "ids": ids,
        }  # fmt: skip
        return self._call("schedule_pause", args, _paused)

    def resume(self, ids: Sequence[str], *, revision: int | None = None) -> Call[Resumed]:
        """End the pause of at most 250 schedules. Due times in it are dropped, unless ``on_resume`` is catchup.

        Args:
            ids: which.
            revision: as of ``pause``.
        """
        assert 0 < len(ids) <= BATCH_MAX
        return self._call("schedule_resume", {"revision": "" if revision is None else revision, "ids": ids}, _resumed)

    def drop_buffered(self, ids: Sequence[str]) -> Call[list[int]]:
        """Drop the due times that wait in the buffers of at most 250 schedules; answer how many of each."""
        assert 0 < len(ids) <= BATCH_MAX
        return self._call("schedule_drop", {"ids": ids}, lambda reply: [number(count) for count in reply])

    def trigger(
        self,
        envelope: Envelope,
        *,
        revision: int,
        heeds_overlap: bool = False,
        max_running: int = 1,
        is_keyed: bool = True,
    ) -> Call[TriggerCode]:
        """Enqueue ``envelope`` now, unless a run of its id was within a day.

        Args:
            envelope: made from the definition with ``revision``.
            revision: STALE if the stored one is another.
            heeds_overlap: not while ``max_running`` runs of the schedule are unfinished; it then counts as one too.
            max_running: of the definition.
            is_keyed: its id has a key that a caller chose; else it is remembered for ten minutes, and not counted.
        """
        packed = pack(envelope)
        assert envelope.schedule is not None
        args = {
            "schedule": envelope.schedule, "revision": revision, "overlap": "skip" if heeds_overlap else "allow",
            "max_running": max_running, "memory_ms": TRIGGER_MEMORY_MS if is_keyed else RETRY_MEMORY_MS,
            "run": packed.run_id, "queue": packed.queue, "cap": KEYED_MAX if is_keyed else 0, "data": packed.data,
        }  # fmt: skip
        return self._call("schedule_trigger", args, lambda reply: TriggerCode(text(reply[0])))


def _paused(reply: Any) -> Paused:
    results = [(PauseCode(text(code)), optional_number(until)) for code, until in chunks(reply[1:], 2)]
    return Paused(results, number(reply[0]))


def _resumed(reply: Any) -> Resumed:
    results = [(ResumeCode(text(code)), number(mark)) for code, mark in chunks(reply[1:], 2)]
    return Resumed(results, number(reply[0]))
