"""The settings of plugins: the place of the code, its input, its permissions.

A plugin is a class in this program (``module``), a program of any language (``command``), or, with neither,
a class that an installed distribution or the embedding program registered under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, SecretStr, StringConstraints

from supervisor.settings.base import QueueName, Seconds, Violation
from supervisor.settings.masking import MASK
from supervisor.settings.sections.shell import ConfinedSettings

PLUGINS_MAX = 200
SECRETS_MAX = 100
OF_PROGRAMS = ("cwd", "env", "memory_mib_max", "cpu_max_s", "open_files_max", *ConfinedSettings.model_fields)
"""Settings that a class of this program cannot have."""

REFERENCE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"

Attribute = Annotated[str, StringConstraints(pattern=REFERENCE)]


class PluginSettings(ConfinedSettings):
    """One plugin."""

    module: Attribute | None = None
    """A class of this program, as ``package.module:Class``; it runs inside of worker processes, so trust it."""

    command: tuple[str, ...] = Field(default=(), max_length=256, repr=False)
    """Or: a program with its arguments, which speaks JSON lines on its standard input and output
    (docs/plugins.md). It runs as a child of the worker that needs it. Its arguments are never shown."""

    version: str = Field(default="auto", min_length=1, max_length=64)
    """Required version of the plugin; ``auto``: any."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Handed to all its methods; the ``options`` of a run are put over them key by key."""

    secrets: dict[str, SecretStr] = Field(default_factory=dict, max_length=SECRETS_MAX)
    """Handed to verify, tasks and run, and to nothing else. Use ${file:/run/secrets/aws} or ${env:NAME}: runs and
    schedules name the plugin only. For a second account name a second plugin with the same module or command."""

    sink: Attribute | None = None
    """Function of this program that takes the results, ``package.module:function(results, context)``, in batches.
    Unset: they are counted only."""

    queue: QueueName | None = None
    """Where ``plugin.plan`` puts the runs that it makes; the processes of the pool that takes runs from there are
    the plugin's replicas. Unset: the queue of the job ``plugin.run``."""

    cwd: str | None = Field(default=None, min_length=1)
    """Directory of the program; default: the tree's."""

    env: dict[str, SecretStr] = Field(default_factory=dict, max_length=SECRETS_MAX)
    """Its environment, over PATH, HOME, LANG, LC_ALL and TZ of the tree; it gets nothing else of that. Only names are
    shown."""

    idle_stop_s: Seconds = Field(default=300.0, ge=1, le=86_400)
    """A program that no run needed for about so long is stopped; the next run starts it again."""

    start_timeout_s: Seconds = Field(default=10.0, ge=0.1, le=600)
    """How long the program may take until it answers for the first time."""

    init_timeout_s: Seconds = Field(default=30.0, ge=0.1, le=3600)
    """How long ``init`` and ``verify`` may take, each. Of a class of this program only the run's timeout is a bound."""

    stop_timeout_s: Seconds = Field(default=1.0, ge=0, le=10)
    """How long the program may take to end when it is asked to in the middle of a call, or by its successor; then
    its process group is killed. One that nobody needs any more, or whose worker leaves, gets no more than 0.4 s."""

    line_kib_max: int = Field(default=1024, ge=1, le=65_536)
    """Longest line that the program may write."""

    results_max: int = Field(default=10_000_000, ge=1)
    """Most results of one call."""

    memory_mib_max: int | None = Field(default=None, ge=16)
    """Most address space of each process of the program (RLIMIT_AS). Unset: no limit."""

    cpu_max_s: Seconds | None = Field(default=None, ge=1)
    """Most processor time of each process of the program (RLIMIT_CPU). Unset: no limit."""

    open_files_max: int | None = Field(default=None, ge=8)
    """Most files that each process of the program may have open (RLIMIT_NOFILE). Unset: no limit."""

    fail_after: int = Field(default=3, ge=0, le=1000)
    """After so many failed calls in a row the plugin is in ERROR and its schedules are suspended; 0: never.
    What breaks the protocol, or fails in init or verify, does so at once."""

    retry_after_s: Seconds = Field(default=60.0, ge=1, le=86_400)
    """How long the schedules of a plugin in ERROR are suspended before one of them tries again; twice as long
    after each failure, at most an hour."""

    @property
    def is_isolated(self) -> bool:
        """True if it is a program of its own."""
        return bool(self.command)


def broken_rules(plugins: Mapping[str, PluginSettings]) -> Iterator[Violation]:
    """Yield the broken rules between the settings of one plugin."""
    for name, plugin in plugins.items():
        path = ("plugins", name)
        if plugin.module is not None and plugin.command:
            paths = ((*path, "command"), (*path, "module"))
            yield Violation(paths, "cannot be combined with module", "a plugin is a class or a program; remove one")
        if plugin.command and not plugin.command[0].strip():
            yield Violation(((*path, "command"),), "names no program", "write [program, argument, …]")
        if MASK in plugin.command:
            message = "is the mask of an argument in printed settings"
            yield Violation(((*path, "command"),), message, "put the argument back, or use ${env:…}")
        for key in OF_PROGRAMS:
            if getattr(plugin, key) and not plugin.command:
                where = (*path, key.removesuffix("_s"))
                yield Violation((where,), "is for plugins with a command", "add one, or remove this")
        for variable, value in plugin.env.items():
            if not variable or "=" in variable or "\0" in variable + value.get_secret_value():
                yield Violation(
                    ((*path, "env"),), f"cannot hold {variable!r}", "a name is not empty and has no = or NUL"
                )
            elif value.get_secret_value() == MASK:
                message = "is the mask of a value in printed settings"
                yield Violation(((*path, "env", variable),), message, "put the value back, or use ${env:…}")
