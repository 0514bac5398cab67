"""Invocation of a job: the function itself, or the function wrapped in its hooks and middleware.

From the outside in: the hooks of its profile (hook_chain.py), ``Context.on_failure``, the middleware in the order of
their installation, the opening of resources, the job. A job that has none of them and takes no context is called
directly.

Guarantees
    Callbacks given to ``on_failure`` run when the attempt ends other than ok: the last given first, each once,
    also after a soft timeout and when the process must go, within the rest of the time; a coroutine is
    cancelled before the hard timeout. An error in one is logged, and changes nothing.
    The runs that a planner, a job that yields runs, wants come into being with the acknowledgement, or none (adr/0018):
    one that fails half-way planned nothing. A planner that yields nothing has finished.

Does not guarantee
    That it runs at all: a process that is killed runs nothing more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.jobs.registry import JobSpec
from supervisor.core.model import Kind
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.calls import Calls, Ended, drive, drive_async
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.failure import is_clean_exit
from supervisor.roles.worker.attempt.hook_chain import HookChain, time_after
from supervisor.roles.worker.attempt.hooks import Hooks, Pipeline
from supervisor.roles.worker.attempt.middleware import Middleware, chain, closing
from supervisor.roles.worker.attempt.progress import Progress
from supervisor.roles.worker.attempt.result_check import is_under_way, is_undone, must_be_done, work_undone
from supervisor.roles.worker.process.resources import Resources
from supervisor.store.producer.run_handle import must_be_awaited
from supervisor.telemetry.masking import text_of

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

_UNDO = "give on_failure a plain function that does it, or, in a coroutine job, a coroutine function"
GRACE_S = 0.1  # for a middleware that takes all of its time to close

log = structlog.get_logger("tenure.job")

Arguments = dict[str, Any]


class _Plan(NamedTuple):
    """Invocation plan of one job: its hooks and middleware."""

    spec: JobSpec
    middlewares: tuple[Middleware, ...]
    is_plain: bool  # nothing at all
    is_bare: bool  # nothing but hooks, ``on_failure`` and progress
    hooks: Hooks | None  # of the profile


class JobInvoker:
    """Invocation of the jobs of one worker process. One is made after the fork, and closed once."""

    def __init__(
        self,
        *,
        kind: Kind,
        clock: Clock | None = None,
        producer: Producer | None = None,
        on_ill: Callable[[int], None] | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        """Build it.

        Args:
            kind: of the pool.
            clock: of this machine.
            producer: sends progress to Redis; None: it is sent nowhere.
            on_ill: called with how many resources do not answer, when that changes.
            pipeline: the hooks of each profile; None: there are none.
        """
        self._kind = kind
        self._clock = clock or SystemClock()
        self._pipeline = pipeline
        self._plans: dict[str | tuple[str, str], _Plan] = {}
        self.plain: dict[str, JobSpec] = {}
        """Jobs that are known to be called as they are, without a profile."""
        self.resources = Resources(self._clock, on_ill)
        self.progress = Progress(self._clock, producer)
        is_async = kind is Kind.ASYNC
        self._drive: Callable[..., Any] = drive_async if is_async else drive
        self._resource: Callable[..., Any] = self.resources.get_async if is_async else self.resources.get
        self._callback: Callable[..., Any] = _call_async if is_async else _call_plain
        self._around = "around_async" if is_async else "around"

    def is_plain(self, spec: JobSpec, profile: str = "") -> bool:
        """Return whether the function is called as it is, and so needs no context.

        Raises:
            UnknownProfileError: this process cannot ask the hooks of that profile.
        """
        return self._plan(spec, profile).is_plain

    def prepare(
        self, spec: JobSpec, context: Context, profile: str = "", *, born: int = 0, may_have_left: bool = False
    ) -> Callable[..., Any]:
        """Return the callable for ``**arguments`` in place of ``spec.function``.

        A coroutine function in an async pool, a plain one in a sync pool. It raises the exceptions of the job, or
        VetoedError.

        Args:
            spec: the job.
            context: of this attempt.
            profile: whose hooks are asked; empty: the default.
            born: when the run was enqueued.
            may_have_left: an execution of this run was cut off before, so its hooks may hold its reservations.
        """
        plan = self._plan(spec, profile)
        if plan.is_plain:
            return spec.function
        context.progress_to = self.progress
        hooks = None
        if plan.hooks is not None and self._pipeline is not None:
            hooks = HookChain(self._pipeline, plan.hooks, context, self._clock, born=born, may_have_left=may_have_left)
        return partial(self._drive, self._attempt, plan, context, hooks)

    def close(self, within_s: float) -> None:
        """Close resources of jobs of a sync pool, the last first; returns after about ``within_s`` at the latest."""
        until_ns = self._clock.elapsed_ns() + round(within_s * SECOND_NS)
        self.resources.close(within_s)
        self._close_middleware(until_ns)

    async def close_async(self, within_s: float) -> None:
        """Send the last progress, and close the resources that jobs of an async pool opened."""
        until_ns = self._clock.elapsed_ns() + round(within_s * SECOND_NS)
        await self.progress.close_async(within_s)
        if self._pipeline is not None:
            await self._pipeline.close_async(within_s)
        await self.resources.close_async(within_s)
        if closing():
            left_s = max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS)
            with suppress(TimeoutError, RuntimeError):  # jobs may have left all threads busy, or the machine has none
                await asyncio.wait_for(asyncio.to_thread(self._close_middleware, until_ns), left_s + GRACE_S)

    def _close_middleware(self, until_ns: int) -> None:
        for item in closing():
            try:
                item.close(max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS))
            except BaseException as error:  # noqa: BLE001 - the others are to be closed all the same
                log.warning("middleware_unclosed", middleware=type(item).__qualname__, error=text_of(error, repr))

    def _plan(self, spec: JobSpec, profile: str) -> _Plan:
        key = (spec.base.job, profile) if profile else spec.base.job
        plan = self._plans.get(key)
        if plan is None or plan.spec is not spec:
            middlewares = chain(self._kind, spec.without)
            hooks = None if self._pipeline is None else self._pipeline.of(profile)
            is_bare = not (spec.resources or middlewares or is_planner(spec.function))
            is_plain = is_bare and hooks is None and spec.context_parameter is None
            plan = self._plans[key] = _Plan(spec, middlewares, is_plain, is_bare, hooks)
            if is_plain and not profile:
                self.plain[spec.base.job] = spec
        return plan

    def _attempt(self, plan: _Plan, context: Context, hooks: HookChain | None, arguments: Arguments, /) -> Calls:
        """Ask the hooks, call the job, undo what failed, tell the hooks: one attempt from its first call to its end."""
        if hooks is not None:
            context.arguments = {key: value for key, value in arguments.items() if key != plan.spec.context_parameter}
            refusal = yield from hooks.ask()
            if refusal is not None:
                yield from hooks.tell(refusal)
                return None, refusal
        value, error = yield from self._to_end(self._work(plan, context, hooks, arguments))
        if is_undone(value, self._kind):
            value, error = None, work_undone(value)
        if context.undo and error is not None and not is_clean_exit(error):
            yield from self._undo(context)
        if context.last_progress is not None and self._kind is Kind.SYNC:
            _, lost = yield partial(self.progress.ended, context)
            if lost is not None:
                log.warning("progress_lost", error=repr(lost))
        if hooks is not None:
            yield from hooks.tell(error)
        return value, error

    def _work(self, plan: _Plan, context: Context, hooks: HookChain | None, arguments: Arguments) -> Callable[[], Any]:
        """Return the call that does what the run is for: the dispatcher's, or the job's inside its middleware."""
        if hooks is not None and hooks.dispatch is not None:
            return hooks.dispatch
        if plan.is_bare:
            return partial(plan.spec.function, **arguments)
        arguments.pop(plan.spec.context_parameter or "", None)
        context.arguments = arguments
        call: Callable[[], Any] = partial(self._drive, self._inject, plan.spec, context)
        for middleware in reversed(plan.middlewares):
            call = partial(getattr(middleware, self._around), context, call)
        return call

    def _inject(self, spec: JobSpec, context: Context, _: Arguments, /) -> Calls:
        """Open the resources of the job and call it; a planner's runs are spawned."""
        given: Arguments = {} if spec.context_parameter is None else {spec.context_parameter: context}
        for name, kind in spec.resources:
            given[name], error = yield partial(self._resource, kind)
            if error is not None:
                return None, error
        call = partial(spec.function, **context.arguments, **given)
        if is_planner(spec.function):
            return (yield from spawn_all(call(), context))
        return (yield from self._to_end(call))  # within its middleware

    def _to_end(self, call: Callable[[], Any]) -> Calls:
        """Make a call, and await the task or future that a coroutine job returned."""
        value, error = yield call
        if self._kind is Kind.ASYNC and is_under_way(value):
            value, error = yield partial(_itself, value)
        return value, error

    def _undo(self, context: Context) -> Generator[Callable[[], Any], Ended, None]:
        while context.undo:
            function = context.undo.pop()
            _, error = yield partial(self._callback, function, context)
            if error is not None:
                what = getattr(function, "func", function)
                name = getattr(what, "__qualname__", text_of(what, repr))
                log.error("on_failure_failed", function=name, error=text_of(error, repr))


