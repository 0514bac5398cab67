"""Launch specification of a plugin's program: command line, environment, user, limits."""

from __future__ import annotations

import os
import resource
from dataclasses import replace

from supervisor.process.command.confinement import confined, home_of
from supervisor.process.command.spec import Launch, prepare
from supervisor.settings.sections.plugins import PluginSettings

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_MIB = 1024 * 1024


def launch_of(settings: PluginSettings) -> Launch:
    """Return how the program is started: with an environment of its own, and its limits.

    Raises:
        CommandRefusedError: it cannot be.
    """
    confinement = settings.confinement_of()
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | home_of(confinement)
    launch = prepare(  # noqa: S604 - a list is executed without a shell
        command=list(settings.command),
        shell="/bin/sh",
        env={**environment, **{name: value.get_secret_value() for name, value in settings.env.items()}},
        cwd=settings.cwd,
        stdin=None,
    )
    wanted: list[tuple[int, int | None]] = [
        (resource.RLIMIT_AS, None if settings.memory_mib_max is None else settings.memory_mib_max * _MIB),
        (resource.RLIMIT_CPU, None if settings.cpu_max_s is None else round(settings.cpu_max_s)),
        (resource.RLIMIT_NOFILE, settings.open_files_max),
        (resource.RLIMIT_CORE, 0),
    ]
    limits = tuple((number, most) for number, most in wanted if most is not None)
    return confined(replace(launch, limits=limits), confinement)
