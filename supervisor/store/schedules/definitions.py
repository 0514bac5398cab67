"""Bringing schedules into Redis and taking them out: those of a configuration, and dynamic ones.

Guarantees
    Equal content leaves the record as it is, byte for byte. A change of timing is never
    retroactive: the watermark is then at least Redis' now. A removed schedule is remembered for a
    day, so that adding it again restores counters and pause. A revision never comes again for
    another content. A repeated call does nothing more.
    A schedule of a configuration is never replaced by a dynamic one of the same id, nor the other way.

Does not guarantee
    That the leader has seen a change when a call returns; it does within a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

from supervisor.core.election.lease import Term
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.manual_runs import CHANGED, changed_run_id, extra_run
from supervisor.store.scripts import Argument, Call, CallBuilder
from supervisor.store.wire.codec import chunks, number, pairs, text
from supervisor.store.wire.definition import pack_definition, timing_digest
from supervisor.store.wire.envelope import pack

C = TypeVar("C", bound=StrEnum)
BATCH_MAX = 250
DYNAMIC = "dynamic"
"""Stands in place of a set's digest in the record of a dynamic schedule."""


class BeginCode(StrEnum):
    """Result code of beginning a synchronisation: the need for one."""

    APPLIED = "APPLIED"  # they were the last that was, whole
    OLDER = "OLDER"  # a live candidate holds newer ones
    NEEDED = "NEEDED"


class DefineCode(StrEnum):
    """Result code of one definition."""

    CREATED = "CREATED"
    CHANGED = "CHANGED"
    UNCHANGED = "UNCHANGED"
    CONFLICT = "CONFLICT"  # its revision is not the expected one
    CLASH = "CLASH"  # a schedule of the other kind has the id
    BUSY = "BUSY"  # new, while a leader brings in its configuration: try again


class DeleteCode(StrEnum):
    """Result code of one deletion."""

    DELETED = "DELETED"
    GONE = "GONE"  # it was deleted within the last day
    UNKNOWN = "UNKNOWN"
    CONFLICT = "CONFLICT"
    CLASH = "CLASH"  # static: only a configuration without it removes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A definition to bring in, and the assumption about the stored one."""

    definition: ScheduleDef
    expected_revision: int | None = None  # dynamic only: else CONFLICT; 0: it must not exist; None: any
    seen_revision: int = 0  # the revision that ``kept_mark_ms`` was computed from
    unlisted: Sequence[str] = ()  # ``queue id`` of runs that may be unfinished, where none were listed
    kept_mark_ms: int | None = None  # lets a change of timing keep what is owed under both


def with_followers(changes: Sequence[Change]) -> list[Change]:
    """Return ``changes`` in their order, but whatever follows a renamed one of them behind that one."""
    places = {change.definition.id: place for place, change in enumerate(changes)}
    renamed = _renamed(changes)

    def way(change: Change) -> list[int]:
        found = [places[change.definition.id]]
        while (name := _followed(changes[found[-1]])) in renamed and places[name] not in found:
            found.append(places[name])
        return found[::-1]

    return sorted(changes, key=way)


def page_of(changes: Sequence[Change], most: int) -> Sequence[Change]:
    """Return the first of ``changes``, in the order of ``with_followers``, to bring in by one step.

    A renamed schedule and those that begin to follow it by its new name are brought in together, up to ``most``: an end
    between two steps would make none of them due, since they then follow only one of the two names.
    """
    renamed, end = _renamed(changes), most
    while 0 < end < len(changes) and _followed(changes[end]) in renamed:
        end -= 1
    return changes[: end or most]


def _renamed(changes: Sequence[Change]) -> set[str]:
    return {change.definition.id for change in changes if change.definition.renamed_from}


def _followed(change: Change) -> str:
    after = change.definition.after
    return "" if after is None else after.schedule


@dataclass(frozen=True, slots=True)
class Begin:
    """The answer to the question whether a configuration is in place."""

    code: BeginCode
    revision: int  # of the set: the highest that a live candidate holds rules
    now_ms: int


@dataclass(frozen=True, slots=True)
class Changed(Generic[C]):
    """Results of definitions, or of deletions, in their order."""

    results: list[tuple[C, int]]  # code, and the revision that is stored now
    now_ms: int


