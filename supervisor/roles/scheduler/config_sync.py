"""Bringing the schedules of this replica's configuration into Redis, step by step, behind everything that is on time.

Guarantees
    One question to Redis for each call of ``work``; none while the set is in place, as each reading of the plan tells.
    ``is_outdated`` names schedules that this set is about to change or remove, from the first question of a term on:
    edited while nobody led, they do not fire once more as they were.
    Nothing is changed before every stored schedule was compared, so that a clash with a dynamic
    one refuses the whole set. Only differences are written. A part that Redis refuses, such as for a key of
    another type, is written and removed apart until that is isolated; it is tried again each minute, and the
    former definition stays. The set counts as applied when its
    last page is in: a crash in between leaves the rest to the next term, which compares anew.
    An older replica never removes a newer one's schedules (lua/schedules/declare_begin.lua); once no live
    replica holds those, it brings in its own within seconds, also in the same term.

Does not guarantee
    That a schedule fires while its page waits to be written, or that a set that came while its replica led is
    compared before schedules read under the former one fire.

A configuration without schedules declares nothing, unless that is allowed by name: a replica
with an empty file would otherwise silence all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, TypeVar

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.diff import settled
from supervisor.core.units import MILLISECOND_NS, NEVER_NS
from supervisor.roles.scheduler.anchors import settled_by
from supervisor.roles.scheduler.fenced_client import ask_once
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import (
    BATCH_MAX,
    Begin,
    BeginCode,
    Change,
    Changed,
    DefineCode,
    Definitions,
    page_of,
    with_followers,
)
from supervisor.store.schedules.reads import Record, RecordPage, Views, addition_of, change_of
from supervisor.store.wire.definition import pack_definition

TOLD_MAX = 20  # ids that are told by name
RETRY_NS = 1000 * MILLISECOND_NS
REFUSED_NS = 60_000 * MILLISECOND_NS
"""How long after a clash all is compared again, at once if this set removed one: what was in the way may be gone."""

AGAIN_NS = 5000 * MILLISECOND_NS  # after a newer set was found to rule: the last replica with that may go
SOON_NS = 200 * MILLISECOND_NS  # that of the former leader, which leaves the list of candidates after the lease

T = TypeVar("T")


class SyncPhase(Enum):
    """Next phase of the synchronisation."""

    BEGIN = auto()
    LEAVE = auto()
    COMPARE = auto()
    WRITE = auto()
    REMOVE = auto()
    END = auto()
    DONE = auto()


@dataclass(slots=True)
class _SyncRound:
    """One comparison of the whole set, under one term."""

    nonce: str
    phase: SyncPhase = SyncPhase.BEGIN
    revision: int = 0  # of the set
    begun_ms: int = 0  # Redis' time
    parts: int = 0  # pages and removals that were answered
    cursor: str = "0"
    now_ms: int = 0  # Redis' time at the latest comparison
    missing: dict[str, int] = field(default_factory=dict)  # ids of the set not met yet, by their place in it
    differing: list[Change] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    renamed: dict[str, Change] = field(default_factory=dict)  # by its new id, what some of ``surplus`` are now
    clashes: list[str] = field(default_factory=list)
    done: int = 0  # of ``differing``, then of ``surplus``
    width: int = BATCH_MAX  # how many of them are asked about next: halved by a refusal, doubled by an answer
    refused: list[str] = field(default_factory=list)  # what Redis refuses alone
    reason: str = ""
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def part(self, more: int = 0) -> str:
        """Return the name of the last page or removal, or of one behind it."""
        return f"{self.begun_ms} {self.parts + more}"


class ConfigSync:
    """Declares one configuration under one term after the other."""

    def __init__(
        self,
        keys: Keys,
        definitions: Sequence[ScheduleDef],
        *,
        lease_ms: int,
        clock: Clock,
        report: Reporter,
        allow_empty: bool = False,
        show_life: Callable[[], None] = lambda: None,
        stored: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._calls, self._views = Definitions(keys), Views(keys)
        self._definitions = definitions
        self._lease_ms = lease_ms
        self._clock = clock
        self._report = report
        self._show_life = show_life
        self._stored = stored  # before Redis lost it
        self._places = {each.id: place for place, each in enumerate(definitions)}
        self._heirs = {each.renamed_from: each for each in definitions}
        self._is_idle = not definitions and not allow_empty
        self._digest = "" if self._is_idle else schedules_digest(definitions)
        self._round = _SyncRound(nonce="")
        self.wake_ns = 0
        """When ``work`` has something to do: now, once Redis may answer again, or never in this term."""
        self.applied = ""  # digest of the set if it was in place under this term when Redis was last asked
        self._refused: tuple[str, ...] = ()  # the clashes that were told
        self._put_off: tuple[str, ...] = ()  # the refusals that were told
        self._told: tuple[str, BeginCode | None] = ("", None)  # the answer that was told, and in which term

    def begin(self) -> None:
        """Start a term, or ask again within one: Redis may lose its last moments unseen by the election."""
        self.wake_ns, self.applied = NEVER_NS if self._is_idle else 0, ""

    def is_asked(self, term: Term) -> bool:
        """Return whether Redis was asked under ``term`` if this set is in place."""
        return self._is_idle or self._round.nonce == term.nonce

    def is_outdated(self, schedule: str, body: bytes) -> bool:
        """Return whether this set is about to change the static ``schedule``, stored as ``body``, or to remove it."""
        if self._is_idle or self._round.phase is SyncPhase.DONE:
            return False
        place = self._places.get(schedule)
        return place is None or body != pack_definition(settled_by(self._definitions[place], body, 0))

    def is_done(self, term: Term) -> bool:
        """Return whether nothing is left to do under ``term``, for now."""
        phase = self._round.phase
        is_compared = self._round.nonce == term.nonce and phase is SyncPhase.DONE
        is_left = self._is_idle and phase is not SyncPhase.LEAVE
        return is_left or (is_compared and self._clock.elapsed_ns() < self.wake_ns)

    def work(self, term: Term) -> Steps[bool]:
        """Ask Redis one question; True when there is more to do at once.

        Raises:
            FencedError: ``term`` is not the current one.
        """
        if self._round.nonce != term.nonce:
            self._round = _SyncRound(nonce=term.nonce, phase=SyncPhase.LEAVE if self._is_idle else SyncPhase.BEGIN)
            self.wake_ns = self.wake_ns if self._is_idle else 0
        if self.is_done(term) or self._clock.elapsed_ns() < self.wake_ns:
            return False
        if self._round.phase is SyncPhase.DONE:  # some time ago
            self._round = _SyncRound(nonce=term.nonce)
        try:
            yield from _PHASES[self._round.phase](self, term)
        except (StoreUnavailableError, StoreRefusedError) as error:
            # What was asked may have had its effect; every question can be asked again, and a shorter one gets through.
            self._round.width = max(1, self._round.width // 2)
            self._report("declaring_unanswered", error=str(error))
            self.wake_ns = self._clock.elapsed_ns() + RETRY_NS
            return False
        return not self.is_done(term)

    def _begin(self, term: Term) -> Steps[None]:
        begin: Begin = yield from ask_once(self._calls.begin(term, digest=self._digest, lease_ms=self._lease_ms))
        now = self._round
        now.revision, now.begun_ms = begin.revision, begin.now_ms
        if begin.code is BeginCode.NEEDED:
            if self._told == (term.nonce, BeginCode.APPLIED):
                self._tell_lost()
            now.phase = SyncPhase.COMPARE
            now.missing = dict(self._places)
        else:
            now.phase, self._refused, self._put_off = SyncPhase.DONE, (), ()
            told, self._told = self._told, (term.nonce, begin.code)
            is_new, is_applied = told != self._told, begin.code is BeginCode.APPLIED
            self._wait(SOON_NS if is_new else AGAIN_NS, is_applied=is_applied)
            if is_new:
                self._tell(applied=is_applied)

    def _wait(self, again_ns: int, *, is_applied: bool) -> None:
        """Ask again after ``again_ns``, or if the set is in place, once a reading of the plan finds that it is not."""
        self.applied = self._digest if is_applied else ""
        self.wake_ns = NEVER_NS if is_applied else self._clock.elapsed_ns() + again_ns

    def _leave(self, term: Term) -> Steps[None]:
        """Let new dynamic schedules come that the set of before, half brought in, may keep away."""
        yield from ask_once(self._calls.end(term, digest=self._digest, is_applied=False))
        self._round.phase, self.wake_ns = SyncPhase.DONE, NEVER_NS

    def _compare(self, _term: Term) -> Steps[None]:
        now = self._round
        page: RecordPage = yield from ask_once(self._views.browse(now.cursor, count=now.width))
        for record in page.items:
            self._meet(record, page.now_ms)
        now.cursor, now.now_ms, now.width = page.cursor, page.now_ms, min(BATCH_MAX, 2 * now.width)
        if now.cursor == "0":
            places, known = now.missing.items(), self._stored
            missing = (settled_by(self._definitions[at], known.get(name, b""), page.now_ms) for name, at in places)
            now.differing += [now.renamed.get(each.id) or Change(definition=each) for each in missing]
            now.differing = with_followers(now.differing)
            now.phase = SyncPhase.END if now.clashes else SyncPhase.WRITE

    def _meet(self, record: Record, now_ms: int) -> None:
        """Compare a stored schedule with the set. One may come twice."""
        now = self._round
        place = now.missing.pop(record.id, None)
        if place is None:
            if not record.is_dynamic and record.id not in self._places:
                now.surplus.append(record.id)
                if (heir := self._heirs.get(record.id)) is not None:
                    self._show_life()
                    now.renamed[heir.id] = addition_of(settled(heir, None, now_ms), former=record)
            return
        if record.is_dynamic:
            now.clashes.append(record.id)
            return
        definition = settled_by(self._definitions[place], record.body, now_ms)
        if record.body != pack_definition(definition):
            self._show_life()
            now.differing.append(change_of(record, definition, now_ms=now_ms)[0])

    def _write(self, term: Term) -> Steps[None]:
        now = self._round
        batch = page_of(now.differing[now.done :], now.width)
        if batch:
            call = self._calls.page(term, digest=self._digest, changes=batch, wall_ms=now.now_ms, part=now.part(1))
            defined: Changed[DefineCode] | None = yield from self._part(
                call, [change.definition.id for change in batch]
            )
            if defined is not None:
                self._note(batch, defined)
            elif batch[0].definition.id in now.refused[-1:] and batch[0].definition.renamed_from in now.surplus:
                now.surplus.remove(batch[0].definition.renamed_from)  # it goes on until the new name is there
        if now.done >= len(now.differing):
            now.phase, now.done, now.width = (SyncPhase.END if now.clashes else SyncPhase.REMOVE), 0, BATCH_MAX

    def _part(self, call: Call[T], ids: Sequence[str]) -> Steps[T | None]:
        """Ask about the next of a list; None: Redis refuses that, so that fewer are next, or one is left out."""
        now = self._round
        try:
            reply: T = yield from ask_once(call)
        except StoreRefusedError as error:
            if error.concerns_client:
                raise
            now.width, now.reason = max(1, len(ids) // 2), str(error)
            if len(ids) == 1:
                now.refused.append(ids[0])
                now.done += 1
            return None
        now.width = min(BATCH_MAX, 2 * now.width)
        now.done += len(ids)
        now.parts += 1
        return reply

    def _note(self, batch: Sequence[Change], defined: Changed[DefineCode]) -> None:
        now = self._round
        lists = {DefineCode.CREATED: now.added, DefineCode.CHANGED: now.changed, DefineCode.CLASH: now.clashes}
        for change, (code, _) in zip(batch, defined.results, strict=True):
            if code in lists:
                lists[code].append(change.definition.id)

    def _remove(self, term: Term) -> Steps[None]:
        now = self._round
        batch = now.surplus[now.done : now.done + now.width]
        if batch:
            call = self._calls.remove(term, ids=batch, part=now.part(1))
            removed = yield from self._part(call, batch)
            now.removed += [name for name, was_there in zip(batch, removed or (), strict=False) if was_there]
        if now.done >= len(now.surplus):
            now.phase = SyncPhase.END

    def _end(self, term: Term) -> Steps[None]:
        now = self._round
        is_applied = not now.clashes and not now.refused
        call = self._calls.end(term, digest=self._digest, is_applied=is_applied, part=now.part())
        if not (yield from ask_once(call)):
            self._tell_lost()
            self._round = _SyncRound(nonce=now.nonce)
            return
        clashes, put_off = tuple(sorted(set(now.clashes))), tuple(now.refused)
        if (clashes, put_off) != (self._refused, self._put_off) or is_applied:
            if clashes:
                self._report("schedules_refused", clashes=list(clashes[:TOLD_MAX]), count=len(clashes))
            if put_off:
                names = list(put_off[:TOLD_MAX])
                self._report("schedules_put_off", schedules=names, count=len(put_off), reason=now.reason)
            self._tell(applied=is_applied)
        self._refused, self._put_off = clashes, put_off
        self._told = now.nonce, BeginCode.APPLIED if is_applied else None
        self._wait(0 if now.removed else REFUSED_NS, is_applied=is_applied)
        self._round = _SyncRound(nonce=now.nonce, phase=SyncPhase.DONE)  # let go of what was compared

    def _tell_lost(self) -> None:
        self._report("declaring_unanswered", error="Redis went back to before a part of the set; it is compared anew")

    def _tell(self, *, applied: bool) -> None:
        now = self._round
        lists = {"added": now.added, "changed": now.changed, "removed": now.removed}
        counts = {f"{name}_count": len(ids) for name, ids in lists.items()}
        told = {name: ids[:TOLD_MAX] for name, ids in lists.items()}
        self._report(
            "schedules_declared",
            applied=applied,
            is_refused=bool(now.clashes or now.refused),
            revision=now.revision,
            **told,
            **counts,
        )


_PHASES: dict[SyncPhase, Any] = {
    SyncPhase.BEGIN: ConfigSync._begin,  # noqa: SLF001 - its own table
    SyncPhase.LEAVE: ConfigSync._leave,  # noqa: SLF001
    SyncPhase.COMPARE: ConfigSync._compare,  # noqa: SLF001
    SyncPhase.WRITE: ConfigSync._write,  # noqa: SLF001
    SyncPhase.REMOVE: ConfigSync._remove,  # noqa: SLF001
    SyncPhase.END: ConfigSync._end,  # noqa: SLF001
}
