"""The hooks of one worker process: which a profile has, how they are called, for how long a run is put off.

Guarantees
    A profile without hooks for workers costs its runs nothing: no object is made for them.
    A call returns or raises within the timeout of its hook, also one that builds it. Plain methods run in threads, at
    most ``THREADS_MAX`` at once, and ``DISPATCHES_MAX`` of dispatchers; coroutine methods in the loop, or where there
    is none in their own. A hook is built where its methods run, by one call at a time.
    A run is put off for ``defer_max`` at most, by the clock of this process from when it first put it off; a hook that
    failed is asked again after 1 s, doubled up to 30 s. No attempt is charged.

Does not guarantee
    That a method which does not return is ended: its thread is given up, and so is its place among the threads. A
    process that loses half of these asks for its successor. A coroutine method that swallows its cancellation holds its
    run until the run's own timeout, which kills the process. That a hook which has coroutine methods, and blocks as it
    is built, holds up no other run of its loop.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from supervisor.clock import Clock
from supervisor.core.errors import TenureError
from supervisor.core.jobs.hooks import (
    REASON_CHARS_MAX,
    Hook,
    HookRegistry,
    Point,
    UnknownProfileError,
    Veto,
    failure_delay_s,
    plain_reason,
)
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.core.model import Kind, RunKey
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.run_memory import RefusedRuns
from supervisor.settings.schedules.hook_sources import (
    UnusableHookError,
    enabled_names,
    find_hook,
    known_hooks,
    points_of,
)
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.pipeline import HooksSettings
from supervisor.telemetry.masking import mask_text, text_of

if TYPE_CHECKING:
    from supervisor.roles.worker.attempt.webhooks import Webhook

THREADS_MAX = 8
DISPATCHES_MAX = 32
HUNG_MAX, HUNG_NS = THREADS_MAX // 2, 30 * SECOND_NS
FURTHER_MAX = 10_000


class HookFailedError(Exception):
    """A hook raised, did not answer in time, or answered neither yes nor no."""


@dataclass(slots=True)
class BoundHook:
    """A hook of one profile as it is asked in this process. Built when it is first needed, once."""

    hook: Hook
    config: Mapping[str, Any]
    points: frozenset[Point]
    timeout_s: float
    is_ignorable: bool = False
    target: Any = None
    turn: Lock = field(default_factory=Lock)  # of the call that builds it

    @property
    def name(self) -> str:
        """Name of the hook."""
        return self.hook.name

    def method(self, name: str, within_s: float = -1) -> Callable[..., Any]:
        """Return the method to call.

        Raises:
            HookFailedError: the hook cannot be built.
            TimeoutError: another call did not build it ``within_s``; the next one builds it anew.
        """
        if self.target is None:
            turn = self.turn
            if not turn.acquire(timeout=within_s):
                self.turn = Lock() if self.turn is turn else self.turn
                raise TimeoutError
            try:
                self._build()
            finally:
                turn.release()
        found: Callable[..., Any] = getattr(self.target, name)
        return found

    def _build(self) -> None:
        if self.target is not None:
            return
        assert self.hook.make is not None
        try:
            target = self.hook.make(self.config)
        except (SoftTimeout, Interrupted):
            raise
        except (Exception, SystemExit) as error:
            raise HookFailedError(f"cannot be built: {describe(error)}") from error
        if self.target is None:  # else one that was given up came first
            self.target = target


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hooks of the runs of one profile: point to hooks, in their order."""

    at: Mapping[Point, tuple[BoundHook, ...]]
    defer_max_s: float

    @property
    def dispatcher(self) -> BoundHook | None:
        """Dispatcher: it does the work of a run in the job's place. None without one."""
        found = self.at[Point.DISPATCH]
        return found[0] if found else None


