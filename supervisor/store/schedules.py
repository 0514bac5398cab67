"""Schedules in Redis: definitions, watermarks, and the fenced fire.

Guarantees
    No (schedule, nominal time) is enqueued twice, whoever asks and however often: the
    watermark advances in the step that enqueues. Only the newest term writes.

Does not guarantee
    That a schedule fires on time, or in which order; that is the planner's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.core.model import FIRE_BATCH_MAX, Envelope, ScheduleDef
from supervisor.store.codec import (
    chunks,
    number,
    optional_number,
    pack,
    pack_definition,
    text,
    texts,
    timing_digest,
    unpack_definition,
)
from supervisor.store.keys import Keys
from supervisor.store.scripts import Argument, Call, script

DECLARE_MAX = 1000
LOG_CAP = 10_000
_PAGE = 200


class FireCode(StrEnum):
    """What became of one item."""

    FIRED = "FIRED"
    SKIPPED = "SKIPPED"  # an earlier run is unfinished: decided, nothing enqueued
    DUP = "DUP"  # the watermark is not what was expected
    STALE = "STALE"  # the definition changed or is gone
    SKEWED = "SKEWED"  # the due time is too far ahead of Redis' time


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a declaration did. ``applied`` false: a newer set rules, and nothing changed."""

    applied: bool
    revision: int
    added: list[str]
    changed: list[str]
    removed: list[str]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as Redis holds it."""

    definition: ScheduleDef
    revision: int
    mark_ms: int  # newest nominal time that was decided
    next_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """Some of the schedules. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[StoredSchedule]
    now_ms: int
    unreadable: list[str]  # ids whose definition a newer version wrote, or nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class FireItem:
    """One due time to decide."""

    schedule: str
    revision: int
    mark_ms: int  # the watermark that the planner saw
    nominal_ms: int  # the due time that runs
    new_mark_ms: int  # the latest due time
    next_ms: int | None
    missed: int
    overlap: str
    max_running: int
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class FireResult:
    """What became of an item, and the watermark now."""

    code: FireCode
    mark_ms: int


@dataclass(frozen=True, slots=True)
class FireReply:
    """One result for each item, in their order."""

    results: list[FireResult]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One decision that was made."""

    schedule: str
    nominal_ms: int
    epoch: int
    run_id: str  # empty when nothing was enqueued
    code: FireCode
    missed: int
    at_ms: int


class Schedules:
    """Builds the calls."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._prefix = {"prefix": keys.prefix}

    def declare(
        self,
        *,
        epoch: int,
        nonce: str,
        digest: str,
        definitions: Sequence[ScheduleDef],
        next_due: Mapping[str, int],
        lease_ms: int,
        is_last: bool = True,
    ) -> Call[Declared]:
        """Make the stored schedules those of the configuration whose digest is ``digest``.

        Args:
            epoch: of the caller's term.
            nonce: of the caller's term.
            digest: of the whole set, the same for all its pages.
            definitions: at most 1000; more are declared in several calls.
            next_due: schedule to its next due time, used where a schedule is new or its timing changed.
            lease_ms: the lease duration; decides which candidates count as live.
            is_last: what no page of the set named is removed with the last one.
        """
        assert len(definitions) <= DECLARE_MAX
        items: list[Argument] = []
        for definition in definitions:
            items += [
                definition.id,
                timing_digest(definition),
                next_due.get(definition.id, ""),
                pack_definition(definition),
            ]
        args = {
            "epoch": epoch,
            "nonce": nonce,
            "digest": digest,
            "lease_ms": lease_ms,
            "is_last": int(is_last),
            "items": items,
        }
        return script("schedule_declare").call(keys=self._prefix, args=args, parse=_declared)

    def page(self, cursor: str = "0") -> Call[SchedulePage]:
        """Read some of the schedules; begin with "0", end when the reply's cursor is "0"."""
        return script("schedule_page").call(keys=self._prefix, args={"cursor": cursor, "count": _PAGE}, parse=_page)

    def fire(
        self,
        *,
        epoch: int,
        nonce: str,
        items: Sequence[FireItem],
        skew_limit_ms: int = 500,
        log_cap: int = LOG_CAP,
    ) -> Call[FireReply]:
        """Decide due times: enqueue, and advance watermarks, in one step.

        Running the call raises ``FencedError`` when (epoch, nonce) is not the current term.
        A repeated call answers DUP with ``mark_ms == new_mark_ms`` for what the first one did.
        """
        assert 0 < len(items) <= FIRE_BATCH_MAX
        flat = [value for item in items for value in _fire_item(item)]
        args = {
            "epoch": epoch,
            "nonce": nonce,
            "skew_limit_ms": skew_limit_ms,
            "log_cap": log_cap,
            "items": flat,
        }
        return script("fire").call(keys=self._prefix, args=args, parse=_fired)

    def log(self, count: int, schedule: str | None = None) -> Call[list[LogEntry]]:
        """Read the newest decisions, newest first."""
        keys = {"log": self._keys.schedule_log}
        return script("schedule_log").call(keys=keys, args={"count": count, "schedule": schedule or ""}, parse=_log)


def _fire_item(item: FireItem) -> Iterator[Argument]:
    packed = pack(item.envelope)
    yield from (item.schedule, item.revision, item.mark_ms, item.nominal_ms, item.new_mark_ms)
    yield "" if item.next_ms is None else item.next_ms
    yield from (item.missed, item.overlap, item.max_running, packed.run_id, packed.queue, packed.data)


def _declared(reply: Any) -> Declared:
    applied, revision, now, *counts = (number(value) for value in reply[:6])
    ids = iter(texts(reply[6:]))
    added, changed, removed = ([next(ids) for _ in range(count)] for count in counts)
    return Declared(applied=bool(applied), revision=revision, added=added, changed=changed, removed=removed, now_ms=now)


def _page(reply: Any) -> SchedulePage:
    items, unreadable = [], []
    for schedule, stored, mark, next_ms in chunks(reply[2:], 4):
        revision, _, rest = stored.partition(b"\n")
        try:
            definition = unpack_definition(rest.split(b"\n", 2)[-1])
        except msgspec.DecodeError:
            unreadable.append(text(schedule))
            continue
        item = StoredSchedule(
            definition=definition, revision=number(revision), mark_ms=number(mark), next_ms=optional_number(next_ms)
        )
        items.append(item)
    return SchedulePage(cursor=text(reply[0]), items=items, now_ms=number(reply[1]), unreadable=unreadable)


def _fired(reply: Any) -> FireReply:
    results = [FireResult(FireCode(text(code)), number(mark)) for code, mark in chunks(reply[1:], 2)]
    return FireReply(results, number(reply[0]))


def _log(reply: Any) -> list[LogEntry]:
    return [
        LogEntry(
            schedule=text(schedule),
            nominal_ms=number(nominal),
            epoch=number(epoch),
            run_id=text(run),
            code=FireCode(text(code)),
            missed=number(missed),
            at_ms=number(at),
        )
        for schedule, nominal, epoch, run, code, missed, at in chunks(reply, 7)
    ]
