"""The resources of one worker process: opened when first needed, asked now and then, closed in reverse order.

Guarantees
    One of each class, however many runs wait for its first opening at once.
    A resource that cannot be opened fails the runs that need it, as any exception would, and no others.
    A ping that fails is logged once, counted, and reported by ``failing`` until one succeeds.
    Closing has a bound, and an error in one close stops no other.

Does not guarantee
    A bound on a plain resource in ``open`` and ``ping``, but for the soft timeout of the run that
    waits and the hang limit of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from supervisor.clock import Clock
from supervisor.core.errors import TenureError
from supervisor.core.jobs.resource import Resource
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.result_check import must_be_done
from supervisor.roles.worker.process.loop_tasks import own_task
from supervisor.telemetry import metrics
from supervisor.telemetry.masking import text_of

PING_EVERY_S = 10.0
_OPEN = "open the resource there, with async def for coroutine jobs"
PING_S = 5.0  # how long an asynchronous ping may take

T = TypeVar("T")
log = structlog.get_logger("tenure.worker")


class ResourceError(TenureError):
    """A resource that a job needs cannot be opened."""

    def __init__(self, kind: type[Resource], error: BaseException) -> None:
        text = text_of(error)
        what = f": {text}" if text else ""
        super().__init__(
            f"resource {name_of(kind)} cannot be opened: {type(error).__name__}{what}; "
            f"look at what it connects to, the next run of a job that needs it tries again"
        )


class _CloseTimeoutError(Exception):
    """A plain resource took too long to close."""


def name_of(kind: type[Resource]) -> str:
    """Return the name of a resource in logs and metrics."""
    return f"{kind.__module__}:{kind.__qualname__}"


class Resources:
    """Resources shared by the jobs of this process."""

    def __init__(self, clock: Clock, on_ill: Callable[[int], None] | None = None) -> None:
        self._clock = clock
        self._on_ill = on_ill or (lambda _count: None)
        self.opened: dict[type[Resource], Resource] = {}  # in the order in which they were opened
        self._opening: dict[type[Resource], asyncio.Task[Resource | BaseException]] = {}
        self._pinging: asyncio.Task[None] | None = None
        self._look_at_ns = 0
        self.failing: dict[str, str] = {}
        """Resources whose last ping failed, and how."""

    def get(self, kind: type[Resource]) -> Resource:
        """Return the resource of ``kind`` for a plain job; open it if it is not.

        Raises:
            ResourceError: it cannot be opened.
        """
        resource = self.opened.get(kind)
        if resource is None:
            try:
                resource = kind()
                must_be_done(resource.open(), _OPEN)
            except (SoftTimeout, Interrupted):
                raise
            except BaseException as error:  # SystemExit too: as its job's it would end the run as if that was called
                raise _failed_to_open(kind, error) from error
            self._has_opened(kind, resource)
        return resource

    async def get_async(self, kind: type[Resource]) -> Resource:
        """Return the resource of ``kind`` for a coroutine job; open it if it is not.

        Raises:
            ResourceError: it cannot be opened, or not in its time.
        """
        resource = self.opened.get(kind)
        if resource is not None:
            return resource
        opening = self._opening.get(kind)
        if opening is None:
            # In a task of its own: the run that asked first may be cancelled, and others wait for the same.
            opening = self._opening[kind] = _task(self._open(kind))
        found = await asyncio.shield(opening)
        if isinstance(found, BaseException):
            raise ResourceError(kind, found) from found
        return found

    async def _open(self, kind: type[Resource]) -> Resource | BaseException:
        """Open it. Errors are returned: a SystemExit raised in a task would end the loop, not the run."""
        try:
            async with asyncio.timeout(kind.timeout_s):
                resource = kind()
                must_be_done(await _awaited(resource.open()), _OPEN)
        except BaseException as error:  # noqa: BLE001 - see above
            _failed_to_open(kind, error)
            return error
        else:
            self._has_opened(kind, resource)
            if self._pinging is None:
                self._pinging = _task(self._ping_for_ever())
            return resource
        finally:
            del self._opening[kind]

    def _has_opened(self, kind: type[Resource], resource: Resource) -> None:
        self.opened[kind] = resource
        self._look_at_ns = self._clock.elapsed_ns() + round(PING_EVERY_S * SECOND_NS)
        log.info("resource_opened", resource=name_of(kind))

    # Health --------------------------------------------------------------------------------------

    def ping_if_due(self) -> None:
        """Ping resources shared by plain jobs, if it is time. For a moment when no job runs."""
        if self._clock.elapsed_ns() < self._look_at_ns:
            return
        for kind, resource in self.opened.items():
            try:
                resource.ping()
            except (SoftTimeout, Interrupted):
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it raises, it says that it does not work
                self._has_failed(kind, error)
            else:
                self._has_answered(kind)
        self._look_at_ns = self._clock.elapsed_ns() + round(PING_EVERY_S * SECOND_NS)

    async def _ping_for_ever(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            await self.ping_all()

    async def ping_all(self) -> None:
        """Ping resources shared by coroutine jobs, one after the other."""
        for kind, resource in list(self.opened.items()):
            try:
                async with asyncio.timeout(PING_S):
                    await _awaited(resource.ping())
            except BaseException as error:  # the same
                if _ends_task(error):
                    raise
                self._has_failed(kind, error)
            else:
                self._has_answered(kind)

    def _has_failed(self, kind: type[Resource], error: BaseException) -> None:
        metrics.RESOURCE_FAILURES.labels(name_of(kind), "ping").inc()
        if name_of(kind) not in self.failing:
            log.error("resource_failing", resource=name_of(kind), error=text_of(error, repr))
        self.failing[name_of(kind)] = text_of(error, repr)
        self._on_ill(len(self.failing))

    def _has_answered(self, kind: type[Resource]) -> None:
        if self.failing.pop(name_of(kind), None) is not None:
            log.info("resource_back", resource=name_of(kind))
            self._on_ill(len(self.failing))

    # The end -------------------------------------------------------------------------------------

    def close(self, within_s: float) -> None:
        """Close open resources, the last first; those still open after ``within_s`` are left to the process's end."""
        until_ns = self._clock.elapsed_ns() + round(within_s * SECOND_NS)
        for kind, resource in self._taken():
            left_s = (until_ns - self._clock.elapsed_ns()) / SECOND_NS
            try:
                with _alarm(left_s / (len(self.opened) + 1)):  # the others are to have a share of it
                    resource.close()
            except BaseException as error:  # noqa: BLE001 - the others are to be closed all the same
                _failed_to_close(kind, error)

    async def close_async(self, within_s: float) -> None:
        """Do the same in an event loop."""
        if self._pinging is not None:
            self._pinging.cancel()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        for kind, resource in self._taken():
            left_s = max(0.0, until_s - loop.time())
            try:
                async with asyncio.timeout(left_s / (len(self.opened) + 1)):
                    await _awaited(resource.close())
            except BaseException as error:  # the others are to be closed all the same
                if _ends_task(error):
                    raise
                _failed_to_close(kind, error)

    def _taken(self) -> Iterator[tuple[type[Resource], Resource]]:
        while self.opened:
            yield self.opened.popitem()


def _task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Do ``work`` for all runs: its lines in the log do not name the one that happened to be first."""
    return own_task(work, contextvars.Context())


def _ends_task(error: BaseException) -> bool:
    """Return whether somebody ends this task by ``error``; else it is of the code that was called."""
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, GeneratorExit)
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _failed_to_open(kind: type[Resource], error: BaseException) -> ResourceError:
    metrics.RESOURCE_FAILURES.labels(name_of(kind), "open").inc()
    log.error("resource_unopened", resource=name_of(kind), error=text_of(error, repr))
    return ResourceError(kind, error)


def _failed_to_close(kind: type[Resource], error: BaseException) -> None:
    metrics.RESOURCE_FAILURES.labels(name_of(kind), "close").inc()
    log.warning("resource_unclosed", resource=name_of(kind), error=text_of(error, repr) or "it took too long")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise in the block once ``seconds`` are over. Only in a main thread; elsewhere there is no such signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: Any) -> None:
        raise _CloseTimeoutError

    handler: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, max(1e-6, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # of a test that is bounded in the same way
