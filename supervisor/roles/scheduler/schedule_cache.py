"""Schedules as this process knows them: definitions ready to fire, at most so many, and watermarks.

Guarantees
    The entry of a definition is the same as in Redis: another revision is another entry.
    Schedules that differ in their id only share everything else.
    Watermarks are remembered for the case that Redis loses them. One that is written back is never older than this
    replica's last sight of the lost data: a due time that another term decided before that is not run again by
    reason of an old watermark.
    Where another replica led since this one did, its memory is dropped. Due times between the last sight of the lost
    data and its loss may have run or not: they are not run again, but counted as lost (log of schedules, log, metrics).
    So are those that a former leader did not decide, where its lease ended before the loss: another may have led
    unseen. What waited for its jitter then is run.
    A watermark that went back is noticed with the answer that shows it, before anything is fired again by it: the
    elector would notice only with its next renewal. Also one that this replica remembers of an earlier term: those that
    led since may have found the loss, and told nobody. So is a schedule that is about to begin a second time.

Does not guarantee
    That a schedule is in here: a missing one is read when it is due.
    Any watermark for schedules that this replica is not about to define again: whether those were deleted is not known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from supervisor.core.effects import Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, TenureError
from supervisor.core.model import Envelope, Exclusion, ScheduleDef, Template, scheduled_run_id
from supervisor.core.schedules.catchup import MISSED_MAX, fire_of
from supervisor.core.schedules.checks import checks_of_definition
from supervisor.core.schedules.neighbours import Neighbours
from supervisor.core.schedules.templating import needs_rendering, render
from supervisor.core.schedules.trigger_kinds import AfterSchedule, Trigger
from supervisor.core.schedules.triggers import due_between, settled_until, trigger_of
from supervisor.roles.scheduler.fenced_client import FencedClient
from supervisor.store.schedules.fire import Schedules, Seed
from supervisor.store.wire.definition import policy_text, unpack_definition, wait_text
from supervisor.store.wire.envelope import EnvelopeTemplate, Packed, pack
from supervisor.store.wire.fire import Seen

KNOWN_MAX = 100_000
MARKS_MAX = 100_000
PAGE = 250
REMEMBERED_MS = 86_400_000
"""Within a day of its removal a schedule goes on where it was, its initial run included (lib/lives.lua)."""

_BARE = Template(job="-", kind="sync")  # type: ignore[arg-type]  # never sent: stands where none is kept
_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


class CompiledSchedule:
    """One schedule, ready to fire."""

    __slots__ = (
        "checks", "definition", "is_at_most_once", "job", "keep_ms", "packer", "policy", "revision", "takes_time",
        "template", "trigger", "wait",
    )  # fmt: skip

    def __init__(self, definition: ScheduleDef, revision: int, *, is_dynamic: bool) -> None:
        """Work out everything that a fire needs.

        Raises:
            TenureError: the definition cannot be used.
            ValueError: its runs could not be carried.
        """
        run_id = scheduled_run_id(definition.id, 0)
        pack(Envelope(id=run_id, template=definition.template, schedule=definition.id, nominal_ms=1))
        self.revision = revision
        self.trigger: Trigger = trigger_of(definition)
        self.checks = checks_of_definition(definition)
        self.wait = wait_text(definition)
        self.keep_ms = definition.retain_completed_ms if is_dynamic else None
        self.policy = policy_text(definition, self.wait, self.keep_ms)
        template = definition.template
        self.job = sys.intern(template.job)
        self.is_at_most_once = template.at_most_once
        # What is written into each run anew is only its id and its times, unless its arguments depend on them.
        self.packer = EnvelopeTemplate(template)
        self.template = template if needs_rendering(template.args) else None
        # The due times of all others are found in microseconds.
        many = definition.exclude or definition.when or definition.after or definition.checks
        self.takes_time = bool(many or self.template)
        self.definition = _stripped(definition)

    def take_source(self, body: bytes | None) -> str:
        """Take the due times of the schedule that it follows from its definition; return which one that follows."""
        assert isinstance(self.trigger, AfterSchedule)
        try:
            source = None if body is None else trigger_of(unpack_definition(body))
        except (TenureError, msgspec.DecodeError):
            source = None
        self.trigger = replace(self.trigger, source=source)
        return source.schedule if isinstance(source, AfterSchedule) else ""

    def run(
        self, schedule: str, nominal_ms: int, now_ms: int, *, cause: str = "", is_doubtful: bool = False,
        around: Neighbours | None = None,
    ) -> Packed:  # fmt: skip
        """Return the run of ``nominal_ms``, ready for its queue.

        The bytes are those of ``pack``; arguments without placeholders are encoded once: 1 µs instead of 8.

        Args:
            schedule: its id.
            nominal_ms: its due time; of the initial run, now.
            now_ms: wall clock.
            cause: empty, initial or buffered.
            is_doubtful: it may have been fired before Redis lost data.
            around: its neighbours, where the caller knows them: 3 µs to work out for a cron expression.

        Raises:
            TenureError: its arguments cannot be filled in, or it takes over 64 KiB.
        """
        run_id = f"{schedule}!initial" if cause == "initial" else f"{schedule}@{nominal_ms}"
        previous_ms, next_ms = around or self.trigger.neighbours(nominal_ms)
        envelope = Envelope(
            id=run_id, template=self.template or self.packer.template, enqueued_ms=now_ms, schedule=schedule,
            nominal_ms=nominal_ms, cause=cause, not_after_ms=self._not_after_ms(nominal_ms, now_ms),
            maybe_duplicate=is_doubtful, previous_ms=previous_ms, next_ms=next_ms,
            after=scheduled_run_id(self.follows, nominal_ms) if cause == "after" else "",
        )  # fmt: skip
        return self.packer.pack(envelope) if self.template is None else self._rendered(envelope)

    @property
    def follows(self) -> str:
        """Id of the schedule whose runs make it due; empty: it has due times of its own."""
        return "" if self.definition.after is None else self.definition.after.schedule

    def _not_after_ms(self, nominal_ms: int, now_ms: int) -> int | None:
        if (deadline := self.definition.start_deadline_ms) is None:
            return None
        return deadline + (now_ms if self.follows else fire_of(self.definition, self.trigger, nominal_ms))

    def _rendered(self, envelope: Envelope) -> Packed:
        template = envelope.template
        args = render(
            template.args, schedule=envelope.schedule or "", nominal_ms=envelope.nominal_ms or 0,
            timezone=self.definition.timezone, run=envelope.id,
            around=Neighbours(envelope.previous_ms, envelope.next_ms),
        )  # fmt: skip
        return pack(msgspec.structs.replace(envelope, template=msgspec.structs.replace(template, args=args)))


class Catalogue:
    """Known schedules by id."""

    def __init__(self, limit: int = KNOWN_MAX) -> None:
        self._limit = limit
        self._known: dict[str, CompiledSchedule] = {}
        self._shared: dict[bytes, ScheduleDef] = {}
        self._excludes: dict[tuple[Exclusion, ...], tuple[Exclusion, ...]] = {}
        self._packers: dict[tuple[bytes, bytes], EnvelopeTemplate] = {}
        self._refused: dict[str, tuple[int, str]] = {}  # schedule to the revision that cannot be used, and why

    def __len__(self) -> int:
        return len(self._known)

    def get(self, schedule: str, revision: int) -> CompiledSchedule | None:
        """Return ``schedule`` if it is known in this revision."""
        known = self._known.get(schedule)
        return known if known is not None and known.revision == revision else None

    def refusal(self, schedule: str, revision: int) -> str | None:
        """Return why this revision cannot be used; None as far as is known."""
        refused, reason = self._refused.get(schedule, (0, ""))
        return reason if refused == revision else None

    def learn(self, schedule: str, revision: int, body: bytes, *, is_dynamic: bool) -> str | None:
        """Take in a definition; return why it cannot be used, or None."""
        self.forget(schedule)
        try:
            definition = unpack_definition(body)
            if definition.exclude:  # a calendar is in many schedules
                exclude = self._excludes.setdefault(definition.exclude, definition.exclude)
                definition = msgspec.structs.replace(definition, exclude=exclude)
            _check_id(schedule, definition)
            known = CompiledSchedule(definition, revision, is_dynamic=is_dynamic)
        except msgspec.DecodeError:
            reason = "written by a newer version"
        except (TenureError, ValueError) as error:
            reason = str(error)
        else:
            self._share(known)
            self._known[schedule] = known
            if len(self._known) > self._limit:
                del self._known[next(iter(self._known))]
            return None
        self.refuse(schedule, revision, reason)
        return reason

    def followed(self, seen: Sequence[Seen]) -> dict[str, list[CompiledSchedule]]:
        """Return by schedule those of ``seen`` that follow it and have a run to start: its due times are theirs."""
        found: dict[str, list[CompiledSchedule]] = {}
        for each in seen:
            known = self.get(each.schedule, each.revision or 0) if each.waiting else None
            if known is not None and known.follows:
                found.setdefault(known.follows, []).append(known)
        return found

    def refuse(self, schedule: str, revision: int, reason: str) -> None:
        """Note why this revision cannot be used."""
        self.forget(schedule)
        self._refused[schedule] = (revision, reason)
        if len(self._refused) > self._limit:
            del self._refused[next(iter(self._refused))]

    def forget(self, schedule: str) -> None:
        """Drop the entry of ``schedule``."""
        self._known.pop(schedule, None)
        self._refused.pop(schedule, None)

    def _share(self, known: CompiledSchedule) -> None:
        """Let equal parts be one object: 100,000 schedules of a thousand kinds cost little more than their ids."""
        known.definition = self._shared.setdefault(_encode(known.definition), known.definition)
        known.packer = self._packers.setdefault(known.packer.shared, known.packer)
        for shared in (self._shared, self._packers, self._excludes):
            if len(shared) > self._limit:
                shared.clear()


class Watermarks:
    """Watermarks of the schedules, as this process decided or read them in the term that it serves."""

    def __init__(self, schedules: Schedules, client: FencedClient) -> None:
        self._schedules = schedules
        self._client = client
        self._marks: dict[str, int] = {}
        self._former: dict[str, int] = {}  # of terms before others led: none goes back behind them either
        self._begun, self._epoch = 0, 0  # of the term that is served; of the last whose marks were read or restored
        self._is_sole = False  # nobody else led since the marks were read: no process before this one either
        self.doubtful_until_ms = 0
        """Wall clock: what was due until then may have been fired before Redis went back, as answers showed."""

    def begin(self, term: Term) -> None:
        """Start a term: the memory remains valid if no other replica led in between."""
        self._is_sole = 0 < self._epoch >= self._client.board.header.foreign_epoch
        if not self._is_sole:
            self._former = dict(islice((self._former | self._marks).items(), MARKS_MAX))
            self._marks.clear()
        self._begun = term.epoch

    def remember(self, schedule: str, mark_ms: int) -> None:
        """Keep the watermark of ``schedule`` as it is now. None goes back unless Redis did."""
        known_ms = self._marks.get(schedule) or self._former.get(schedule, 0)
        if mark_ms < known_ms:
            self.doubt(known_ms)
        self._marks[schedule] = mark_ms
        if len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def read(self, seen: Sequence[Seen], catalogue: Catalogue) -> int:
        """Keep the watermarks as they were read; return ``doubtful_until_ms`` with the doubt that they show.

        A paused schedule owes what was due before. One that is to begin has decided nothing yet. One without a
        definition may be none, or all data may be lost, as readings have no fence: its plan, which has one, tells.
        """
        for each in seen:
            if each.revision is None:
                continue
            self._epoch = self._begun
            known_ms = self._marks.get(each.schedule, self._former.get(each.schedule))
            if each.pause:
                if each.mark_ms < (known_ms or 0):
                    self.remember(each.schedule, each.mark_ms)
                self.forget(each.schedule, is_paused=True)
                continue
            known = catalogue.get(each.schedule, each.revision)
            if known is None or not known.definition.run_on_create or each.counters.has_begun:
                self.remember(each.schedule, each.mark_ms)
            elif known_ms is not None and known_ms < each.mark_ms - REMEMBERED_MS * (not each.counters.is_another_life):
                self.forget(each.schedule)  # another life of its id, whose first watermark is that of its creation
            elif known_ms is not None:
                self.doubt(each.mark_ms)  # it had begun
        return self.doubtful_until_ms

    def forget(self, schedule: str, *, is_paused: bool = False) -> None:
        """Drop the memory of ``schedule``: it was deleted. Of a paused one is kept that it never goes back."""
        mark_ms = self._marks.pop(schedule, self._former.pop(schedule, 0))
        if is_paused and mark_ms and len(self._former) < MARKS_MAX:
            self._former[schedule] = mark_ms

    def doubt(self, mark_ms: int = 0) -> None:
        """Note that Redis went back. The clock of this machine may be behind the one that decided up to ``mark_ms``."""
        self.doubtful_until_ms = max(self.doubtful_until_ms, mark_ms, self._client.now_ms())

    def restore(self, term: Term, definitions: Sequence[ScheduleDef]) -> Steps[None]:
        """Write back watermarks where Redis has none, once after each loss of all data.

        Whoever leads may have died in the middle of it, before it declared a schedule. So each leader that knows of
        the loss does it, until one has declared: then Redis reports that it is over.
        """
        loss = (header := self._client.board.header).data_loss_epoch
        if not 0 < loss <= term.epoch or header.restored_epoch == loss:
            return
        known, seeded, lost = len(self._marks), 0, 0
        for start in range(0, len(definitions), PAGE):
            page = [seed for each in definitions[start : start + PAGE] if (seed := self._seed(each))]
            if not page:
                continue
            try:
                call = self._schedules.seed(term, seeds=page)
                done = yield from self._client.ask(term, call)
                if done.is_over:
                    break
                seeded, lost = seeded + done.written, lost + done.lost
                is_known = done.written == len(page)  # else Redis has marks of its own, which the plan tells
                self._marks |= {name: mark_ms for name, mark_ms, _ in page if is_known or name in self._marks}
            except StoreRefusedError as error:
                self._client.report("reading_refused", what="watermarks", error=str(error))
        header.restored_epoch, self._epoch = loss, term.epoch
        self._client.report("watermarks_seeded", seeded=seeded, known=known)
        if lost:
            self._client.report("due_times_lost", count=lost, after_ms=header.sighted_ms, until_ms=header.lost_until_ms)

    def _seed(self, definition: ScheduleDef) -> Seed | None:
        """Return the known seed of one schedule; None where nothing is known."""
        self._client.show_life()
        header = self._client.board.header
        sighted_ms, lost_until_ms = header.sighted_ms, max(header.lost_until_ms, header.sighted_ms)
        if not sighted_ms:
            return None
        mark_ms, known_until_ms = settled_until(definition, 0, sighted_ms), sighted_ms
        if self._is_sole:  # it decided whatever was decided, and has no mark of what it decided nothing about
            mark_ms, known_until_ms = self._marks.get(definition.id, mark_ms), header.held_until_ms
        if lost_until_ms <= known_until_ms:
            return Seed(definition.id, mark_ms, 0)
        until_ms = settled_until(definition, mark_ms, lost_until_ms)
        return Seed(definition.id, until_ms, due_between(definition, mark_ms, until_ms, most=MISSED_MAX))


def _check_id(schedule: str, definition: ScheduleDef) -> None:
    if definition.id != schedule or _encode(schedule) != f'"{schedule}"'.encode():
        raise ValueError(f"its definition names itself {definition.id!r}")


def _stripped(definition: ScheduleDef) -> ScheduleDef:
    """Return ``definition`` without the fields that no decision needs."""
    needs_id = definition.jitter_ms or definition.exclude
    return msgspec.structs.replace(
        definition, id=definition.id if needs_id else "", template=_BARE, labels={}, owner="", description="",
        checks=(), pause_reason="", renamed_from="",
    )  # fmt: skip
