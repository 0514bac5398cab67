"""A store world with the calls of people who control queues."""

from __future__ import annotations

from typing import Any

from supervisor.store.queues.control import Cancelled, QueueControl
from tests.kit.builders import StoreCalls

READY = "ready:a:1"
"""Where a run of ``builders.envelope`` waits."""


def control(world: StoreCalls) -> QueueControl:
    """Return the calls for the world's cluster."""
    return QueueControl(world.keys)


def cancel(world: StoreCalls, *run_ids: str, **options: Any) -> list[Cancelled]:
    """Cancel runs wherever they are."""
    return world.run(control(world).cancel([("", run_id) for run_id in run_ids], **{"by": "alice"} | options))


def outcomes(world: StoreCalls, queue: str = "default") -> list[tuple[str, str, str]]:
    """Return id, outcome and note of each line of history, oldest first."""
    return [(entry.run_id, entry.outcome, entry.note) for entry in reversed(world.run(world.queues.recent(queue)))]


def stat(world: StoreCalls, name: str, queue: str = "default") -> int:
    """Return one counter of a queue."""
    return world.run(world.queues.counts(queue)).stats.get(name, 0)


def wanted(world: StoreCalls, *sessions: str) -> list[Any]:
    """Return what the agent of ``sessions`` hears."""
    return world.run(world.queues.unwanted(sessions))
