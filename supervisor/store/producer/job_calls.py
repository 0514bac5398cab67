"""The calls of a job that enqueue it with the arguments of its function: ``send.enqueue(to="a@x")``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs import registry as jobs
from supervisor.store.producer.bulk import Totals
from supervisor.store.producer.connection import current
from supervisor.store.producer.options import Args, EnqueueOptions
from supervisor.store.producer.producer import Producer
from supervisor.store.producer.run_handle import Run
from supervisor.store.queues.runs import Enqueued


class JobCalls:
    """A job with the options of the runs to enqueue. Types for callers: ``tenure/declaring.py``."""

    __slots__ = ("_function", "_options")

    def __init__(self, function: Callable[..., Any], options: EnqueueOptions | None = None) -> None:
        self._function = function
        self._options: Any = options or {}

    def options(self, **options: Unpack[EnqueueOptions]) -> JobCalls:
        """Return the same job with ``options`` for the runs that are enqueued by it."""
        return JobCalls(self._function, {**self._options, **options})

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Enqueue a run with these arguments; return its handle. Raises what ``tenure.enqueue`` raises."""
        producer = current()
        return self._handle(producer, producer.put(self._function, self.arguments(*args, **kwargs), **self._options))

    async def enqueue_async(self, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Do the same without blocking the event loop."""
        producer = current()
        put = producer.put_async(self._function, self.arguments(*args, **kwargs), **self._options)
        return self._handle(producer, await put)

    def enqueue_many(self, many: Iterable[Args], **options: Any) -> Totals:
        """Enqueue a run for each of ``many``, as ``tenure.enqueue_many`` does."""
        return current().enqueue_many(self._function, many, **{**self._options, **options})

    async def enqueue_many_async(self, many: Iterable[Args], **options: Any) -> Totals:
        """Do the same without blocking the event loop for longer than packing a batch takes."""
        return await current().enqueue_many_async(self._function, many, **{**self._options, **options})

    def arguments(self, /, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Return the arguments of a call by name, as ``enqueue_many`` takes them.

        Raises:
            ArgumentsError: there are more than the job takes, or one is given twice. Names and types are checked
                where the run is enqueued.
        """
        if not args:
            return kwargs
        spec = jobs.registry.find(self._function)
        names = spec.arguments.__struct_fields__
        if len(args) > len(names):
            raise ArgumentsError(
                f"job {spec.name} takes {len(names)} arguments, got {len(args)}; its signature is {spec.signature}"
            )
        given = dict(zip(names, args, strict=False))
        if twice := sorted(given.keys() & kwargs.keys()):
            raise ArgumentsError(f"job {spec.name}: {', '.join(twice)} is given twice, by its place and by its name")
        return {**given, **kwargs}

    def _handle(self, producer: Producer, one: Enqueued) -> Run[Any]:
        spec = jobs.registry.find(self._function)
        return Run(one.run_id, spec.name, self._options.get("queue") or spec.base.queue, producer)
