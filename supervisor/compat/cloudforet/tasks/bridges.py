"""The way out: plain task messages for workers of SpaceONE. The way in is the agent's (roles/agent/ingest.py)."""

from __future__ import annotations

import json
from typing import Any

from supervisor.compat.cloudforet.tasks import runtime
from supervisor.roles.worker.attempt.context import Context
from supervisor.store.producer.connection import current
from supervisor.store.queues.bridges import Bridges


def emit(context: Context, task: dict[str, Any], queue: str) -> None:
    """Push ``task`` to the list of ``queue``: once for this run, however often it is attempted, within a day.

    Raises:
        StoreUnavailableError: Redis did not answer; the run is tried again.
    """
    producer = current()
    message = json.dumps(task, ensure_ascii=False)
    channel = runtime.settings().channel_of(queue)
    producer.run(Bridges(producer.keys).emit(channel=channel, run_id=context.run_id, message=message))
