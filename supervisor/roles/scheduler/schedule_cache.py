"""The warm index: definitions as the scheduler uses them, at most so many.

Guarantees
    Its entry for a revision is the same as in Redis: another revision is another entry.
    Schedules that differ in their id only share everything else.

Does not guarantee
    That a schedule is in here. A missing one is read when it is due.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from supervisor.core.errors import TenureError
from supervisor.core.model import Envelope, Exclusion, ScheduleDef, Template, scheduled_run_id
from supervisor.core.schedules.catchup import fire_of
from supervisor.core.schedules.checks import checks_of_definition
from supervisor.core.schedules.neighbours import Neighbours
from supervisor.core.schedules.templating import needs_rendering, render
from supervisor.core.schedules.trigger_kinds import AfterSchedule, Trigger
from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.wire.definition import unpack_definition
from supervisor.store.wire.envelope import EnvelopeTemplate, Packed, pack
from supervisor.store.wire.fire import Seen, policy_text, wait_text

KNOWN_MAX = 100_000
_BARE = Template(job="-", kind="sync")  # type: ignore[arg-type]  # never sent: stands where none is kept
_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


class CompiledSchedule:
    """One schedule, ready to fire."""

    __slots__ = (
        "checks", "definition", "is_at_most_once", "job", "keep_ms", "packer", "policy", "revision", "template",
        "trigger", "wait",
    )  # fmt: skip

    def __init__(self, definition: ScheduleDef, revision: int, *, is_dynamic: bool) -> None:
        """Work out everything that a fire needs.

        Raises:
            TenureError: the definition cannot be used.
            ValueError: its runs could not be carried.
        """
        trial = Envelope(
            id=scheduled_run_id(definition.id, 0), template=definition.template, schedule=definition.id, nominal_ms=1
        )
        pack(trial)
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
        self.definition = _stripped(definition)

    def take_source(self, body: bytes | None) -> None:
        """Take the due times of the schedule that it follows from its definition; None: there is none."""
        assert isinstance(self.trigger, AfterSchedule)
        try:
            source = None if body is None else trigger_of(unpack_definition(body))
        except (TenureError, msgspec.DecodeError):
            source = None
        self.trigger = replace(self.trigger, source=source)

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
        deadline = self.definition.start_deadline_ms
        if deadline is None:
            return None
        return deadline + (now_ms if self.follows else fire_of(self.definition, self.trigger, nominal_ms))

    def _rendered(self, envelope: Envelope) -> Packed:
        template = envelope.template
        args = render(
            template.args,
            schedule=envelope.schedule or "",
            nominal_ms=envelope.nominal_ms or 0,
            timezone=self.definition.timezone,
            run=envelope.id,
            around=Neighbours(envelope.previous_ms, envelope.next_ms),
        )
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


def _check_id(schedule: str, definition: ScheduleDef) -> None:
    if definition.id != schedule or _encode(schedule) != f'"{schedule}"'.encode():
        raise ValueError(f"its definition names itself {definition.id!r}")


def _stripped(definition: ScheduleDef) -> ScheduleDef:
    """Return ``definition`` without the fields that no decision needs."""
    needs_id = definition.jitter_ms or definition.exclude
    return msgspec.structs.replace(
        definition,
        id=definition.id if needs_id else "",
        template=_BARE,
        labels={},
        owner="",
        description="",
        checks=(),
        pause_reason="",
        renamed_from="",
    )
