"""A plan: a scheduler class makes its tasks, on a worker, and all of them come into being in one step.

Guarantees
    The tasks of a plan are in their queue when its run is acknowledged, all of them or none.
    A task that is malformed or too large is dead at once, with the reason and masked metadata; the others are not held
    up. Of very many such tasks the first hundred are kept, and the result counts them all.
    A class that cannot be imported ends the run at once; ``create_task`` that raises is a failed attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from supervisor.compat.cloudforet import queue as queues
from supervisor.compat.cloudforet.tasks.names import NotImportableError, resolve
from supervisor.compat.cloudforet.tasks.redaction import CONTROL, Hidden, masked, with_references
from supervisor.compat.cloudforet.tasks.runtime import traceparent_of
from supervisor.compat.cloudforet.tasks.schema import TaskError, check
from supervisor.core.errors import TenureError
from supervisor.core.json_values import misfit
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.roles.worker.attempt.context import Context
from supervisor.telemetry import metrics

TASKS_MAX = 10_000
DIRECT_MAX = 500
"""Up to so many tasks are children of the plan itself; more are its grandchildren, a page each."""

PAGE_TASKS_MAX = 200
PAGE_BYTES_MAX = 48 * 1024
TASK_BYTES_MAX = PAYLOAD_BYTES_MAX - 4096
"""What a task may have: the rest of the run that it becomes has room beside it."""

REFUSED_MAX = 100
REFUSED_BYTES_MAX = 16 * 1024
"""How many that were refused are kept, and the largest that is kept with its content."""

PAGE = "cloudforet.page"
REFUSED = "cloudforet.refused"


class PlanError(TenureError):
    """``create_task`` failed."""


def plan(context: Context, backend: str, queue: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Have ``backend`` make its tasks, and spawn them; return how many, and how many were refused.

    Raises:
        NotImportableError: there is no such scheduler class.
        PlanError: it failed, in words without secrets.
    """
    found = resolve(backend)
    if not callable(getattr(found, "create_task", None)):
        raise NotImportableError(
            f"class {backend} has no create_task; derive it from a scheduler of supervisor.compat.cloudforet"
        )
    tasks = _tasks(found, queue, options)
    if not tasks:
        metrics.CLOUDFORET_EMPTY_PLANS.inc()
        return {"tasks": 0, "skipped": "empty"}
    good, refused = _sorted(context, queue, tasks)
    spawn(context, queue, good)
    return {"tasks": len(good), "refused": refused} if refused else {"tasks": len(good)}


def _tasks(found: Any, queue: str, options: Mapping[str, Any]) -> list[Any]:
    try:
        made = found(queue=queue, **options).create_task()
        tasks = _listed(made)
    except CONTROL:
        raise
    except BaseException as error:  # noqa: BLE001 - any code may stand there, and sys.exit(text) is an error too
        text = Hidden.of_settings().scrub(f"{type(error).__name__}: {error}")
        cause = PlanError(text).with_traceback(error.__traceback__)
        raise PlanError(f"{found.__qualname__}.create_task failed: {text}") from cause
    if len(tasks) > TASKS_MAX:
        raise PlanError(f"{found.__qualname__}.create_task made over {TASKS_MAX} tasks; make fewer and larger ones")
    return tasks


def _listed(made: Any) -> list[Any]:
    if isinstance(made, str | bytes | Mapping):
        raise TypeError(f"it must return a list of tasks, and returned one {type(made).__name__}")
    return list(islice(made or (), TASKS_MAX + 1))


def _sorted(context: Context, queue: str, tasks: Iterable[Any]) -> tuple[list[dict[str, Any]], int]:
    """Return the tasks that are in order, and how many are not; those are spawned to be dead with their reason."""
    good: list[dict[str, Any]] = []
    refused = 0
    for number, task in enumerate(tasks):
        try:
            good.append(_fitting(queue, task))
        except TaskError as error:
            reason, shown = str(error), masked(task)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            reason, shown = f"the task message is rejected: it is no JSON: {type(error).__name__}", None
        else:
            continue
        refused += 1
        if refused <= REFUSED_MAX:
            hidden = Hidden.of_task(task)
            kept = {"reason": hidden.scrub(reason), "task": hidden.scrubbed(_small(shown))}
            context.spawn(REFUSED, kept, key=f"refused-{number}")
    return good, refused


def _fitting(queue: str, task: Any) -> dict[str, Any]:
    """Return ``task`` in its JSON form, if it is one and can become a run.

    Raises:
        TaskError: it is malformed, or too large.
    """
    found = check(queues.plain(task))
    arguments = queues.arguments_of(queue, found)
    body = msgspec.json.encode(arguments)
    if problem := misfit(arguments, body):
        raise TaskError(f"the task message is rejected: {problem}")
    size = len(body)
    if size > TASK_BYTES_MAX:
        remedy = "store the data elsewhere and pass a reference"
        raise TaskError(f"the task message is rejected: it has {size} bytes, the limit is {TASK_BYTES_MAX}; {remedy}")
    return found


def _small(task: Any) -> Any:
    try:
        return task if len(msgspec.json.encode(task)) <= REFUSED_BYTES_MAX else None
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


def spawn(context: Context, queue: str, tasks: list[dict[str, Any]]) -> None:
    """Spawn a run for each task: of ``context``, or many of them of runs in between."""
    if len(tasks) <= DIRECT_MAX:
        for number, task in enumerate(tasks):
            job, where = queues.job_of(queue)
            arguments, trace = queues.arguments_of(queue, task), traceparent_of(task)
            context.spawn(job, arguments, queue=where, key=number, traceparent=trace)
        return
    page: list[dict[str, Any]] = []
    size = 0
    for task in tasks:
        task_size = len(msgspec.json.encode(task))
        if page and (len(page) >= PAGE_TASKS_MAX or size + task_size > PAGE_BYTES_MAX):
            _spawn_page(context, queue, page)
            page, size = [], 0
        page.append(task)
        size += task_size
    _spawn_page(context, queue, page)


def _spawn_page(context: Context, queue: str, page: list[dict[str, Any]]) -> None:
    context.spawn(PAGE, {"queue": queue, "tasks": with_references(page)})
