"""Take one task message out of a queue by hand: a worker for the length of one call."""

from __future__ import annotations

import json
import secrets
from typing import Any

from supervisor.clock import SystemClock
from supervisor.compat.cloudforet.tasks.redaction import resolved
from supervisor.core.model import Kind, Outcome
from supervisor.store.producer.connection import current
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Ack, FetchedRun, Queues
from supervisor.store.queues.sessions import Sessions


def take(queue: str) -> bytes | None:
    """Return the oldest task in ``queue`` as JSON, and put on record that it was taken; None when there is none."""
    producer = current()
    queues, sessions = Queues(producer.keys), Sessions(producer.keys)
    session = f"taker.{secrets.token_hex(6)}"
    producer.run(sessions.open(session, {"slot": "queue.get", "kind": Kind.SYNC.value, "queues": queue}))
    try:
        reply = producer.run(
            queues.turn(session=session, seq=1, kind=Kind.SYNC, queues=[queue], want=1, want_suspect=False)
        )
        return _acknowledge(producer, queues, session, reply.runs[0]) if reply.runs else None
    finally:
        producer.run(sessions.close(session))


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
