"""``queue.put`` and ``queue.get``, as Cloudforet's services call them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.clock import SystemClock
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.redaction import resolved, with_references
from supervisor.compat.cloudforet.tasks.runtime import traceparent_of
from supervisor.compat.cloudforet.tasks.schema import check, parse
from supervisor.core.model import Kind, Outcome
from supervisor.settings.sections.cloudforet import Bridge
from supervisor.store.producer.connection import current
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack, FetchedRun

STP = "cloudforet.stp"
EMIT = "cloudforet.emit"


def put(name: str, task: str | bytes | Mapping[str, Any]) -> str:
    """Put one task message into the queue ``name``, and return the id of its run.

    In a run of a task or a plan it comes into being when that run is acknowledged, and only then.

    Raises:
        TaskError: it is malformed, or holds the system token within a text; nothing is queued.
    """
    return put_all(name, [task])[0]


def put_all(name: str, tasks: Sequence[str | bytes | Mapping[str, Any]]) -> list[str]:
    """Put task messages into the queue ``name``, and return the ids of their runs.

    Raises:
        TaskError: one is malformed, or holds the system token within a text; none is queued.
    """
    checked = [parse(task) if isinstance(task, str | bytes) else check(plain(task)) for task in tasks]
    given = [(task, arguments_of(name, task)) for task in checked]  # all of them, before the first is queued
    return [_put(name, task, arguments) for task, arguments in given]


def get(name: str) -> bytes | None:
    """Take the oldest task message out of the queue ``name``, without executing it; None when there is none.

    Whoever takes one this way has it: it is on record as done, and nobody runs it again.
    """
    producer = current()
    queues, sessions = Queues(producer.keys), Sessions(producer.keys)
    session = f"taker.{secrets.token_hex(6)}"
    producer.run(sessions.open(session, {"slot": "queue.get", "kind": Kind.SYNC.value, "queues": name}))
    try:
        reply = producer.run(
            queues.turn(session=session, seq=1, kind=Kind.SYNC, queues=[name], want=1, want_suspect=False)
        )
        return _acknowledge(producer, queues, session, reply.runs[0]) if reply.runs else None
    finally:
        producer.run(sessions.close(session))


def job_of(name: str) -> tuple[str, str | None]:
    """Return the job that a task of the queue ``name`` is a run of, and the queue of that run; None: the job's."""
    return (EMIT, None) if runtime.settings().bridge_of(name) is Bridge.EMIT else (STP, name)


def arguments_of(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the run that ``task`` becomes in the queue ``name``.

    Raises:
        TaskError: it holds the system token within a text.
    """
    hidden = with_references(task)
    return {"task": hidden, "queue": name} if job_of(name)[0] == EMIT else {"task": hidden}


def plain(task: Any) -> Any:
    """Return ``task`` in its JSON form, as in Cloudforet: dates and the like are a mistake of the producer.

    Raises:
        TypeError: it holds values without a form in JSON.
    """
    return json.loads(json.dumps(task))


def _put(name: str, task: Mapping[str, Any], arguments: dict[str, Any]) -> str:
    job, queue = job_of(name)
    context = runtime.context()
    if context is not None:
        runtime.note_put()
        return context.spawn(job, arguments, queue=queue, traceparent=traceparent_of(task))
    return current().enqueue(job, arguments, queue=queue, traceparent=traceparent_of(task))


def _acknowledge(producer: Producer, queues: Queues, session: str, fetched: FetchedRun) -> bytes | None:
    args = fetched.envelope.template.args
    task: Any = args.get("task")
    message = args.get("message")
    is_task = isinstance(task, dict) or isinstance(message, str)
    now_ms = SystemClock().wall_ms()
    ack = Ack(
        run_id=fetched.envelope.id,
        queue=fetched.queue,
        attempt=fetched.attempt,
        fetched_ms=fetched.fetched_ms,
        outcome=Outcome.OK if is_task else Outcome.GIVEBACK,
        schedule=fetched.envelope.schedule,
        started_ms=now_ms,
        ended_ms=now_ms,
        history_note="taken by queue.get" if is_task else "",
        job=fetched.envelope.template.job,
    )
    producer.run(
        queues.turn(
            session=session, seq=2, kind=Kind.SYNC, queues=[fetched.queue], want=0, want_suspect=False, acks=[ack]
        )
    )
    if not is_task:
        return None
    return message.encode() if isinstance(message, str) else json.dumps(resolved(task)).encode()
