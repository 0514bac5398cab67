"""Operations on jobs, as the replicas publish them: for those who import none of them."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.jobs.registry import Registry
from supervisor.operations import Operation, one
from supervisor.store.keys import Keys
from supervisor.store.queues.jobs import AnyJob as AnyJob  # noqa: PLC0414 - for schedules that are only looked at
from supervisor.store.queues.jobs import published_registry
from supervisor.store.queues.sessions import Sessions


def published(keys: Keys) -> Operation[Mapping[str, bytes]]:
    """Read the card of every job that some replica runs: name to JSON."""
    return one(Sessions(keys).read_jobs())


def known(keys: Keys) -> Operation[Registry]:
    """Read these jobs as a registry; of their arguments only the names are known."""
    return published_registry((yield from published(keys)))
