"""Output of an attempt beside its result: counts, errors, steps; child runs, and runs that follow (adr/0018).

Guarantees
    It travels with the acknowledgement of the attempt, so it counts once or not at all (adr/0030). Of an attempt that
    gave its run up, only the errors do.
    Names and sizes are checked where the job gives them, arguments where it spawns: it hears of its mistake.
    A child's id follows from its parent's: the parent's id, a slash, and the child's key or number. So an
    attempt that is repeated spawns the same children, and never a second set beside the first.
    A child is counted by its parent, exactly once, whatever becomes of it.

Does not guarantee
    Anything of an attempt that does not finish: its spawned runs never existed.
    More than ``ERRORS_MAX`` errors by their text: all of them are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, replace
from itertools import count
from typing import Any, Unpack

import msgspec

from supervisor.core.durations import Duration, delay_to_ms
from supervisor.core.errors import PayloadTooLargeError, TenureError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import PRIORITIES, Envelope
from supervisor.core.schedules.neighbours import ALONE, Neighbours
from supervisor.store.producer.options import Args, ChildOptions, JobRef
from supervisor.store.producer.tracing import traceparent_of
from supervisor.store.wire.envelope import pack, unpack
from supervisor.store.wire.poll import CHILDREN_BYTES_MAX, CHILDREN_MAX, Child
from supervisor.telemetry.masking import mask_text, text_of

NAMES_MAX = 32
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
COUNT_MAX = 10**15
ERRORS_MAX = 100
CODE_CHARS_MAX = 64
MESSAGE_CHARS_MAX = 300
KEEP_MS_MIN = 60_000
FOLLOW_WHEN = ("complete", "success")
KEY = re.compile(r"[!-+\-./0-9:-{}~]{1,200}", re.ASCII)
RUN_ID_MAX = 255
FOLLOW_MAX = 10


@dataclass(slots=True)
class SpawnMark:
    """Mark of a step: whether it spawned runs."""

    has_spawned: bool = False


within_step: ContextVar[SpawnMark | None] = ContextVar("tenure_step", default=None)
"""That of the step that is under way in this task or thread."""


class Leavings:
    """Of one attempt."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.errors: list[tuple[str, str]] = []
        self.errors_more = 0
        """How many errors came after the first hundred."""

        self.has_steps = False

    def count(self, name: str, number: int) -> None:
        """Add ``number`` to the counter ``name``.

        Raises:
            ValueError: one of them is unusable, or there are too many names.
        """
        if not NAME.fullmatch(name):
            raise ValueError(
                f"count name {name[:80]!r} must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or _"
            )
        total = self.counts.get(name, 0) + number if isinstance(number, int) and not isinstance(number, bool) else None
        if total is None or abs(total) > COUNT_MAX:
            raise ValueError(f"count {name} takes whole numbers up to {COUNT_MAX} together, got {number!r}")
        if name not in self.counts and len(self.counts) >= NAMES_MAX:
            raise ValueError(f"count {name}: a run counts up to {NAMES_MAX} things; it has {', '.join(self.counts)}")
        self.counts[name] = total

    def error(self, code: str, message: str) -> None:
        """Note an error that did not end the run."""
        if len(self.errors) >= ERRORS_MAX:
            self.errors_more += 1
            return
        text = mask_text(text_of(message), MESSAGE_CHARS_MAX)
        self.errors.append((_short(code, CODE_CHARS_MAX), _short(text, MESSAGE_CHARS_MAX)))

    @property
    def note(self) -> str:
        """Counts as text, for the run's line in the history."""
        words = [f"{name}={number}" for name, number in self.counts.items()]
        told = len(self.errors) + self.errors_more
        return " ".join([*words, f"errors={told}"] if told else words)

    def pack(self, *, children: Sequence[Child] = (), follow: Sequence[str] = (), keep_s: float) -> bytes | None:
        """Return it as an acknowledgement carries it; None when there is nothing."""
        found: dict[str, Any] = {}
        if self.counts:
            found["counts"] = self.counts
        if self.errors:
            found["errors"] = self.errors
        if self.errors_more:
            found["errors_more"] = self.errors_more
        if follow:
            found["then"] = follow
        if self.has_steps:
            found["steps"] = True
        if not (found or children):
            return None
        return msgspec.json.encode({"keep": max(KEEP_MS_MIN, round(1000 * keep_s)), **found})


