"""``queue.put`` and ``queue.get``, as Cloudforet's services call them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.compat.cloudforet.tasks import queue_get, runtime
from supervisor.compat.cloudforet.tasks.redaction import with_references
from supervisor.compat.cloudforet.tasks.schema import check, parse
from supervisor.compat.cloudforet.tasks.traces import traceparent_of
from supervisor.settings.sections.cloudforet import Bridge
from supervisor.store.producer.connection import current

STP = "cloudforet.stp"
EMIT = "cloudforet.emit"


def put(name: str, task: str | bytes | Mapping[str, Any]) -> str:
    """Put one task message into the queue ``name``, and return the id of its run.

    In a run of a task or a plan it comes into being when that run is acknowledged, and only then.

    Raises:
        TaskError: it is malformed; nothing is queued.
    """
    return put_all(name, [task])[0]


def put_all(name: str, tasks: Sequence[str | bytes | Mapping[str, Any]]) -> list[str]:
    """Put task messages into the queue ``name``, and return the ids of their runs.

    Raises:
        TaskError: one is malformed; none is queued.
    """
    checked = [parse(task) if isinstance(task, str | bytes) else check(plain(task)) for task in tasks]
    return [_put(name, task) for task in checked]


def get(name: str) -> bytes | None:
    """Take the oldest task message out of the queue ``name``, without executing it; None when there is none.

    Whoever takes one this way has it: it is on record as done, and nobody runs it again.
    """
    return queue_get.take(name)


def job_of(name: str) -> tuple[str, str | None]:
    """Return the job that a task of the queue ``name`` is a run of, and the queue of that run; None: the job's."""
    return (EMIT, None) if runtime.settings().bridge_of(name) is Bridge.EMIT else (STP, name)


def arguments_of(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the run that ``task`` becomes in the queue ``name``."""
    hidden = with_references(task)
    return {"task": hidden, "queue": name} if job_of(name)[0] == EMIT else {"task": hidden}


def plain(task: Any) -> Any:
    """Return ``task`` in its JSON form, as in Cloudforet: dates and the like are a mistake of the producer.

    Raises:
        TypeError: it holds values without a form in JSON.
    """
    return json.loads(json.dumps(task))


def _put(name: str, task: Mapping[str, Any]) -> str:
    job, queue = job_of(name)
    context = runtime.context()
    if context is not None:
        runtime.note_put()
        return context.spawn(job, arguments_of(name, task), queue=queue, traceparent=traceparent_of(task))
    return current().enqueue(job, arguments_of(name, task), queue=queue, traceparent=traceparent_of(task))