def _itself(awaitable: Any) -> Any:
    return awaitable


def _call_plain(function: Callable[[], Any], _: Context) -> None:
    must_be_done(function(), _UNDO, Kind.SYNC)


async def _call_async(function: Callable[[], Any], context: Context) -> None:
    value = function()
    if must_be_awaited(value):
        async with asyncio.timeout(time_after(context)):
            value = await value
    must_be_done(value, _UNDO)


@lru_cache(maxsize=1024)
def is_planner(function: Callable[..., Any]) -> bool:
    """Return whether ``function`` yields runs instead of doing something itself."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def spawn_all(runs: Any, context: Context) -> Calls:
    """Spawn the children that a planner yields; its end is the planner's."""
    is_async = inspect.isasyncgen(runs)
    take = partial(anext if is_async else next, runs)
    while True:
        item, error = yield take
        if error is None:
            try:
                spawn(item, context)
            except BaseException as refused:  # noqa: BLE001 - the planner is closed, and has failed by it
                error = refused
        if error is not None:
            break
    _, unclosed = yield runs.aclose if is_async else runs.close
    if unclosed is not None:
        return None, unclosed
    if isinstance(error, StopIteration | StopAsyncIteration):
        return getattr(error, "value", None), None
    return None, error


def spawn(item: Any, context: Context) -> str:
    """Spawn one run: a job; or job and arguments; or job, arguments and options of ``Context.spawn``.

    Raises:
        TypeError: it is none of these.
    """
    parts = item if isinstance(item, tuple) else (item,)
    job, args, options = (*parts, None, None, None)[:3]
    is_job = isinstance(job, str) or callable(job)
    if len(parts) > 3 or not is_job or not all(part is None or isinstance(part, Mapping) for part in (args, options)):
        raise TypeError(
            f"planner {context.job} yielded {type(item).__name__} of {len(parts)}; it yields a job, (job, arguments) "
            f"or (job, arguments, options), such as (collect, {{'tenant': 1}}, {{'key': 1}})"
        )
    return context.spawn(job, args, **(options or {}))