def _short(text: Any, limit: int) -> str:
    line = " ".join(str(text).encode("utf-8", "replace").decode().split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class SpawnError(TenureError):
    """A child that cannot be: its key is taken or unusable, its run has ended, or there are too many."""


@dataclass(eq=False)
class Children:
    """The children of one attempt, in the order in which it spawned them."""

    parent: str
    _: KW_ONLY
    registry: Registry
    nominal_ms: int | None = None
    around: Neighbours = ALONE
    wall_ms: Callable[[], int]

    def __post_init__(self) -> None:
        self._numbers = count()
        self._by_id: dict[str, tuple[Child, Envelope]] = {}
        self._follow: dict[str, tuple[str, Envelope]] = {}
        self._bytes = 0
        self._is_closed = False

    @property
    def envelopes(self) -> list[Envelope]:
        """Runs spawned so far, for tests of the job."""
        return [envelope for _, envelope in self._by_id.values()]

    @property
    def following(self) -> list[Envelope]:
        """Runs that will start when all of these have ended, for tests of the job."""
        return [envelope for _, envelope in self._follow.values()]

    def spawn(
        self,
        job: JobRef,
        args: Args | None = None,
        *,
        key: str | int | None = None,
        delay: Duration | None = None,
        **options: Unpack[ChildOptions],
    ) -> str:
        """Add a child and return its id; see ``Context.spawn``."""
        envelope, delay_ms = self._envelope(job, args, self._id(key), "child", **options), delay_to_ms(delay)
        self._add(_timed(envelope, envelope.enqueued_ms + delay_ms), delay_ms)
        return envelope.id

    def then(
        self,
        job: JobRef,
        args: Args | None = None,
        *,
        when: str = "complete",
        key: str | int | None = None,
        delay: Duration | None = None,
        **options: Unpack[ChildOptions],
    ) -> str:
        """Add a run that starts when all children have ended, and return its id; see ``Context.then``."""
        if when not in FOLLOW_WHEN:
            raise ValueError(f"when must be one of {', '.join(FOLLOW_WHEN)}, got {when!r}")
        number = len(self._follow)
        run_id = self._id(key if key is not None else "then" if number == 0 else f"then-{number}")
        envelope = self._envelope(job, args, run_id, "then", **options)
        packed = pack(envelope)
        if run_id in self._by_id or run_id in self._follow:
            raise SpawnError(f"run {self.parent} spawned two different children under {run_id}; give each its own key")
        if number >= FOLLOW_MAX:
            raise SpawnError(f"run {self.parent}: up to {FOLLOW_MAX} runs may follow it; let one spawn the rest")
        line = f"{when} {delay_to_ms(delay)} {packed.queue} {packed.run_id} {packed.data.decode()}"
        self._grow(len(line))
        self._follow[run_id] = line, envelope
        return run_id

    def follow(self) -> list[str]:
        """Return the runs that start when all children have ended, as the acknowledgement carries them."""
        return [line for line, _ in self._follow.values()]

    def _envelope(
        self,
        job: JobRef,
        args: Args | None,
        run_id: str,
        cause: str,
        *,
        queue: str | None = None,
        priority: str | None = None,
        traceparent: str | None = None,
    ) -> Envelope:
        if self._is_closed:
            raise SpawnError(f"run {self.parent} has ended: what it spawns now would belong to nobody")
        if priority is not None and priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, got {priority!r}")
        spec = self.registry.get(job) if isinstance(job, str) else self.registry.find(job)
        template = spec.template(args or {}, queue=queue, priority=PRIORITIES[priority] if priority else None)
        return Envelope(
            id=run_id,
            template=template,
            enqueued_ms=self.wall_ms(),
            nominal_ms=self.nominal_ms,
            cause=cause,
            parent=self.parent,
            traceparent=traceparent_of(traceparent),
            previous_ms=self.around.previous_ms,
            next_ms=self.around.next_ms,
        )

    def take(self) -> tuple[Child, ...]:
        """Return every child, and take no more."""
        self._is_closed = True
        return tuple(self._at_the_end(child, envelope) for child, envelope in self._by_id.values())

    def _at_the_end(self, child: Child, envelope: Envelope) -> Child:
        """Count the deadline of its start from now on: it could not start before its parent ended.

        All else is as it was spawned: by now its arguments may hold other things, and nobody could be told of a fault.
        """
        if envelope.not_after_ms is None:
            return child
        late = _timed(unpack(child.packed.data), self.wall_ms() + child.delay_ms)
        return replace(child, packed=pack(late, above=len(self.parent)))

    def _add(self, envelope: Envelope, delay_ms: int) -> None:
        known = self._by_id.get(envelope.id)
        if known is not None:
            times = {name: getattr(known[1], name) for name in ("enqueued_ms", "not_after_ms", "traceparent")}
            same = pack(msgspec.structs.replace(envelope, **times), above=len(self.parent))
            if same == known[0].packed and delay_ms == known[0].delay_ms:
                return
            raise SpawnError(
                f"run {self.parent} spawned two different children under {envelope.id}; give each a key of its own"
            )
        if envelope.id in self._follow:
            raise SpawnError(
                f"run {self.parent} spawned two different children under {envelope.id}; give each its own key"
            )
        packed = pack(envelope, above=len(self.parent))
        if len(self._by_id) >= CHILDREN_MAX:
            raise SpawnError(
                f"run {self.parent} may spawn {CHILDREN_MAX} children, and this is one more; "
                f"spawn runs that spawn the rest, each for its part"
            )
        self._grow(len(packed.data))
        self._by_id[envelope.id] = Child(packed, delay_ms, envelope.template.job), envelope

    def _grow(self, size: int) -> None:
        if (mark := within_step.get()) is not None:
            mark.has_spawned = True
        if self._bytes + size > CHILDREN_BYTES_MAX:
            raise PayloadTooLargeError(
                f"run {self.parent}: its {len(self._by_id) + 1} children have over {CHILDREN_BYTES_MAX} bytes; "
                f"store the data elsewhere and pass a reference"
            )
        self._bytes += size

    def _id(self, key: str | int | None) -> str:
        if key is not None and not KEY.fullmatch(str(key)):
            raise SpawnError(
                f"key {str(key)[:80]!r} must be 1 to 200 printable ASCII characters without space, comma and |; "
                f"leave it out to number the children"
            )
        run_id = f"{self.parent}/{next(self._numbers) if key is None else key}"
        if len(run_id) > RUN_ID_MAX:
            raise SpawnError(f"run id {run_id[:80]}… would have {len(run_id)} characters, the limit is {RUN_ID_MAX}")
        return run_id


def _timed(envelope: Envelope, from_ms: int) -> Envelope:
    """Return ``envelope`` with the deadline of its start, if its job has one, counted from a moment on."""
    deadline_s = envelope.template.start_deadline_s
    late_ms = None if deadline_s is None else from_ms + round(1000 * deadline_s)
    return msgspec.structs.replace(envelope, not_after_ms=late_ms)
