"""Check, before the start, that this machine can confine programs as the configuration asks."""

from __future__ import annotations

from supervisor.core.errors import Problem
from supervisor.core.jobs.confinement import Confinement
from supervisor.process.command.confinement import faults
from supervisor.settings.document import format_path
from supervisor.settings.loader import Loaded


def confinement_problems(loaded: Loaded) -> list[Problem]:
    """Return every setting of a command's or a plugin's confinement that cannot be carried out here."""
    settings = loaded.settings
    wanted: list[tuple[tuple[str, ...], Confinement]] = [(("shell",), settings.shell.confinement)]
    wanted += [(("plugins", name), plugin.confinement_of()) for name, plugin in settings.plugins.items()]
    found = []
    for place, confinement in wanted:
        for fault in faults(confinement):
            path = (*place, fault.setting)
            found.append(Problem(loaded.origin(*path), format_path(path), fault.message, fault.remedy))
    return found
