"""Middleware around every job: timing, tracing, context that jobs expect, translation of errors.

The order, from the outside in: the callbacks of ``Context.on_failure``, the middleware in the order in
which they were installed, the opening of resources, the job. So the first that was installed sees the
whole attempt, and the last one is next to the job.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar, Self

from supervisor.core.model import Kind
from supervisor.roles.worker.attempt.context import Context

_installed: list[Middleware] = []


class Middleware:
    """Base of wrappers of jobs: ``around`` for plain ones, ``around_async`` for coroutine ones. Define one or both.

    Each is to call ``call()`` once and return its result; an exception raised instead is how the attempt
    ends, and a value returned instead is its result. One that does not call it has run in the job's place.
    """

    __tenure_middleware__: ClassVar[bool] = True  # how the registry recognises the class

    def around(self, context: Context, call: Callable[[], Any]) -> Any:  # noqa: ARG002 - for those who override it
        """Run a plain job: ``call()`` is the rest of the chain."""
        return call()

    async def around_async(
        self,
        context: Context,  # noqa: ARG002 - for those who override it
        call: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Run a coroutine job: ``await call()`` is the rest of the chain."""
        return await call()

    def close(self, within_s: float) -> None:
        """Flush the remaining output: called when the worker leaves, after its last job. In a thread of its own or not.

        To return after about ``within_s`` seconds at the latest: the process ends then.
        """

    def install(self) -> Self:
        """Put this around every job of the program, inside of those installed before, and return it.

        To be called while modules are imported; one class can be installed once.

        Raises:
            ValueError: one of this class is installed already, or a method of it would never call the job.
        """
        kind = type(self)
        origin = f"{kind.__module__}:{kind.__qualname__}"
        _check(kind, origin)
        for index, other in enumerate(_installed):
            if f"{type(other).__module__}:{type(other).__qualname__}" != origin:
                continue
            if type(other) is kind:
                raise ValueError(f"middleware {origin} is installed twice; install one, or make a subclass of it")
            _installed[index] = self  # its module was imported again
            return self
        _installed.append(self)
        return self


def _check(kind: type[Middleware], origin: str) -> None:
    """Refuse middleware that only seems to call the job: all runs would finish, and none would have been executed."""
    for name in ("around", "around_async"):
        method = getattr(kind, name)
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise ValueError(f"middleware {origin}: {name} yields, so it would never call the job; return call()")
    if inspect.iscoroutinefunction(kind.around):
        raise ValueError(f"middleware {origin}: around is called for plain jobs, define it with def; see around_async")


def closing() -> tuple[Middleware, ...]:
    """Return those that want to know when the worker leaves, the innermost first."""
    return tuple(item for item in reversed(_installed) if type(item).close is not Middleware.close)


def chain(kind: Kind, without: Iterable[type] = ()) -> tuple[Middleware, ...]:
    """Return the middleware around jobs of ``kind``, the outermost first, but for instances of ``without``."""
    skipped = tuple(without)
    name = "around_async" if kind is Kind.ASYNC else "around"
    return tuple(
        item
        for item in _installed
        if not isinstance(item, skipped) and getattr(type(item), name) is not getattr(Middleware, name)
    )
