"""A process that a job forked off, and that came back out of the job, must not go on as a second worker.

It has the worker's connection, session and runs, so its calls to Redis would be the worker's too.
It ends at the first step outside the job. A process a job forks for itself (``multiprocessing``, ``subprocess``)
never comes here.
"""

from __future__ import annotations

import os

import structlog

from supervisor.core.errors import EXIT_FAILED

log = structlog.get_logger("tenure.worker")


class Original:
    """The process that the worker was started as."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def must_be(self, job: str) -> None:
        """Return in the worker itself; end any copy of it that ``job`` made, where it is known which did."""
        if os.getpid() != self._pid:
            log.error("job_forked_worker", job=job, consequence="the copy ends here")
            os._exit(EXIT_FAILED)
