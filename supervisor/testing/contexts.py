"""Contexts for tests that call a job as a function."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.roles.worker.attempt.context import Context
from supervisor.store.producer.connection import current


def job_context(
    *, job: str = "tests.job", run_id: str = "test-run", nominal: datetime | None = None, **fields: Any
) -> Context:
    """Return a context for a job that takes one, as its first attempt has it.

    ``last_progress`` and ``undo`` of it hold what the job reported and registered. What the job enqueues goes where
    ``enqueue`` goes: beside ``tenure_cluster``, ``tenure_inline`` or ``enqueued`` into the test's cluster.

    Args:
        job: name of the job.
        run_id: identity of the run.
        nominal: when the schedule says that the run was due, with its time zone; None: no schedule made it.
        **fields: further fields of ``Context``: ``attempt``, ``fence``, ``schedule``, ``maybe_duplicate`` and others.

    Raises:
        ValueError: ``nominal`` has no time zone.
    """
    if nominal is not None and nominal.tzinfo is None:
        raise ValueError(f"nominal={nominal!r} has no time zone; write datetime(…, tzinfo=UTC)")
    nominal_ms = None if nominal is None else round(nominal.timestamp() * 1000)
    return Context(run_id=run_id, job=job, nominal_ms=nominal_ms, **{"producer": _CurrentProducer(), **fields})


class _CurrentProducer:
    """Enqueues with the producer of the process, whichever that is by then."""

    def __getattr__(self, name: str) -> Any:
        return getattr(current(), name)
