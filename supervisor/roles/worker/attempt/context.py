"""Context of a run: the facts and operations that its job may use.

A parameter annotated ``Context`` receives one of these. It is a view of one attempt: it
never outlives it, and nothing in it changes while the job runs except ``is_cancelled``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from supervisor.clock import Clock, SystemClock
from supervisor.core.jobs import registry as jobs
from supervisor.core.jobs.trace_context import trace_id_of
from supervisor.core.model import Kind
from supervisor.core.schedules.neighbours import Neighbours, ScheduledTime
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.run_output import Children, Leavings
from supervisor.roles.worker.attempt.steps import Steps
from supervisor.store.producer.options import EnqueueOptions, JobRef, SpawnOptions
from supervisor.store.producer.tracing import current_traceparent
from supervisor.store.queues.run_records import ProgressItem, pack_progress

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from supervisor.roles.worker.attempt.progress import Progress

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", EnqueueOptions, SpawnOptions)
PROGRESS_TTL_S_MIN = 60.0  # so that people see the end of a run that keeps no result


class SoftTimeout(BaseException):
    """Raised inside a job of a sync pool when its soft timeout passes; a coroutine job is cancelled instead.

    Not an ``Exception``, for the reason that made asyncio's ``CancelledError`` none: a library's
    ``except Exception: retry`` must not swallow it. Catch it by name to clean up or to return the result
    there so far; the process is killed when the hard timeout passes. Where the job runs an event loop it is a
    ``SystemExit`` too, since asyncio lets only that one and ``KeyboardInterrupt``, which jobs catch, end the loop.
    """


class Interrupted(BaseException):
    """Raised inside a job of a sync pool when its process must go now. The run is not charged and runs again."""


class Enqueuer(Protocol):
    """Subset of a producer that the context uses."""

    @property
    def enqueue(self) -> Callable[..., str]:
        """Enqueue a run and return its id."""
        ...

    @property
    def enqueue_async(self) -> Callable[..., Awaitable[str]]:
        """Enqueue a run and return its id, without blocking the event loop."""
        ...


@dataclass(slots=True, kw_only=True)
class Context(ScheduledTime):
    """One attempt of one run. Tests of a job may build it with nothing but ``run_id`` and ``job``."""

    __tenure_context__: ClassVar[bool] = True  # how the registry recognises the annotation
    SoftTimeout: ClassVar[type[SoftTimeout]] = SoftTimeout

    run_id: str
    job: str
    attempt: int = 1
    """From 1. Grows when a failure is retried, not when a crash or a stop cut the run off."""

    fence: int = 1
    """Attempts, crashes and interruptions on record: never shrinks. Hand it to what the job writes to, and let
    that refuse a smaller one: then a stalled older execution cannot overwrite a newer one."""

    maybe_duplicate: bool = False
    """True if its schedule fires it again after Redis lost data: it may have run before, under this very ``run_id``."""

    parent: str = ""
    """Id of the run that spawned this one; empty for all others."""

    queue: str = ""
    """Where it came from."""

    traceparent: str = ""
    """The trace it belongs to (W3C), to hand to services that the job calls; empty: none. Runs that it enqueues or
    spawns inherit it. With tracing installed it is the span of this attempt."""

    kind: Kind = Kind.SYNC
    deadline_ns: int | None = None
    """When the process is killed, on ``Clock.elapsed_ns``."""

    soft_deadline_ns: int | None = None
    """When the job is asked to stop, on the same clock."""

    clock: Clock = field(default_factory=SystemClock, repr=False)
    producer: Enqueuer | None = field(default=None, repr=False)
    is_cancelled: bool = False
    """True once the job was asked to stop, by its soft timeout or because its process must go."""

    is_replaced: bool = False
    """True once a newer run of the same schedule asked for this one's place; then it ends ``replaced``, not failed."""

    children: Children | None = field(default=None, repr=False)
    """What was spawned so far; made when the first child is."""

    leavings: Leavings | None = field(default=None, repr=False)
    """What was counted and which errors were told; made when the first is."""

    steps: Steps | None = field(default=None, repr=False)
    """The steps of this attempt, and in ``steps.records`` how they ended; made when the first is called."""

    make_steps: Callable[[], Steps] | None = field(default=None, repr=False)
    """How the worker makes them, so that they outlive the attempt."""

    arguments: dict[str, Any] = field(default_factory=dict, repr=False)
    """In a middleware: what the job is called with, without context and resources; what is changed here counts."""

    result_ttl_s: float = 86_400.0
    """How long what the run leaves is kept: its result, and its last progress."""

    last_progress: ProgressItem | None = None
    """What ``progress`` was last given, for tests of the job."""

    progress_to: Progress | None = field(default=None, repr=False)
    undo: list[Callable[[], Any]] = field(default_factory=list, repr=False)
    """What ``on_failure`` was given; a test of the job may look, or call them, the last first."""

    @property
    def deadline(self) -> datetime | None:
        """Wall clock time at which the process will be killed; for people and for remote systems."""
        if self.deadline_ns is None:
            return None
        return datetime.fromtimestamp(self.clock.wall_ms() / 1000 + self.remaining_s(), UTC)

    def remaining_s(self) -> float:
        """Return the seconds until the process is killed: 0 when that moment passed, infinite without one."""
        return self._seconds_to(self.deadline_ns)

    def soft_remaining_s(self) -> float:
        """Return the seconds until the job is asked to stop: 0 when that moment passed, infinite without one."""
        return self._seconds_to(self.soft_deadline_ns)

    def _seconds_to(self, at_ns: int | None) -> float:
        return float("inf") if at_ns is None else max(0.0, (at_ns - self.clock.elapsed_ns()) / SECOND_NS)

    @property
    def log(self) -> FilteringBoundLogger:
        """A structlog logger that names the run, job, schedule and attempt on every line."""
        import structlog  # noqa: PLC0415 - a program that only declares jobs need not load it

        trace_id = trace_id_of(self.traceparent) if self.traceparent else None
        more = {"schedule": self.schedule, "trace_id": trace_id}
        bound = structlog.get_logger("tenure.job").bind(run=self.run_id, job=self.job, attempt=self.attempt)
        return cast("FilteringBoundLogger", bound.bind(**{name: value for name, value in more.items() if value}))

    def raise_if_cancelled(self) -> None:
        """End the job here if it was asked to stop: for one that swallowed that, and for threads of a coroutine job.

        Raises:
            SoftTimeout: in a plain job.
            asyncio.CancelledError: in a coroutine job.
        """
        if self.is_cancelled:
            if self.kind is Kind.ASYNC:
                raise asyncio.CancelledError
            raise SoftTimeout("the job was asked to stop")

    def on_failure(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have ``function`` called if this attempt ends other than ok: by an error, a soft timeout, a stop.

        The last given is called first, each once, within the rest of the time; errors in it are logged and
        change nothing. In a coroutine job it may be a coroutine function. A process that is killed calls nothing.
        """
        self.undo.append(partial(function, *args, **kwargs))

    def progress(self, value: Any = None, note: str = "") -> None:
        """Report how far the run is, for people who look at it: ``progress((30, 100))``, ``progress("sorting")``.

        Cheap, and never waits in a coroutine job: values go to Redis at most once a second, the newest of them,
        and the last one when the run ends. It is kept as long as a result.

        Args:
            value: (done, total), or any JSON.
            note: for people.

        Raises:
            PayloadTooLargeError: both together are over 4 KiB.
            TypeError: the value is no JSON.
        """
        is_pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, int | float) for each in value)
        done, total = value if is_pair else (None, None)
        left_s = 0.0 if self.deadline_ns is None else self.remaining_s()
        item = ProgressItem(
            run_id=self.run_id, fence=self.fence, attempt=self.attempt, at_ms=self.clock.wall_ms(),
            value=None if is_pair else value, done=done, total=total, note=note,
            ttl_ms=round(1000 * (left_s + max(PROGRESS_TTL_S_MIN, self.result_ttl_s))),
        )  # fmt: skip
        pack_progress(item)  # the job hears of its mistake, not the log
        self.last_progress = item
        if self.progress_to is not None:
            self.progress_to.report(self, item)

    def enqueue(self, job: JobRef, args: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]) -> str:
        """Enqueue another run, as ``tenure.enqueue`` does, and return its id.

        Raises:
            RuntimeError: called in a coroutine job, where it would block every other one.
        """
        if self.kind is Kind.ASYNC:
            raise RuntimeError(f"job {self.job} is a coroutine: write `await context.enqueue_async(...)`")
        return self._producer().enqueue(job, args, **self._traced(options))

    async def enqueue_async(
        self, job: JobRef, args: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> str:
        """Enqueue another run, as ``tenure.enqueue`` does, without blocking, and return its id."""
        return await self._producer().enqueue_async(job, args, **self._traced(options))

    def spawn(self, job: JobRef, args: Mapping[str, Any] | None = None, **options: Unpack[SpawnOptions]) -> str:
        """Enqueue another run when, and only if, this one finishes; return its id.

        All children come into being in the step that acknowledges this run, or none does: children a failed,
        interrupted or killed attempt spawned never existed. Nothing is sent meanwhile, so coroutine jobs call
        it without ``await``. Its nominal time is this run's; its schedule's overlap does not count it.

        Args:
            job: the name of a job that this worker knows, or its function.
            args: its arguments by name.
            **options: ``key`` (unique among its siblings), ``queue``, ``priority``, ``delay``; see ``SpawnOptions``.

        Raises:
            UnknownJobError: no module of this worker registered the job.
            ArgumentsError: the arguments do not fit it.
            PayloadTooLargeError: the child is over 64 KiB, or all together are over 4 MiB.
            SpawnError: over 1,000 children, a key that another child has, or the run has ended.
        """
        return self._children().spawn(job, args, **self._traced(options))

    def then(
        self,
        job: JobRef,
        args: Mapping[str, Any] | None = None,
        *,
        when: str = "complete",
        **options: Unpack[SpawnOptions],
    ) -> str:
        """Enqueue a run when this one and all that it spawned, and they spawned, have ended; return its id.

        In the very step in which the last of them ends: it starts once, whatever dies meanwhile. If this attempt does
        not finish, nothing follows. A run that spawned nothing is followed at once.

        Args:
            job: as of ``spawn``.
            args: as of ``spawn``.
            when: ``complete``, however they ended; ``success``: only if all finished, perhaps after a dead one of them
                was requeued.
            **options: as of ``spawn``; ``delay`` counts from that step.

        Raises:
            SpawnError: over ten, a key that another has, or the run has ended; and the errors of ``spawn``.
        """
        return self._children().then(job, args, when=when, **self._traced(options))

    def count(self, name: str | None = None, number: int = 1, /, **numbers: int) -> None:
        """Add to counters of this run: ``count("created")``, ``count(created=3, updated=1)``. A parent has the sums.

        The counts of an attempt are added when, and only if, it is acknowledged as finished: never twice.

        Raises:
            ValueError: a name or number that cannot be, or over 32 names.
        """
        given = numbers if name is None else {name: number, **numbers}
        for each, value in given.items():
            self._leavings().count(each, value)

    def error(self, code: str, message: str = "") -> None:
        """Report an error that does not end the run. The first hundred of a fan-out are kept, all are counted."""
        self._leavings().error(code, message)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``function`` as a step of this run and return its result, as JSON has it.

        The result of a step is kept with the run. A later attempt, after a failure, a crash or ``tenure runs requeue``,
        gets it from there, and the function is not called again. ``tenure runs show`` lists how each step ended.

        Args:
            name: of the step, unique in the run; the next attempt finds the step by it.
            function: the function to call.
            *args: its arguments.
            **kwargs: its arguments by name.

        Raises:
            StepError: a name that is unusable or was used, over 100 steps, or the run is another worker's by now.
            PayloadTooLargeError: the result is over 16 KiB.
        """
        if self.kind is Kind.ASYNC:
            raise RuntimeError(f"job {self.job} is a coroutine: write `await context.step_async(...)`")
        return cast("R", self._steps().step(name, function, args, kwargs))

    @overload
    async def step_async(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step_async(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step_async(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a step as ``step`` does, in a coroutine job; ``function`` may be a coroutine function."""
        return await self._steps().step_async(name, function, args, kwargs)

    def _traced(self, options: T) -> T:
        """Return the options of another run, in the trace of this one unless they or a span name another."""
        if self.traceparent and options.get("traceparent") is None:
            options["traceparent"] = current_traceparent() or self.traceparent
        return options

    def _steps(self) -> Steps:
        self._leavings().has_steps = True
        if self.steps is None:
            self.steps = (self.make_steps or partial(Steps, attempt=self.attempt, clock=self.clock))()
            self.steps.must_end = lambda: self.is_cancelled
        return self.steps

    def _leavings(self) -> Leavings:
        self.leavings = self.leavings or Leavings()
        return self.leavings

    def _children(self) -> Children:
        if self.children is None:
            around = Neighbours(self.previous_ms, self.next_ms)
            self.children = Children(
                self.run_id, registry=jobs.registry, nominal_ms=self.nominal_ms, around=around,
                wall_ms=self.clock.wall_ms,
            )  # fmt: skip
        return self.children

    def _producer(self) -> Enqueuer:
        if self.producer is None:
            raise RuntimeError("this Context belongs to no worker: give it a producer= to enqueue from a test")
        return self.producer