class Definitions(CallBuilder):
    """Builds the calls."""

    def begin(self, term: Term, *, digest: str, lease_ms: int) -> Call[Begin]:
        """Ask whether the set with ``digest`` must be brought in; if so, keep new dynamic schedules away until the end.

        Args:
            term: the caller's.
            digest: of the whole set.
            lease_ms: the lease duration; decides which candidates count as live.
        """
        args = {"epoch": term.epoch, "nonce": term.nonce, "digest": digest, "lease_ms": lease_ms}
        return self._call("declare_begin", args, _begin)

    def applied(self) -> Call[str]:
        """Read the digest of the set that is in place; empty: none is, or one is being brought in."""
        return self._hash(self.keys.schedule_sets, lambda reply: text(dict(pairs(reply)).get(b"#applied", b"")))

    def page(
        self, term: Term, *, digest: str, changes: Sequence[Change], wall_ms: int, part: str = ""
    ) -> Call[Changed[DefineCode]]:
        """Bring in at most 250 definitions of the set with ``digest``, as the ``part`` of those that ``end`` names."""
        assert len(changes) <= BATCH_MAX
        items = [value for change in changes for value in _item(change, wall_ms)]
        args = {"epoch": term.epoch, "nonce": term.nonce, "digest": digest, "part": part, "items": items}
        return self._call("declare_page", args, partial(_changed, DefineCode))

    def remove(self, term: Term, *, ids: Sequence[str], part: str = "") -> Call[list[bool]]:
        """Take out at most 250 schedules that the configuration no longer names; answer which were there."""
        assert len(ids) <= BATCH_MAX
        return self._call(
            "declare_remove",
            {"epoch": term.epoch, "nonce": term.nonce, "part": part, "ids": ids},
            lambda r: [one == "1" for one in text(r)],
        )

    def end(self, term: Term, *, digest: str, is_applied: bool, part: str = "") -> Call[bool]:
        """Note that the set with ``digest`` is brought in whole, or was refused with nothing changed.

        The call returns False where Redis went back to before ``part``, the last one: then the set is not in place.
        """
        applied = int(is_applied)
        args = {"epoch": term.epoch, "nonce": term.nonce, "digest": digest, "is_applied": applied, "part": part}
        return self._call("declare_end", args, lambda reply: number(reply) > 0)

    def upsert(self, changes: Sequence[Change], *, wall_ms: int) -> Call[Changed[DefineCode]]:
        """Create or change at most 250 dynamic schedules.

        Each is decided by itself: a CONFLICT or CLASH of one does not stop the others.

        Args:
            changes: the definitions to bring in.
            wall_ms: the caller's clock, passed to jobs that a change of timing starts.
        """
        assert 0 < len(changes) <= BATCH_MAX
        items = [value for change in changes for value in _item(change, wall_ms)]
        return self._call("schedule_upsert", {"items": items}, partial(_changed, DefineCode))

    def delete(self, ids: Sequence[tuple[str, int | None]]) -> Call[Changed[DeleteCode]]:
        """Delete at most 250 dynamic schedules, given with the revision they must have, or None for any."""
        assert 0 < len(ids) <= BATCH_MAX
        items: list[Argument] = [value for name, rev in ids for value in (name, "" if rev is None else rev)]
        return self._call("schedule_delete", {"items": items}, partial(_changed, DeleteCode))


def _item(change: Change, wall_ms: int) -> list[Argument]:
    definition = change.definition
    timing = timing_digest(definition)
    queue, extra = "", b""
    if definition.on_change == "run_now":
        run_id = changed_run_id(definition.id, timing)
        run = extra_run(definition, run_id=run_id, nominal_ms=wall_ms, cause=CHANGED, wall_ms=wall_ms)
        packed = pack(run)
        queue, extra = packed.queue, packed.data
    expected = "" if change.expected_revision is None else change.expected_revision
    kept = "" if change.kept_mark_ms is None else f"{change.seen_revision}:{change.kept_mark_ms}"
    paused = f"p{definition.pause_reason}" if definition.paused else ""
    record, unlisted = pack_definition(definition), "\n".join(change.unlisted)
    return [definition.id, timing, expected, definition.renamed_from, kept, paused, queue, extra, record, unlisted]


def _begin(reply: Any) -> Begin:
    code, revision, now = reply
    return Begin(BeginCode(text(code)), number(revision), number(now))


def _changed(codes: type[C], reply: Any) -> Changed[C]:
    return Changed([(codes(text(code)), number(revision)) for code, revision in chunks(reply[1:], 2)], number(reply[0]))
