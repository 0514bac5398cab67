"""Jobs, plugins and schedules of a configuration, imported and checked before anything starts."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from supervisor.core.errors import ConfigError, Problem
from supervisor.core.jobs.confinement import Confinement
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.plugins import registry as plugins
from supervisor.process.command.confinement import faults
from supervisor.process.system.linux import thread_count
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.complete import complete, import_jobs
from supervisor.settings.schedules.declarations import with_declared
from supervisor.settings.sections.models import Settings, WorkerKind
from supervisor.settings.web.check import web_problems


class Prepared(NamedTuple):
    """A configuration with the schedules that its job modules declare, and all schedules as Redis will keep them."""

    loaded: Loaded
    definitions: tuple[ScheduleDef, ...]


def prepare_jobs(loaded: Loaded, on_import: Callable[[str], None] | None = None) -> Prepared:
    """Import the configured jobs and return the schedules that run them.

    Raises:
        ConfigError: with every problem of jobs and schedules.
    """
    problems = import_jobs(loaded.settings.jobs, loaded.origins, on_import=on_import)
    problems += web_problems(loaded)
    if problems:
        raise ConfigError(problems)
    prepare_plugins(loaded.settings, loaded.origins)
    loaded = with_declared(loaded)
    definitions = complete(loaded, registry)
    plugins.check_schedules(definitions, loaded)
    return Prepared(loaded, definitions)


def prepare_to_fork(loaded: Loaded, on_import: Callable[[str], None] | None = None) -> Prepared:
    """Run ``prepare_jobs`` for a process that forks others.

    Raises:
        ConfigError: also when programs cannot be started here as the configuration wants, and when threads run,
            which whatever was imported must have started.
    """
    if problems := confinement_problems(loaded):
        raise ConfigError(problems)
    prepared = prepare_jobs(loaded, on_import)
    if (count := thread_count() - 1) > 0:
        # Python may not know one that a library or _thread started; a fork copies its locks all the same.
        names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        which = ", ".join(names[:5]) or "unnamed"
        message = f"importing the modules under jobs and of hooks started {count} thread(s): {which}"
        remedy = (
            "a process with threads cannot be forked safely: start them, or import what does, when a job first runs; "
            "numpy starts none with OPENBLAS_NUM_THREADS=1 in the environment"
        )
        raise ConfigError([loaded.problem(("jobs",), message, remedy)])
    return prepared


def confinement_problems(loaded: Loaded) -> list[Problem]:
    """Return every setting of a command's or a plugin's confinement that cannot be carried out here."""
    settings = loaded.settings
    wanted: list[tuple[tuple[str, ...], Confinement]] = [(("shell",), settings.shell.confinement)]
    wanted += [(("plugins", name), plugin.confinement_of()) for name, plugin in settings.plugins.items()]
    found = []
    for place, confinement in wanted:
        for fault in faults(confinement):
            path = (*place, fault.setting)
            found.append(loaded.problem(path, fault.message, fault.remedy))
    return found


def prepare_plugins(settings: Settings, origins: Mapping[str, str]) -> None:
    """Make the plugins of the configuration known, and their jobs.

    Raises:
        ConfigError: with every plugin that cannot be used.
    """
    plugins.registry.configure(settings.plugins, settings.references)
    problems = list(plugins.registry.problems(origins))
    if problems:
        raise ConfigError(problems)
    import_jobs_of(settings)


def import_jobs_of(settings: Settings) -> None:
    """Register the jobs of plugins where there are plugins."""
    # Somebody who only installed a distribution need not have a pool for it.
    if settings.plugins or (not plugins.registry.is_empty and _is_served(settings)):
        importlib.import_module("supervisor.plugins.jobs")  # decorates them


def _is_served(settings: Settings) -> bool:
    pools = settings.workers.values()
    return any(pool.kind is WorkerKind.SYNC and "default" in pool.queues for pool in pools)
