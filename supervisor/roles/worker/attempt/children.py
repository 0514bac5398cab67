"""Child runs: collected while their parent executes, created when it is acknowledged (adr/0018).

Guarantees
    A child's id follows from its parent's: the parent's id, a slash, and the child's key or number. So an
    attempt that is repeated spawns the same children, and never a second set beside the first.
    Arguments and sizes are checked where ``spawn`` is called, so that the job hears of a mistake.

    A child is counted by its parent, exactly once, whatever becomes of it (adr/0030).

Does not guarantee
    Anything of an attempt that does not finish: its spawned runs never existed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from itertools import count
from typing import Unpack

import msgspec

from supervisor.core.durations import Duration, delay_to_ms
from supervisor.core.errors import PayloadTooLargeError, TenureError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import PRIORITIES, Envelope
from supervisor.core.schedules.neighbours import ALONE, Neighbours
from supervisor.roles.worker.attempt.run_output import FOLLOW_WHEN
from supervisor.store.producer.options import Args, ChildOptions, JobRef
from supervisor.store.producer.tracing import traceparent_of
from supervisor.store.queues.runs import CHILDREN_BYTES_MAX, CHILDREN_MAX, Child
from supervisor.store.wire.envelope import pack

KEY = re.compile(r"[!-+\-./0-9:-{}~]{1,200}", re.ASCII)
RUN_ID_MAX = 255
FOLLOW_MAX = 10


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
        envelope = self._envelope(job, args, self._id(key), "child", **options)
        self._add(envelope, delay_to_ms(delay))
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
        """Count the deadline of its start from now on: it could not start before its parent ended."""
        deadline_s = envelope.template.start_deadline_s
        if deadline_s is None:
            return child
        late_ms = self.wall_ms() + child.delay_ms + round(1000 * deadline_s)
        late = msgspec.structs.replace(envelope, not_after_ms=late_ms)
        return replace(child, packed=pack(late, above=len(self.parent)))

    def _add(self, envelope: Envelope, delay_ms: int) -> None:
        known = self._by_id.get(envelope.id)
        if known is not None:
            before = known[1]
            same = msgspec.structs.replace(envelope, enqueued_ms=before.enqueued_ms, traceparent=before.traceparent)
            if same == before and delay_ms == known[0].delay_ms:
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
