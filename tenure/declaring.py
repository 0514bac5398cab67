"""Types of ``@job`` and ``@schedule``: the calls that its function gains, checked by the function's own parameters.

For type checkers; at run time ``job`` is a plain function that returns the function it decorates. A leading
``Context``, and one resource at the beginning, are known to be filled by the worker. Elsewhere among the parameters
they would have to be given in ``.enqueue(…)`` to satisfy a type checker: put them first.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from supervisor.core.durations import Duration
from supervisor.core.jobs.resource import Resource
from supervisor.core.retry import Retry
from supervisor.roles.worker.attempt.context import Context
from supervisor.store.producer.bulk import Totals
from supervisor.store.producer.options import Each
from supervisor.store.producer.run_handle import Run

P = ParamSpec("P")
Call = ParamSpec("Call")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])
S = TypeVar("S", bound=Resource)
Returned_co = TypeVar("Returned_co", covariant=True)

Priority = Literal["high", "normal", "low"]


class JobFunction(Protocol[P, R]):
    """A job by the arguments of its runs and the type of their results. The function that ``@job`` returns is one."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Enqueue a run with these arguments and return its handle."""

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Do the same without blocking the event loop."""

    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> Mapping[str, Any]:
        """Return the arguments of a run by name, checked by type checkers, for ``enqueue_many``."""

    def enqueue_many(self, many: Iterable[Mapping[str, Any]], *, each: Each | None = None) -> Totals:
        """Enqueue a run for each of ``many``: mappings, or what ``arguments`` returns."""

    async def enqueue_many_async(self, many: Iterable[Mapping[str, Any]], *, each: Each | None = None) -> Totals:
        """Do the same without blocking the event loop."""

    def options(
        self,
        *,
        queue: str | None = None,
        priority: Priority | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        run_id: str | Callable[[Mapping[str, Any]], str] | None = None,
        traceparent: str | None = None,
    ) -> JobFunction[P, R]:
        """Return the job with options for the runs that are enqueued by it.

        Args:
            queue: instead of the job's.
            priority: instead of the job's.
            delay: seconds, a text such as ``"5m"``, or a timedelta, before they may start.
            at: the moment instead, with a time zone.
            run_id: their identity; for ``enqueue_many`` a function of the arguments.
            traceparent: the trace they belong to (W3C).
        """


class DeclaredJob(JobFunction[P, R], Protocol[Call, Returned_co, P, R]):
    """A function that is a job: called like the function, and enqueued by its attributes."""

    __name__: str
    __qualname__: str

    def __call__(self, *args: Call.args, **kwargs: Call.kwargs) -> Returned_co:
        """Call the function itself, as a test does."""


class Declares(Protocol):
    """A decorator that makes a function a job."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[Concatenate[Context, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[Concatenate[S, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[P, Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> DeclaredJob[Concatenate[Context, P], R, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R], /) -> DeclaredJob[Concatenate[S, P], R, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DeclaredJob[P, R, P, R]: ...


class Job(Protocol):
    """``@job``: plain, or with options in brackets."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[Concatenate[Context, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[Concatenate[S, P], Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[P, Coroutine[Any, Any, R], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> DeclaredJob[Concatenate[Context, P], R, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R], /) -> DeclaredJob[Concatenate[S, P], R, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DeclaredJob[P, R, P, R]: ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        *,
        queue: str = "default",
        priority: Priority | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        max_crashes: int = 3,
        result_ttl: Duration = 86_400.0,
        delivery: Literal["at_least_once", "at_most_once"] = "at_least_once",
        start_deadline: Duration | None = None,
        unique: bool | str = False,
        concurrency: int | tuple[str, int] | tuple[str, int, str] | None = None,
        rate: str | tuple[str, str] | None = None,
        without: Iterable[type] = (),
        profile: str = "default",
    ) -> Declares: ...


job: Job


class Schedule(Protocol):
    """``@schedule``: the fields of a schedule in a configuration; see docs/schedules.md."""

    def __call__(
        self,
        cron: str | None = None,
        /,
        *,
        name: str | None = None,
        every: Duration | None = None,
        phase: Duration | None = None,
        anchor: Literal["epoch", "start_at", "first_seen", "first_seen_hour"] | None = None,
        calendar_interval: Mapping[str, object] | None = None,
        at: datetime | str | None = None,
        after_completion: Duration | None = None,
        when: Sequence[Mapping[str, object]] | None = None,
        after: Mapping[str, str] | None = None,
        timezone: str | None = None,
        dst_gap: Literal["run", "skip", "shift"] | None = None,
        dst_overlap: Literal["first", "last", "both"] | None = None,
        exclude: Sequence[str | date | Mapping[str, object]] | None = None,
        only: Sequence[str] | None = None,
        on_excluded: Literal["skip", "next", "previous"] | None = None,
        start_at: datetime | date | str | None = None,
        end_at: datetime | date | str | None = None,
        max_runs: int | None = None,
        jitter: Duration | None = None,
        jitter_mode: Literal["fixed", "per_fire"] | None = None,
        overlap: Literal["skip", "allow", "buffer_one", "buffer_all", "cancel_other", "terminate_other"] | None = None,
        max_running: int | None = None,
        buffer_limit: int | None = None,
        cancel_grace: Duration | None = None,
        missed: Literal["latest", "earliest", "all", "skip"] | None = None,
        catchup_window: Duration | None = None,
        max_catchup: int | None = None,
        start_deadline: Duration | None = None,
        finish_within: Duration | None = None,
        expect_success_every: Duration | None = None,
        paused: bool | None = None,
        pause_reason: str | None = None,
        on_resume: Literal["skip", "catchup"] | None = None,
        on_change: Literal["wait", "run_now"] | None = None,
        pause_after_failures: int | None = None,
        run_on_create: bool | None = None,
        retain_completed: Duration | None = None,
        renamed_from: str | None = None,
        queue: str | None = None,
        priority: Priority | None = None,
        args: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
        retries: int | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str | None = None,
        description: str | None = None,
        profile: str | None = None,
    ) -> Callable[[Function], Function]:
        """Return a decorator that leaves the function as it is; ``name`` of the schedule is by default its job's."""


schedule: Schedule
