"""Slots of the parent: the specification of each, and its live state, mirrored on the board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from supervisor.core.supervision.scoreboard import InflightTable, Row
from supervisor.core.supervision.shutdown import describe_status
from supervisor.core.supervision.slot import Group, Slot, SlotPolicy, recent_failures
from supervisor.core.supervision.states import ChildState
from supervisor.core.units import SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildIdentity:
    """Identity of a child at its start: slot, generation, parent."""

    slot: int
    generation: int
    parent_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpec:
    """One slot: its program, and how long it may be silent."""

    name: str  # agent, scheduler, web, worker-io-0: unique, and what ps shows
    run: Callable[[ChildIdentity], int]  # in the child, after its prologue; returns the exit code, or execs
    group: Group
    boot_timeout_s: float = 30.0
    hang_timeout_s: float | None = None  # None: this slot does not beat
    is_ready: Callable[[], bool] | None = None  # for a slot that cannot write on the board; must not block
    pool: str | None = None  # of workers; then the pool decides whether the slot has a process at all
    keep_fds: tuple[int, ...] = ()  # of all descriptors above 2, the ones its child keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentLimits:
    """Time limits of the parent."""

    grace_s: float = 20.0
    backoff_max_s: float = 30.0

    @property
    def grace_ns(self) -> int:
        """The grace in nanoseconds."""
        return int(self.grace_s * SECOND_NS)


class Log(Protocol):
    """Writes one event with its fields."""

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Write it."""
        ...


@dataclass(frozen=True, slots=True)
class Doubt:
    """A look at a process that had been silent for half its limit, to compare the next one with."""

    at_ns: int
    waited_ns: int  # for a processor, until then


@dataclass(slots=True, kw_only=True)
class LiveSlot:
    """One slot of a running tree."""

    index: int
    spec: SlotSpec
    row: Row
    inflight: InflightTable
    policy: SlotPolicy
    slot: Slot = field(default_factory=Slot)
    pid: int = 0  # 0 when there is no process; the parent alone decides by it
    last_status: int | None = None
    was_ready: bool = False  # in any generation
    is_up: bool = True  # whether it is to have a process while the tree goes on
    is_quiet: bool = False  # a person wants none for now
    restarts: int = 0  # starts after an end that nobody planned
    oom_generation: int = 0  # the newest that the kernel killed for memory
    starved_generation: int = 0  # the last one whose hang limit was doubled
    doubt: Doubt | None = None  # older than the last beat: it was dispelled

    @property
    def hang_after_ns(self) -> int | None:
        """The hang limit in nanoseconds."""
        limit_s = self.spec.hang_timeout_s
        return None if limit_s is None else int(limit_s * SECOND_NS)

    @property
    def has_process(self) -> bool:
        """True if a process of this slot is not reaped yet."""
        return self.slot.state.has_process

    @property
    def held_runs(self) -> bool:
        """True if the process of this generation, of a worker, had runs in its hands when it was last heard of."""
        return self.row.child_generation == self.slot.generation and not self.inflight.is_empty

    @property
    def owes_redis(self) -> bool:
        """True if its process has runs in its hands, and a question to Redis that is not answered yet."""
        return bool(self.row.asking_ns) and self.held_runs

    def reports_ready(self) -> bool:
        """Return whether the process of this generation reports that it is ready."""
        if self.spec.is_ready is not None:
            try:
                return self.spec.is_ready()
            except OSError:
                return False  # no socket, no answer, no permission: not yet
        return self.row.child_generation == self.slot.generation and self.row.child_state >= ChildState.READY

    def describe(self, now_ns: int) -> dict[str, object]:
        """Return the state of the slot, for the log."""
        slot, row = self.slot, self.row
        return {
            "slot": self.spec.name,
            "state": slot.state.name.lower(),
            "wanted": self.is_up,
            "child_pid": self.pid,
            "generation": slot.generation,
            "streak": slot.streak,
            "cause": slot.cause.name.lower(),
            "last_exit": "" if self.last_status is None else describe_status(self.last_status),
            "beat_age_s": round((now_ns - row.beat_ns) / SECOND_NS, 3) if row.beat_ns else None,
            "busy": row.busy,
            "done": row.done,
        }

    def mirror(self, *, is_wanted: bool) -> None:
        """Write the state on the board for others; last the generation that has ended, which they go by."""
        row, slot = self.row, self.slot
        row.generation = slot.generation
        row.pid = self.pid
        row.started_ns = slot.started_ns
        row.ready_ns = slot.ready_ns
        row.restarts = self.restarts
        row.cause = slot.cause
        row.crashes = recent_failures(slot)
        row.desired = int(is_wanted)
        row.is_quiet = int(self.is_quiet)
        row.oom_generation = self.oom_generation
        if self.last_status is not None:
            row.last_exit = self.last_status if self.last_status >= 0 else 256 - self.last_status
        row.state = slot.state
        row.ended_generation = slot.generation - slot.state.has_process

    def forget_child(self) -> None:
        """Zero the entries of the dead generation, so that the next one starts from nothing."""
        self.row.clear_child_words()
        self.row.handled_number = 0
        self.inflight.clear_all()
