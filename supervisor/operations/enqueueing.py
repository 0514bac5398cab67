"""Operation that enqueues a run of a job for a person, by the producer of the door.

Guarantees
    A queue that is named is one that somebody serves, unless the person promises that it will be.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import Any, Unpack

from supervisor.operations import Effect
from supervisor.operations.queues import UnservedQueueError, is_served
from supervisor.store.keys import Keys
from supervisor.store.producer.destination import NAMES_SHOWN as NAMES_SHOWN  # noqa: PLC0414 - of warnings
from supervisor.store.producer.destination import Destination as Destination  # noqa: PLC0414
from supervisor.store.producer.options import Args
from supervisor.store.producer.options import EnqueueOptions as EnqueueOptions  # noqa: PLC0414
from supervisor.store.producer.producer import Producer as Producer  # noqa: PLC0414 - of doors
from supervisor.store.queues.runs import Enqueued


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
    """Enqueue a run of ``job``; asked again with the same ``run_id`` it enqueues nothing more.

    Args:
        keys: of the cluster.
        job: its name.
        args: its arguments.
        is_forced: also into a queue that nobody serves.
        configured: queues of the pools here, which serve them.
        remedy: for the error.
        **options: of the run; see ``EnqueueOptions``.

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
