"""The settings of targets that arguments of jobs may lead to: variables, files and addresses that a worker reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from supervisor.core.jobs.destinations import destination_fault
from supervisor.core.jobs.references import ENV_ALLOWED, FILES_ALLOWED
from supervisor.settings.base import Section, Violation


class JobReferenceSettings(Section):
    """References in arguments of jobs (``env:NAME``, ``file:/path``), which a worker resolves."""

    env: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=[*ENV_ALLOWED], max_length=100)
    """Names or patterns of variables that arguments may refer to. Never ``TENURE_*``."""

    files: list[Annotated[str, Field(pattern="^/", max_length=1000)]] = Field(default=[*FILES_ALLOWED], max_length=100)
    """Files, and directories with all below them, that arguments may refer to. Never /proc or the tokens file."""


class JobDestinationSettings(Section):
    """Destinations of the HTTP jobs that ship (``http.request``, ``identity.*``), beside public addresses."""

    allow: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(default=[], max_length=100)
    """Networks (``10.1.0.0/16``), addresses, and names of hosts (``billing.internal``, ``*.svc.cluster.local``) that
    are not public: loopback, link-local, private, multicast and reserved addresses are refused unless they are here."""


def broken_destinations(destinations: JobDestinationSettings) -> Iterator[Violation]:
    """Yield each entry that can allow nothing."""
    for index, entry in enumerate(destinations.allow):
        fault = destination_fault(entry)
        if fault:
            what, _, remedy = fault.partition(": ")
            yield Violation((("job_destinations", "allow", index),), what, remedy)
