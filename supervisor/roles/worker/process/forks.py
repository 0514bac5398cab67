"""Copies of a worker process that its jobs fork, and that come back out of the job."""

from __future__ import annotations

import os

import structlog

from supervisor.core.errors import EXIT_FAILED

log = structlog.get_logger("tenure.worker")


class Original:
    """The process that the worker was started as.

    One that a job forked off, and that came back out of the job, has the worker's connection, session and runs: it
    ends at the first step outside the job. A process that a job forks for itself never comes here.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def must_be(self, job: str = "") -> None:
        """Return in the worker itself; end any copy of it that ``job`` made, empty where only the log may know it."""
        if os.getpid() != self._pid:
            named = {"job": job} if job else {}
            log.error("job_forked_worker", consequence="the copy ends here", **named)
            os._exit(EXIT_FAILED)
