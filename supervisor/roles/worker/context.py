"""What a job may know and ask of its own run.

A parameter annotated ``Context`` receives one of these. It is a view of one attempt: it
never outlives it, and nothing in it changes while the job runs except ``is_cancelled``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.model import Kind
from supervisor.core.registry import registry
from supervisor.roles.worker.children import Children


class SoftTimeout(BaseException):
    """Raised inside a job of a sync pool when its soft timeout passes; a coroutine job is cancelled instead.

    Not an ``Exception``, for the reason that made asyncio's ``CancelledError`` none: a library's
    ``except Exception: retry`` must not swallow it. Catch it by name to clean up or to return what is
    there so far; the process is killed when the hard timeout passes.
    """


class Interrupted(BaseException):
    """Raised inside a job of a sync pool when its process must go now. The run is not charged and runs again."""


class Enqueuer(Protocol):
    """What the context needs of a producer."""

    @property
    def enqueue(self) -> Callable[..., str]:
        """Enqueue a run and return its id."""
        ...

    @property
    def enqueue_async(self) -> Callable[..., Awaitable[str]]:
        """Enqueue a run and return its id, without blocking the event loop."""
        ...


@dataclass(slots=True, kw_only=True)
class Context:
    """One attempt of one run. Tests of a job may build it with nothing but ``run_id`` and ``job``."""

    __tenure_context__: ClassVar[bool] = True  # how the registry recognises the annotation

    run_id: str
    job: str
    attempt: int = 1
    """From 1. Grows when a failure is retried, not when a crash or a stop cut the run off."""

    fence: int = 1
    """Attempts, crashes and interruptions on record: never shrinks. Hand it to what the job writes to, and let
    that refuse a smaller one: then a stalled older execution cannot overwrite a newer one."""

    schedule: str | None = None
    nominal_ms: int | None = None
    """When the schedule says the run was due; of a child, when it says so of the run it descends from."""

    parent: str = ""
    """Id of the run that spawned this one; empty for all others."""

    kind: Kind = Kind.SYNC
    deadline_ns: int | None = None
    """When the process is killed, on ``Clock.elapsed_ns``."""

    clock: Clock = field(default_factory=SystemClock, repr=False)
    producer: Enqueuer | None = field(default=None, repr=False)
    is_cancelled: bool = False
    """True once the job was asked to stop, by its soft timeout or because its process must go."""

    is_replaced: bool = False
    """True once a newer run of the same schedule asked for this one's place; then it ends ``replaced``, not failed."""

    children: Children | None = field(default=None, repr=False)
    """What was spawned so far; made when the first child is."""

    @property
    def nominal(self) -> datetime | None:
        """When the schedule says the run was due, in UTC; None for a run that no schedule made."""
        return None if self.nominal_ms is None else datetime.fromtimestamp(self.nominal_ms / 1000, UTC)

    @property
    def deadline(self) -> datetime | None:
        """When the process will be killed, by the calendar; for people and for remote systems."""
        if self.deadline_ns is None:
            return None
        return datetime.fromtimestamp(self.clock.wall_ms() / 1000 + self.remaining_s(), UTC)

    def remaining_s(self) -> float:
        """Return the seconds until the process is killed: 0 when that moment passed, infinite without one."""
        if self.deadline_ns is None:
            return float("inf")
        return max(0.0, (self.deadline_ns - self.clock.elapsed_ns()) / 1e9)

    @property
    def log(self) -> Any:
        """A structlog logger that names the run, job, schedule and attempt on every line."""
        fields = {"run": self.run_id, "job": self.job, "attempt": self.attempt}
        if self.schedule is not None:
            fields["schedule"] = self.schedule
        return structlog.get_logger("tenure.job").bind(**fields)

    def enqueue(
        self,
        job: str | Callable[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: float | str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Enqueue another run, as ``supervisor.enqueue`` does, and return its id.

        Raises:
            RuntimeError: called in a coroutine job, where it would block every other one.
        """
        if self.kind is Kind.ASYNC:
            raise RuntimeError(f"job {self.job} is a coroutine: write `await context.enqueue_async(...)`")
        return self._producer().enqueue(job, args, queue=queue, priority=priority, delay=delay, run_id=run_id)

    async def enqueue_async(
        self,
        job: str | Callable[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: float | str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Enqueue another run, as ``supervisor.enqueue_async`` does, and return its id."""
        return await self._producer().enqueue_async(
            job, args, queue=queue, priority=priority, delay=delay, run_id=run_id
        )

    def spawn(
        self,
        job: str | Callable[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        key: str | int | None = None,
        queue: str | None = None,
        priority: str | None = None,
        delay: float | str | None = None,
    ) -> str:
        """Enqueue another run when, and only if, this one finishes; return its id.

        All children come into being in the step that acknowledges this run, or none does: what a failed,
        interrupted or killed attempt spawned never existed. Nothing is sent meanwhile, so coroutine jobs call
        it without ``await``. Its nominal time is this run's; its schedule's overlap does not count it.

        Args:
            job: the name of a job that this worker knows, or its function.
            args: its arguments by name.
            key: tells it from its siblings: its id is this run's, a slash and this. Default: a number, from 0.
                The same again is the same child.
            queue: the queue; default: the job's.
            priority: ``high``, ``normal`` or ``low``; default: the job's.
            delay: seconds, or a duration, before it may start, counted from when this run is acknowledged.

        Raises:
            UnknownJobError: no module of this worker registered the job.
            ArgumentsError: the arguments do not fit it.
            PayloadTooLargeError: the child is over 64 KiB, or all together are over 4 MiB.
            SpawnError: over 1,000 children, a key that another child has, or the run has ended.
        """
        if self.children is None:
            self.children = Children(
                self.run_id, registry=registry, nominal_ms=self.nominal_ms, wall_ms=self.clock.wall_ms
            )
        return self.children.spawn(job, args, key=key, queue=queue, priority=priority, delay=delay)

    def _producer(self) -> Enqueuer:
        if self.producer is None:
            raise RuntimeError("this Context belongs to no worker: give it a producer= to enqueue from a test")
        return self.producer
