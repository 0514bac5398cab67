"""Operations on jobs and plugins, as the replicas publish them: for those who import none of them.

Guarantees
    A queue that is named for a run is one that somebody serves, unless the person promises that it will be.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from supervisor.core.jobs.registry import Registry
from supervisor.operations import Effect, Operation, one
from supervisor.operations.queues import UnservedQueueError, is_served
from supervisor.store.keys import Keys
from supervisor.store.plugins import PluginRecord, Plugins
from supervisor.store.producer.destination import NAMES_SHOWN as NAMES_SHOWN  # noqa: PLC0414 - of warnings
from supervisor.store.producer.destination import Destination as Destination  # noqa: PLC0414
from supervisor.store.producer.options import Args
from supervisor.store.producer.options import EnqueueOptions as EnqueueOptions  # noqa: PLC0414
from supervisor.store.producer.producer import Producer as Producer  # noqa: PLC0414 - of doors
from supervisor.store.queues.jobs import published_registry
from supervisor.store.queues.runs import Enqueued
from supervisor.store.queues.sessions import Sessions


def published(keys: Keys) -> Operation[Mapping[str, bytes]]:
    """Read the card of every job that some replica runs: name to JSON."""
    return one(Sessions(keys).read_jobs())


def known(keys: Keys) -> Operation[Registry]:
    """Read these jobs as a registry; of their arguments only the names are known."""
    return published_registry((yield from published(keys)))


def plugin_records(keys: Keys) -> Operation[dict[str, list[PluginRecord]]]:
    """Read the records of workers, by plugin: one for each set of options that it was used with."""
    found: dict[str, list[PluginRecord]] = {}
    for record in (yield Plugins(keys).read()):
        found.setdefault(record.plugin, []).append(record)
    return found


@dataclass(frozen=True, slots=True)
class EnqueueEffect:
    """Effect of an operation: the producer of the door enqueues a run."""

    job: str
    args: Args
    options: EnqueueOptions


def enqueue(
    keys: Keys,
    job: str,
    args: Args,
    *,
    is_forced: bool,
    configured: Collection[str],
    remedy: str,
    **options: Unpack[EnqueueOptions],
) -> Generator[Effect | EnqueueEffect, Any, Enqueued]:
    """Enqueue a run of ``job`` by the door's producer; asked again with the same ``run_id`` it enqueues nothing more.

    ``is_forced``: also into a queue that nobody serves. Those ``configured`` are served by the pools here.

    Raises:
        UnservedQueueError: no live worker takes runs from the queue that is named.
        UnknownJobError: neither this program nor any replica knows the job.
        ArgumentsError: the arguments do not fit the job.
        PayloadTooLargeError: the run would be larger than 64 KiB.
        ValueError: an option cannot be used.
    """
    queue = options.get("queue")
    if queue is not None and not is_forced and queue not in configured and not (yield from is_served(keys, queue)):
        raise UnservedQueueError(queue, remedy)
    enqueued: Enqueued = yield EnqueueEffect(job, args, options)
    return enqueued
