"""Invocation of a job: the function itself, or the function wrapped in its hooks and middleware.

From the outside in: the hooks of its profile (hook_chain.py), ``Context.on_failure``, the middleware in the order of
their installation, the opening of resources, the job. A job that has none of them and takes no context is called
directly.

Guarantees
    Callbacks given to ``on_failure`` run when the attempt ends other than ok: the last given first, each once,
    also after a soft timeout and when the process must go, within the rest of the time. An error in one
    is logged, and changes nothing.

Does not guarantee
    That it runs at all: a process that is killed runs nothing more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.jobs.registry import JobSpec
from supervisor.core.model import Kind
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt import hook_chain
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.failure import is_clean_exit
from supervisor.roles.worker.attempt.hook_chain import Passage
from supervisor.roles.worker.attempt.hooks import Hooks, Pipeline
from supervisor.roles.worker.attempt.middleware import Middleware, chain, closing
from supervisor.roles.worker.attempt.planning import is_planner, spawn_all, spawn_all_async
from supervisor.roles.worker.attempt.progress import Progress, ProgressRunner
from supervisor.roles.worker.process.resources import Resources

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


class Calling:
    """Invocation of the jobs of one worker process. One is made after the fork, and closed once."""

    def __init__(
        self,
        *,
        kind: Kind,
        clock: Clock | None = None,
        producer: ProgressRunner | None = None,
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
        self.resources = Resources(clock or SystemClock(), on_ill)
        self.progress = Progress(clock or SystemClock(), producer)

    def is_plain(self, spec: JobSpec, profile: str = "") -> bool:
        """Return whether the function is called as it is, and so needs no context.

        Raises:
            UnknownProfileError: this process cannot ask the hooks of that profile.
        """
        return self._plan(spec, profile).is_plain

    def prepare(
        self, spec: JobSpec, context: Context, profile: str = "", *, may_have_left: bool = False
    ) -> Callable[..., Any]:
        """Return the callable for ``**arguments`` in place of ``spec.function``.

        A coroutine function in an async pool, a plain one in a sync pool. It raises the exceptions of the job, or
        VetoedError.

        Args:
            spec: the job.
            context: of this attempt.
            profile: whose hooks are asked; empty: the default.
            may_have_left: an execution of this run was cut off before, so its hooks may hold its reservations.
        """
        plan = self._plan(spec, profile)
        if plan.is_plain:
            return spec.function
        context.progress_to = self.progress
        if plan.hooks is not None and self._pipeline is not None:
            way = Passage(self._pipeline, plan.hooks, context, self._clock, may_have_left=may_have_left)
            hooked = self._hooked_async if self._kind is Kind.ASYNC else self._hooked
            return partial(hooked, plan, context, way)
        if self._kind is Kind.ASYNC:
            return partial(self._attempt_async, plan, context)
        return partial(self._attempt, plan, context)

    def look(self) -> None:
        """Ask the resources of plain jobs how they are, if it is time. For a moment when no job runs."""
        self.resources.look()

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
            with suppress(TimeoutError):  # jobs may have left every thread of the loop busy
                await asyncio.wait_for(asyncio.to_thread(self._close_middleware, until_ns), left_s + GRACE_S)

    def _close_middleware(self, until_ns: int) -> None:
        for item in closing():
            try:
                item.close(max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS))
            except Exception as error:  # noqa: BLE001 - the others are to be closed all the same
                log.warning("middleware_unclosed", middleware=type(item).__qualname__, error=repr(error))

    def _plan(self, spec: JobSpec, profile: str) -> _Plan:
        key = (spec.base.job, profile) if profile else spec.base.job
        plan = self._plans.get(key)
        if plan is None or plan.spec is not spec:
            middlewares = chain(self._kind, spec.without)
            hooks = None if self._pipeline is None else self._pipeline.of(profile)
            is_bare = not (spec.resources or middlewares or is_planner(spec.function))
            is_plain = is_bare and hooks is None and spec.context_parameter is None
            plan = self._plans[key] = _Plan(spec, middlewares, is_plain, is_bare, hooks)
        return plan

    # Plain jobs ----------------------------------------------------------------------------------

    def _hooked(self, plan: _Plan, context: Context, way: Passage, /, **arguments: Any) -> Any:
        context.arguments = _without(plan.spec, arguments)
        return way.run(partial(self._attempt, plan, context, **arguments))

    def _attempt(self, plan: _Plan, context: Context, /, **arguments: Any) -> Any:
        try:
            value = plan.spec.function(**arguments) if plan.is_bare else self._through(plan, context, arguments)
        except BaseException as error:
            if context.undo and not is_success(error):
                self._undo(context)
            self._end(context)
            raise
        self._end(context)
        return value

    def _through(self, plan: _Plan, context: Context, arguments: Arguments) -> Any:
        arguments.pop(plan.spec.context_parameter or "", None)
        context.arguments = arguments
        call: Callable[[], Any] = partial(self._inject, plan.spec, context)
        for middleware in reversed(plan.middlewares):
            call = partial(middleware.around, context, call)
        return call()

    def _inject(self, spec: JobSpec, context: Context) -> Any:
        given = {name: self.resources.get(kind) for name, kind in spec.resources}
        value = spec.function(**context.arguments, **given, **_itself(spec, context))
        return spawn_all(value, context) if is_planner(spec.function) else value

    def _undo(self, context: Context) -> None:
        while context.undo:
            function = context.undo.pop()
            try:
                value = function()
                if inspect.iscoroutine(value):
                    value.close()
                    _report(function, TypeError("a plain job cannot await it; give on_failure a plain function"))
            except BaseException as error:  # noqa: BLE001 - one more timeout, or a stop, must not skip the others
                _report(function, error)

    def _end(self, context: Context) -> None:
        """Send the rest of the progress. The job has ended, so nothing that happens here may change how."""
        if context.last_progress is None:
            return
        try:
            self.progress.ended(context)
        except BaseException as error:  # noqa: BLE001 - a stop that arrives here is obeyed by the pool
            log.warning("progress_lost", error=repr(error))

    # Coroutine jobs ------------------------------------------------------------------------------

    async def _hooked_async(self, plan: _Plan, context: Context, way: Passage, /, **arguments: Any) -> Any:
        context.arguments = _without(plan.spec, arguments)
        return await way.run_async(partial(self._attempt_async, plan, context, **arguments))

    async def _attempt_async(self, plan: _Plan, context: Context, /, **arguments: Any) -> Any:
        try:
            call = plan.spec.function(**arguments) if plan.is_bare else self._through_async(plan, context, arguments)
            return await call
        except BaseException as error:
            if context.undo and not is_success(error):
                await self._undo_async(context)
            raise
        finally:
            if context.last_progress is not None:
                self.progress.ended(context)

    async def _through_async(self, plan: _Plan, context: Context, arguments: Arguments) -> Any:
        arguments.pop(plan.spec.context_parameter or "", None)
        context.arguments = arguments
        call: Callable[[], Awaitable[Any]] = partial(self._inject_async, plan.spec, context)
        for middleware in reversed(plan.middlewares):
            call = partial(middleware.around_async, context, call)
        return await call()

    async def _inject_async(self, spec: JobSpec, context: Context) -> Any:
        given = {name: await self.resources.get_async(kind) for name, kind in spec.resources}
        value = spec.function(**context.arguments, **given, **_itself(spec, context))
        return await (spawn_all_async(value, context) if is_planner(spec.function) else value)

    async def _undo_async(self, context: Context) -> None:
        while context.undo:
            function = context.undo.pop()
            try:
                value = function()
                if inspect.isawaitable(value):
                    await value
            except BaseException as error:  # noqa: BLE001 - one more cancellation must not skip the others
                _report(function, error)


def is_success(error: BaseException) -> bool:
    """Return whether a job that ended with ``error`` succeeded: ``sys.exit(0)`` is how scripts end well."""
    return is_clean_exit(error)


def _itself(spec: JobSpec, context: Context) -> dict[str, Context]:
    return {} if spec.context_parameter is None else {spec.context_parameter: context}


def _without(spec: JobSpec, arguments: Arguments) -> Arguments:
    """Return the arguments of the job without its context, for those who look at them."""
    return {name: value for name, value in arguments.items() if name != spec.context_parameter}


def _report(function: Callable[[], Any], error: BaseException) -> None:
    what = getattr(function, "func", function)
    log.error("on_failure_failed", function=getattr(what, "__qualname__", repr(what)), error=repr(error))


OWN_CODE = frozenset(
    function.__code__
    for function in (
        Calling._hooked,  # noqa: SLF001 - this module's own, as are the others
        Calling._attempt,  # noqa: SLF001
        Calling._through,  # noqa: SLF001
        Calling._inject,  # noqa: SLF001
        Calling._undo,  # noqa: SLF001
        Calling._end,  # noqa: SLF001
        spawn_all,
        *hook_chain.OWN,
    )
)
"""Code of a plain job's attempt that is ours: an exception raised into it would fail a job that has returned."""