class Pipeline:
    """The profiles of one worker process."""

    def __init__(self, settings: Settings, clock: Clock, kind: Kind) -> None:
        self._settings = settings
        self._kind = kind
        self._clock = clock
        self._known: HookRegistry | None = None
        self._made: dict[str, Hooks | None] = {}  # by profile: a hook is built once, however many jobs it is for
        self._threads: ThreadPoolExecutor | None = None
        self._dispatchers: ThreadPoolExecutor | None = None  # of their own: a dispatcher may take as long as a job
        self.late: dict[Future[Any], int] = {}  # calls that did not return in time, and since when they are late
        self._webhooks: list[Webhook] = []
        self._waiting = RefusedRuns()
        self._further: OrderedDict[RunKey, tuple[int, int]] = OrderedDict()  # the same, where those have all the room

    def of(self, profile: str) -> Hooks | None:
        """Return the hooks of a profile, empty for the default; None when no worker has anything to ask.

        Raises:
            UnknownProfileError: the configuration of this process has no such profile.
        """
        name = profile or DEFAULT_PROFILE
        if name in self._made:
            return self._made[name]
        section = self._settings.profiles.get(name)
        if section is None:
            if profile:
                raise UnknownProfileError(f"profile {profile!r} is not in this worker's configuration; add it")
            return None
        hooks = section.hooks
        try:
            found = [self._ask(hooks, each) for each in enabled_names(hooks)]
        except (TenureError, UnusableHookError) as error:  # where the configuration was checked, it could be used
            raise UnknownProfileError(f"profile {name!r} cannot be used here: {error}") from error
        found = [asked for asked in found if asked.points and not asked.hook.is_check]
        at = {point: tuple(asked for asked in found if point in asked.points) for point in Point}
        made = self._made[name] = Hooks(at, hooks.defer_max_s) if found else None
        return made

    def _ask(self, hooks: HooksSettings, name: str) -> BoundHook:
        self._known = self._known or known_hooks(self._settings)
        hook = find_hook(name, self._known)
        webhook = self._settings.webhooks.get(name)
        timeout_s, is_ignorable = hooks.timeout_s, False
        if webhook is not None:
            from supervisor.roles.worker.attempt.webhooks import Webhook, patience_s  # noqa: PLC0415 - aiohttp, if it is used

            asked_over_http = Webhook(name, webhook, is_kept=self._kind is Kind.ASYNC, wall_ms=self._clock.wall_ms)
            self._webhooks.append(asked_over_http)
            hook = Hook(name, hook.origin, hook.points, make=lambda _: asked_over_http, has_coroutines=True)
            timeout_s, is_ignorable = patience_s(webhook), webhook.ignorable
        points = frozenset(points_of(hooks, hook))
        return BoundHook(hook, hooks.config.get(name, {}), points, timeout_s, is_ignorable)

    # Asking --------------------------------------------------------------------------------------

    def step(self, asked: BoundHook, name: str, *args: Any, within_s: float = math.inf) -> Callable[[], Any]:
        """Return the call of a method of a hook, as the driver of this kind of pool makes it."""
        call: Callable[..., Any] = self.call_async if self._kind is Kind.ASYNC else self.call
        return partial(call, asked, name, *args, within_s=min(within_s, asked.timeout_s))

    def dispatch(self, asked: BoundHook, context: Any) -> Callable[[], Any]:
        """Return the call that lets a dispatcher do a run's work: without the time limit of a hook."""
        return partial(self._dispatch_async if self._kind is Kind.ASYNC else _dispatch, asked, context)

    async def _dispatch_async(self, asked: BoundHook, context: Any) -> Any:
        if (method := _coroutine(asked, Point.DISPATCH.value)) is not None:
            return await method(context)
        if self._dispatchers is None:
            self._dispatchers = ThreadPoolExecutor(DISPATCHES_MAX, thread_name_prefix="dispatch")
        future = self._dispatchers.submit(copy_context().run, _dispatch, asked, context)
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._let_go(future)

    def call(self, asked: BoundHook, name: str, *args: Any, within_s: float) -> Any:
        """Call a method of a hook from a thread without a loop, and wait for it as long as it may take.

        Raises:
            HookFailedError: it failed.
        """
        try:
            future = self._submit(asked, name, args, within_s)
            try:
                return future.result(within_s)
            finally:
                self._let_go(future)
        except TimeoutError:
            raise HookFailedError(f"did not answer within {round(within_s, 2):g} s") from None
        except Exception as error:
            raise _failure(error) from error

    async def call_async(self, asked: BoundHook, name: str, *args: Any, within_s: float) -> Any:
        """Call a method of a hook from an event loop. Raises HookFailedError like ``call``."""
        try:
            async with asyncio.timeout(within_s):
                if (method := _coroutine(asked, name)) is not None:
                    return await method(*args)
                future = self._submit(asked, name, args, within_s)
                try:
                    return await asyncio.wrap_future(future)
                finally:
                    self._let_go(future)
        except TimeoutError:
            raise HookFailedError(f"did not answer within {round(within_s, 2):g} s") from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _failure(error) from error  # nobody cancelled the run: it is the hook's own
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise _failure(error) from error

    def _submit(self, asked: BoundHook, name: str, args: tuple[Any, ...], within_s: float) -> Future[Any]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="hook")
        until_ns = self._clock.elapsed_ns() + round(within_s * SECOND_NS)
        return self._threads.submit(copy_context().run, self._in_thread, asked, name, args, until_ns)

    def _in_thread(self, asked: BoundHook, name: str, args: tuple[Any, ...], until_ns: int) -> Any:
        """Call a method, in a thread of the pool; a coroutine function in a loop of its own.

        Raises:
            HookFailedError: it raised, any exception: ``SystemExit`` would end the run as if its job had raised it.
        """
        try:
            method = asked.method(name, asked.timeout_s)
            if (left_ns := until_ns - self._clock.elapsed_ns()) > 0:
                if not inspect.iscoroutinefunction(method):
                    return method(*args)
                return asyncio.run(_bounded(method, args, left_ns / SECOND_NS))
        except TimeoutError:
            raise
        except BaseException as error:
            raise _failure(error) from error
        raise TimeoutError  # it took so long to build: nobody waits for an answer, and what it would take was undone

    def _let_go(self, future: Future[Any]) -> None:
        """Wait for a call no longer; one that goes on keeps its thread."""
        if not (future.cancel() or future.done()):
            self.late[future] = self._clock.elapsed_ns()
            future.add_done_callback(lambda done: self.late.pop(done, None))

    @property
    def is_stuck(self) -> bool:
        """True if calls that hang keep so many threads that the process is to be replaced: nothing ends a thread."""
        late_ns = self._clock.elapsed_ns() - HUNG_NS
        return len(self.late) >= HUNG_MAX and sum(since <= late_ns for since in [*self.late.values()]) >= HUNG_MAX

    async def close_async(self, within_s: float) -> None:
        """Close the connections that webhooks kept, and let threads go; returns after ``within_s`` at the latest."""
        for threads in (self._threads, self._dispatchers):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        if not self._webhooks:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(webhook.close() for webhook in self._webhooks), return_exceptions=True)

    # Putting off ---------------------------------------------------------------------------------

    def settled(self, key: RunKey) -> None:
        """Note that nothing keeps a run from being executed any more."""
        if self._waiting or self._further:
            self._waiting.pop(key, None)
            self._further.pop(key, None)

    def final(self, veto: Veto, key: RunKey, defer_max_s: float) -> Veto:
        """Return the end of a run that a hook will not have now: with a delay, or rejected without one."""
        if veto.delay_s is None and not veto.is_failure:
            self.settled(key)
            return veto
        now_ns = self._clock.elapsed_ns()
        since_ns, count = waiting = self._waiting.get(key) or self._further.pop(key, (now_ns, 0))
        if now_ns - since_ns >= defer_max_s * SECOND_NS:
            self._waiting.pop(key, None)
            return veto._replace(delay_s=None, reason=f"{veto.reason}; put off for {defer_max_s:g} s already")
        if self._waiting.note(key, now_ns, kept_ns=int(2 * defer_max_s * SECOND_NS), before=waiting) is None:
            # Nobody says which of those were executed elsewhere: until as many were put off after it
            self._further[key] = since_ns, count + 1
            if len(self._further) > FURTHER_MAX:
                self._further.popitem(last=False)
        return veto._replace(delay_s=failure_delay_s(count + 1)) if veto.delay_s is None else veto


def _coroutine(asked: BoundHook, name: str) -> Callable[..., Any] | None:
    """Return a coroutine method, of a hook that is built in this loop if it has any: it may need the loop for that."""
    method = asked.method(name) if asked.hook.has_coroutines else None
    return method if inspect.iscoroutinefunction(method) else None


def _dispatch(asked: BoundHook, context: Any) -> Any:
    method = asked.method(Point.DISPATCH.value)
    return asyncio.run(method(context)) if inspect.iscoroutinefunction(method) else method(context)


def describe(error: BaseException) -> str:
    """Return an error as one line, without secrets."""
    said = text_of(error)
    text = plain_reason(mask_text(said, REASON_CHARS_MAX)) if said else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failure(error: BaseException) -> HookFailedError:
    return error if isinstance(error, HookFailedError) else HookFailedError(describe(error))


async def _bounded(method: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> Any:
    async with asyncio.timeout(timeout_s):
        return await method(*args)
