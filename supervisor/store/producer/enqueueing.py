"""Enqueueing with the producer of this process: the functions that programs import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from supervisor.store.producer.bulk import Totals
from supervisor.store.producer.connection import current
from supervisor.store.producer.options import Args, EnqueueOptions, JobRef, ManyOptions


def enqueue(job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
    """Enqueue one run of ``job`` and return its id.

    Where the job is ``unique`` and an unfinished run holds the key, nothing is enqueued, and the id is that run's.

    Args:
        job: the job's name, or the function that ``@job`` registered.
        args: its arguments by name; JSON values, with all else at most 64 KiB.
        **options: ``queue``, ``priority``, ``delay``, ``at``, ``run_id``, ``traceparent``; see ``EnqueueOptions``.

    Raises:
        NoRedisError: no address of Redis is configured.
        UnknownJobError: neither this program nor any replica knows the job.
        ArgumentsError: the arguments do not fit the job.
        PayloadTooLargeError: the run would be larger than 64 KiB.
        QueueFullError: as many runs wait in its queue as ``queues.length_max`` allows.
        RunIdTakenError: the ``run_id`` is that of another job's run, or has other arguments.
        StoreUnavailableError: Redis did not answer; whether it enqueued is not known. Calling again
            with a ``run_id`` of your own cannot enqueue it twice while the run is unfinished or dead.
    """
    return current().enqueue(job, args, **options)


async def enqueue_async(job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
    """Enqueue one run as ``enqueue`` does, without blocking the event loop."""
    return await current().enqueue_async(job, args, **options)


def enqueue_many(job: JobRef, many: Iterable[Args], **options: Unpack[ManyOptions]) -> Totals:
    """Enqueue a run of ``job`` for each of ``many``, in their order, in batches; return the counts by result.

    Raises:
        PartlyEnqueuedError: it stopped before the end, at the place it names; its cause is the reason.
    """
    return current().enqueue_many(job, many, **options)
