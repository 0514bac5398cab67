"""The handle of a run: its identity, and questions about it, asked from anywhere and at any time."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer
    from supervisor.store.producer.run_asking import RunQueries
    from supervisor.store.producer.run_status import ChildPage, RunStatus
    from supervisor.store.queues.run_records import Tally

R = TypeVar("R")
"""Type of the run's result. The handle alone carries it, for type checkers: a run of another version may differ."""


@dataclass(frozen=True)  # no slots: typing sets an attribute on what Run[R](…) makes, and expects AttributeError
class Run(Generic[R]):
    """A run that was enqueued. ``Run(run_id)`` makes the handle of one whose id is known.

    ``await run`` is ``await run.result_async()``. Handles of equal ids are equal, and can be pickled.
    """

    id: str
    """Its identity. Where the job is ``unique`` and an unfinished run holds the key, it is that run's."""

    job: str = field(default="", compare=False)
    """Name of its job; empty if not known."""

    queue: str = field(default="", compare=False)
    """Queue it was enqueued into; empty if not known."""

    producer: Producer | None = field(default=None, compare=False, repr=False)
    """The producer to ask about it; None: that of the process."""

    def __str__(self) -> str:
        return self.id

    def __reduce__(self) -> tuple[type[Run[R]], tuple[str, str, str]]:
        """Travel without the producer, whose connections belong to one process."""
        return Run, (self.id, self.job, self.queue)

    def status(self) -> RunStatus:
        """State of the run at this moment, with attempts, times and the last error.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        asking = self._asking()
        return asking.answer(asking.status(self.id, self.queue))

    async def status_async(self) -> RunStatus:
        """State of the run, without blocking the event loop; see ``status``."""
        asking = self._asking()
        return await asking.answer_async(asking.status(self.id, self.queue))

    def result(self, timeout: float | str | timedelta | None = None) -> R:
        """Wait until the run has ended, and return its result, as its job's return annotation has it.

        Where the job is not imported the result is plain JSON values.

        Args:
            timeout: seconds, a duration such as ``"30s"``, or a ``timedelta``; up to 366 days. None: for ever.

        Raises:
            JobFailedError: the run ended without success; ``type``, ``message`` and ``attempt`` say why.
            RunCancelledError: it was ended on request, or replaced by a newer run.
            ResultGoneError: the result expired or was not kept, or the cluster does not know the run.
            ResultTypeError: the result does not fit the annotation.
            RunTimeoutError: it did not end in time, and goes on; it is a ``TimeoutError``.
            StoreUnavailableError: Redis does not answer. An outage after the first answer is waited out.
        """
        asking = self._asking()
        found: R = asking.answer(asking.result(self.id, self.queue, timeout, job=self.job), self.id, self.queue)
        return found

    async def result_async(self, timeout: float | str | timedelta | None = None) -> R:  # noqa: ASYNC109 - as of result
        """Result of the run, awaited without blocking the event loop; see ``result``."""
        asking = self._asking()
        found: R = await asking.answer_async(
            asking.result(self.id, self.queue, timeout, job=self.job), self.id, self.queue
        )
        return found

    def __await__(self) -> Generator[Any, Any, R]:
        """Wait for the result without a bound."""
        return self.result_async().__await__()

    def cancel(self, reason: str = "") -> bool:
        """End the run: at once if it waits, on request if it is executed. Return False if it had ended.

        Args:
            reason: for the history; up to 200 characters count.

        Raises:
            StoreUnavailableError: Redis does not answer; calling again does no harm.
            StoreRefusedError: it waits, a schedule or another run counts it, and the Redis user may not write that.
        """
        asking = self._asking()
        return asking.answer(asking.cancel(self.id, self.queue, reason))

    async def cancel_async(self, reason: str = "") -> bool:
        """End the run without blocking the event loop; see ``cancel``."""
        asking = self._asking()
        return await asking.answer_async(asking.cancel(self.id, self.queue, reason))

    def tally(self) -> Tally | None:
        """Counts of the runs below this one: total, left, by outcome; None if it spawned none, or they expired."""
        asking = self._asking()
        return asking.answer(asking.tally(self.id))

    async def tally_async(self) -> Tally | None:
        """Counts of the runs below this one, without blocking the event loop."""
        asking = self._asking()
        return await asking.answer_async(asking.tally(self.id))

    def children(self, *, results: bool = False, start: int = 0, limit: int = 100) -> ChildPage:
        """States of numbered children, in the order in which they were spawned, a page at a time.

        Args:
            results: with the result of each that was ok.
            start: number of the first child of the page, from 0.
            limit: most children of the page, 1 to 100.

        Raises:
            ValueError: ``start`` or ``limit`` is out of its range.
        """
        asking = self._asking()
        return asking.answer(asking.children(self.id, has_results=results, start=start, limit=limit))

    async def children_async(self, *, results: bool = False, start: int = 0, limit: int = 100) -> ChildPage:
        """States of numbered children, without blocking the event loop; see ``children``."""
        asking = self._asking()
        return await asking.answer_async(asking.children(self.id, has_results=results, start=start, limit=limit))

    def _asking(self) -> RunQueries:
        if self.producer is not None:
            return self.producer.asking
        from supervisor.store.producer.connection import current  # noqa: PLC0415 - a handle loads no Redis client

        return current().asking


def must_be_awaited(value: Any) -> TypeGuard[Awaitable[Any]]:
    """Return whether work is done by awaiting ``value``. The handle of a run only waits for the end of that run."""
    kind = type(value)  # a proxy answers for what it stands for, by code of its own
    return (issubclass(kind, Awaitable) and not issubclass(kind, Run)) or (kind is GeneratorType and isawaitable(value))
