"""The settings of the reach of jobs: programs that they start, with their confinement, and targets of their arguments.

A program is given parts of the tree; arguments may lead to variables, files and addresses that a worker reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from supervisor.core.jobs.confinement import INHERITED, Confinement
from supervisor.core.jobs.references import ENV_ALLOWED, FILES_ALLOWED, destination_fault
from supervisor.settings.base import Section, Violation

PATHS_MAX = 100
VARIABLES_MAX = 100
ListedPath = Annotated[str, Field(pattern="^/", max_length=1000)]


class ConfinedSettings(Section):
    """User and confinement of programs. See docs/jobs.md."""

    user: str | None = Field(default=None, min_length=1, max_length=200)
    """User by name or number. A tree that runs as root alone can change it. Unset: the tree's."""

    group: str | None = Field(default=None, min_length=1, max_length=200)
    """Group by name or number; with ``user`` unset the user stays. Unset: the first one of ``user``."""

    cgroup: str | None = Field(default=None, pattern="^/", max_length=1000)
    """Directory of a control group (cgroup v2) that exists, for limits of memory, processors and processes."""

    read_paths: tuple[ListedPath, ...] = Field(default=(), max_length=PATHS_MAX)
    """Files and directories that may be read and executed, with all below (Landlock, Linux 5.13). With
    ``write_paths`` alone: those of the system (/usr, /bin, /sbin, /lib, /lib64, /etc, /opt). Both empty: no limit."""

    write_paths: tuple[ListedPath, ...] = Field(default=(), max_length=PATHS_MAX)
    """Those that may be read and changed. From Linux 6.12 a program with such a list also signals its own kind only."""

    umask: str | None = Field(default=None, pattern="^[0-7]{3,4}$")
    """Rights that files which it makes do not get, as octal text: ``"022"`` lets others read them, ``"077"`` does
    not. Unset: that of the process that started the tree, which itself has 077."""

    def confinement_of(self, env: tuple[str, ...] = ()) -> Confinement:
        """The same for the processes that start programs."""
        umask = None if self.umask is None else int(self.umask, 8)
        return Confinement(env, self.user, self.group, self.cgroup, self.read_paths, self.write_paths, umask)


class ShellSettings(ConfinedSettings):
    """User, confinement and environment of commands of ``shell.command``."""

    env: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[*INHERITED], max_length=VARIABLES_MAX
    )
    """Names or patterns of the variables that they inherit of the tree. Never those that the configuration reads by
    ``${env:NAME}``, nor ``TENURE_*`` settings: a tree removes those from its environment."""

    @property
    def confinement(self) -> Confinement:
        """The same for the processes that start commands."""
        return self.confinement_of(tuple(self.env))


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
