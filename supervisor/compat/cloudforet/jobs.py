"""The jobs that execute Cloudforet's handlers and tasks: list ``supervisor.compat.cloudforet.jobs`` under ``jobs``.

All are plain functions: the code of services waits, and a worker that hangs in it can be killed.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from supervisor.compat.cloudforet.schedulers import is_handler
from supervisor.compat.cloudforet.tasks import planning, runtime, stages
from supervisor.compat.cloudforet.tasks.names import NotImportableError, resolve
from supervisor.compat.cloudforet.tasks.redaction import Hidden, guarded, resolved
from supervisor.compat.cloudforet.tasks.schema import TaskError, check, parse
from supervisor.core.errors import TenureError
from supervisor.core.jobs.registry import job
from supervisor.roles.worker.attempt.context import Context
from supervisor.settings.sections.cloudforet import Bridge
from supervisor.store.producer.connection import current
from supervisor.store.queues.bridges import Bridges


class NoBridgeError(TenureError):
    """A task would be pushed to a list that no queue of the configuration names. It may: another replica knows it."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"nothing was pushed: on this replica queue {queue[:200]!r} has no `bridge: emit`; set it under "
            f"cloudforet.queues on every replica, or drop this run"
        )


@job("cloudforet.plan", timeout="10m")
def plan(ctx: Context, backend: str, queue: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Have a scheduler class make its tasks, and put them into ``queue``.

    Args:
        ctx: the run's context.
        backend: the class, as ``module.Class``.
        queue: where its tasks go.
        options: arguments of its constructor, besides the queue.
    """
    with guarded(ctx, Hidden.of_settings()):
        return planning.plan(ctx, backend, queue, options or {})


@job("cloudforet.page")
def page(ctx: Context, queue: str, tasks: list[dict[str, Any]]) -> int:
    """Put one page of a large plan into ``queue``."""
    with runtime.running(ctx):
        planning.spawn(ctx, queue, tasks)
    return len(tasks)


@job("cloudforet.refused")
def refused(reason: str, task: Any = None) -> None:  # noqa: ARG001 - kept for inspection
    """Be dead: a task message that was rejected where it was made, kept with its reason."""
    raise TaskError(reason)


@job("cloudforet.stp", timeout="2h")
def stp(ctx: Context, task: dict[str, Any] | None = None, message: str | None = None) -> dict[str, Any]:
    """Execute one task message.

    Args:
        ctx: the run's context.
        task: the message, or
        message: its text, as it came out of a list of SpaceONE's.
    """
    # A message from elsewhere holds no reference of ours, and must not be able to ask for what one stands for.
    whole = parse(message) if message is not None else _whole(task)
    hidden = Hidden.of_task(whole)
    with guarded(ctx, hidden):
        kept: dict[str, Any] = hidden.scrubbed(stages.as_result(whole, stages.execute(whole, ctx)))
        return kept


@job("cloudforet.emit")
def emit(ctx: Context, task: dict[str, Any], queue: str) -> None:
    """Push one task message to the list from which SpaceONE's workers take the tasks of ``queue``.

    Once for this run, however often it is attempted, within a day. The way in is roles/agent/maintenance.py.

    Raises:
        NoBridgeError: the configuration does not give the tasks of that queue to SpaceONE's workers.
    """
    # The message has the token in it, and a run names its queue: whoever may enqueue one must not choose the list.
    if runtime.settings().bridge_of(queue) is not Bridge.EMIT:
        raise NoBridgeError(queue)
    producer = current()
    message = json.dumps(_whole(task), ensure_ascii=False)
    channel = runtime.settings().channel_of(queue)
    producer.run(Bridges(producer.keys).emit(channel=channel, run_id=ctx.run_id, message=message))


def _whole(task: Any) -> dict[str, Any]:
    """Return ``task`` with the token in place of references to it.

    It is judged with them: in the place of a word, which a problem quotes, a reference is none.
    """
    return check(resolved(check(task)))


@job("cloudforet.run", timeout="2h")
def run(ctx: Context, handler: str, options: dict[str, Any] | None = None) -> Any:
    """Call a handler: a scheduler class or one marked by ``schedule_handler``; with the context if it takes one.

    Args:
        ctx: the run's context.
        handler: ``module.name``.
        options: arguments of the class's constructor.
    """
    hidden = Hidden.of_settings()
    with guarded(ctx, hidden):
        found: Any = resolve(handler)
        if not is_handler(found):
            raise NotImportableError(
                f"{handler} is no handler: derive it from BaseScheduler and give it run(), or mark it with "
                f"@schedule_handler; both are in supervisor.compat.cloudforet"
            )
        call: Any = found(**options or {}).run if isinstance(found, type) else found
        return hidden.scrubbed(call(ctx) if inspect.signature(call).parameters else call())
