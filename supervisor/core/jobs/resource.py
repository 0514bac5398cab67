"""Resources shared within a worker process: a connection pool, a client, a model that took long to load.

A job asks for one by the type of a parameter. The worker opens it before the first job that does,
hands the same one to every later job, and closes it when the process leaves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from supervisor.core.model import Kind

_METHODS = ("open", "ping", "close")


class Resource:
    """Base of objects opened once in each worker process, and given to jobs by type.

    A subclass is made without arguments, after the fork; ``open`` connects. Its methods are either all
    plain, for plain jobs, or all ``async def``, for coroutine jobs: blocking code has no place in an event
    loop. One that defines none of them serves both.

    A test makes one itself, or a substitute of it, and passes it to the job like any argument.

    Raises:
        TypeError: its class is defined with some methods plain and others not.
    """

    __tenure_resource__: ClassVar[bool] = True  # how the registry recognises the annotation
    kind: ClassVar[Kind | None] = None
    """Whose jobs it serves; None: both."""

    timeout_s: ClassVar[float] = 10.0
    """How long ``open`` may take; a run that waits for it fails then, and is tried again as its job says."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = [getattr(cls, name) for name in _METHODS if getattr(cls, name) is not getattr(Resource, name)]
        kinds = {Kind.ASYNC if inspect.iscoroutinefunction(method) else Kind.SYNC for method in own}
        if len(kinds) > 1:
            raise TypeError(
                f"resource {cls.__module__}:{cls.__qualname__}: define {', '.join(_METHODS)} either all with "
                f"async def, for coroutine jobs, or all with def, for plain ones"
            )
        cls.kind = kinds.pop() if kinds else None

    def open(self) -> Any:
        """Connect. If it raises, the run that needed it fails, and the next makes a new resource and tries again."""

    def ping(self) -> Any:
        """Return if it still works, raise if it does not. Called every few seconds while no plain job runs."""

    def close(self) -> Any:
        """Let go. Called once, when the process leaves in good order, and only if ``open`` returned."""


def check_resource(job_name: str, kind: Kind, parameter: str, hint: Any) -> type[Resource]:
    """Return ``hint`` if a job of ``kind`` can be given one of it.

    Raises:
        ValueError: it cannot; names the remedy.
    """
    where = f"job {job_name}: parameter {parameter!r}"
    if hint is Resource or not (isinstance(hint, type) and issubclass(hint, Resource)):
        raise ValueError(f"{where}: annotate it with a subclass of Resource, not with {hint!r}")
    if hint.kind is not None and hint.kind is not kind:
        here, there = ("a coroutine", "plain") if kind is Kind.ASYNC else ("a plain function", "async")
        raise ValueError(
            f"{where}: the job is {here} and resource {hint.__name__} has {there} methods; "
            f"make both async def, or both def"
        )
    needed = [name for name, item in _constructor(hint).items() if item.default is item.empty]
    if needed:
        raise ValueError(f"{where}: a resource is made without arguments; __init__ of {hint.__name__} needs {needed}")
    return hint


def _constructor(hint: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    skipped = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return {name: item for name, item in inspect.signature(hint).parameters.items() if item.kind not in skipped}
