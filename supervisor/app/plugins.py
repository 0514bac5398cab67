"""Plugins of a configuration, and the jobs that run them: made known before anything starts."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from supervisor.core.errors import ConfigError
from supervisor.plugins import registry as known
from supervisor.settings.sections.models import Settings, WorkerKind


def prepare(settings: Settings, origins: Mapping[str, str]) -> None:
    """Make the plugins of the configuration known, and their jobs.

    Raises:
        ConfigError: with every plugin that cannot be used.
    """
    known.registry.configure(settings.plugins)
    problems = list(known.registry.problems(origins))
    if problems:
        raise ConfigError(problems)
    import_jobs_of(settings)


def import_jobs_of(settings: Settings) -> None:
    """Register the jobs of plugins where there are plugins."""
    # Somebody who only installed a distribution need not have a pool for it.
    if settings.plugins or (not known.registry.is_empty and _is_served(settings)):
        importlib.import_module("supervisor.plugins.jobs")  # decorates them


def _is_served(settings: Settings) -> bool:
    pools = settings.workers.values()
    return any(pool.kind is WorkerKind.SYNC and "default" in pool.queues for pool in pools)
