"""The base classes of Cloudforet's schedulers, for services that move over by changing imports.

They hold when a class is due and make its tasks. Nothing in them runs or waits: the leader fires by the trigger that
the loader read from an instance, and a worker calls ``create_task`` (tasks/planning.py) or, of a handler, ``run``
(jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from supervisor.compat.cloudforet import queue as queues
from supervisor.compat.cloudforet.tasks import runtime

Task = dict[str, Any]
H = TypeVar("H", bound=Callable[..., Any])
_MARK = "tenure_schedule_handler"


def schedule_handler(handler: H) -> H:
    """Mark a function, or a class with ``run``, as one that ``SCHEDULERS.NAME.handler`` may name."""
    setattr(handler, _MARK, True)
    return handler


def is_handler(found: Any) -> bool:
    """Return whether a configuration may have ``found`` called: a scheduler class, or one marked as a handler."""
    is_scheduler = isinstance(found, type) and issubclass(found, BaseScheduler)
    return callable(found) and (is_scheduler or getattr(found, _MARK, False) is True)


class BaseScheduler:
    """Makes tasks, or is a handler with ``run``; a subclass defines when and which.

    Args:
        queue: where its tasks go; or, of a handler, its interval in seconds, which the schedule keeps.
        handler: the reference that ``run`` calls, unless a subclass overrides it.
    """

    kind: ClassVar[str] = ""
    """How it is due: ``interval``, ``hourly`` or ``cron``."""

    def __init__(
        self, queue: str | float = "", handler: Callable[[], Any] | None = None, *, interval: float | None = None
    ) -> None:
        self.queue = queue if isinstance(queue, str) else ""
        self.interval = interval if isinstance(queue, str) else queue
        self.handler = handler
        self.config: Any = self.interval

    @property
    def scheduled_at(self) -> datetime | None:
        """Due time of this plan, in UTC, however late it is made; None outside of one."""
        context = runtime.context()
        return None if context is None else context.nominal

    def create_task(self) -> Sequence[Task]:
        """Return the task messages that are due now."""
        raise NotImplementedError(f"{type(self).__qualname__}.create_task is not implemented")

    def run(self) -> Any:
        """Do the work of a handler."""
        if self.handler is None:
            raise NotImplementedError(f"{type(self).__qualname__}.run is not implemented")
        return self.handler()

    def push_task(self) -> None:
        """Put every task that ``create_task`` returns into the queue.

        Raises:
            TaskError: one is malformed; none is queued.
        """
        queues.put_all(self.queue, self.create_task())


class IntervalScheduler(BaseScheduler):
    """Due every ``interval`` seconds."""

    kind: ClassVar[str] = "interval"

    def __init__(self, queue: str, interval: float) -> None:
        super().__init__(queue)
        self.config = interval


class HourlyScheduler(BaseScheduler):
    """Due every ``interval`` hours, at ``minute`` (``':MM'`` or ``'MM:SS'``)."""

    kind: ClassVar[str] = "hourly"

    def __init__(self, queue: str, interval: int = 1, minute: str = ":00") -> None:
        super().__init__(queue)
        self.config = interval
        self.minute = minute


class CronScheduler(BaseScheduler):
    """Due by a cron expression of five fields."""

    kind: ClassVar[str] = "cron"

    def __init__(self, queue: str, rule: str) -> None:
        super().__init__(queue)
        self.config = rule


class BaseWorker:
    """Replaces Cloudforet's worker process, which is a pool of workers here: nothing of it runs."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
