"""Base class of plugins, and the check that a class can be used as one.

Guarantees
    A class that comes through ``check_class`` has a name, a version, and every method that it claims to have.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from supervisor.core.errors import EXIT_CONFIG, TenureError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
METHOD = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
RESERVED = frozenset({"hello", "init", "verify", "tasks"})
VERSION_CHARS_MAX = 64


class Plugin:
    """Base of a plugin that runs inside of a worker process, and so is trusted.

    One is made of each class, without arguments, in each process that needs it. A call that fails raises.
    """

    __tenure_plugin__: ClassVar[bool] = True

    name: ClassVar[str] = ""
    """What configuration and schedules call it."""

    version: ClassVar[str] = "0"
    """``init`` and ``verify`` are called anew when it changes."""

    methods: ClassVar[Iterable[str]] = ()
    """Methods beside ``run`` that a run may name; each takes what ``run`` takes."""

    def init(self, options: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - for those who override it
        """Return public metadata of the plugin with these options. May be called more than once."""
        return {}

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        """Return if it can work with these options and secrets; raise with the reason if it cannot."""

    def tasks(self, options: dict[str, Any], secrets: dict[str, str]) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        """Yield the tasks into which the work is split; each becomes a run. Default: one, without content."""
        return [{}]

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Any:
        """Do one task: return its one result, or yield any number of them, each a mapping or any JSON."""
        raise NotImplementedError(f"plugin {self.name} does not define run")


class PluginError(TenureError):
    """A call of a plugin failed, for a reason that may be over at the next attempt."""


class PluginUnusableError(PluginError):
    """A plugin that cannot be used: it does not start, fails in init or verify, or does not keep to the protocol."""

    def __init__(self, message: str, *, phase: str = "run") -> None:
        super().__init__(message)
        self.phase = phase
        """start, init, verify or run: what it was doing."""


class PluginNotRegisteredError(PluginError):
    """A name that is no plugin's."""

    exit_code = EXIT_CONFIG


class PluginDefinitionError(TenureError):
    """A class that cannot be registered; names the class, the fault and the remedy."""

    exit_code = EXIT_CONFIG


def origin_of(kind: type) -> str:
    """Return where a class is defined."""
    return f"{kind.__module__}:{kind.__qualname__}"


def check_class(kind: Any, *, origin: str = "") -> type[Plugin]:
    """Return ``kind`` if it is a plugin that can be registered.

    Raises:
        PluginDefinitionError: it is not.
    """
    if not (isinstance(kind, type) and issubclass(kind, Plugin)):
        raise PluginDefinitionError(f"{origin or kind!r} is no plugin; make it a subclass of supervisor.Plugin")
    origin = origin or origin_of(kind)
    if not isinstance(kind.name, str) or not NAME.match(kind.name):
        raise PluginDefinitionError(
            f"plugin {origin}: name {kind.name!r} must be 1 to 64 of letters, digits and . _ -, set it in the class"
        )
    if not isinstance(kind.version, str) or not 0 < len(kind.version) <= VERSION_CHARS_MAX:
        raise PluginDefinitionError(
            f"plugin {origin}: version {kind.version!r} must be text of 1 to {VERSION_CHARS_MAX} characters"
        )
    methods = methods_of(kind)
    if kind.run is Plugin.run and not methods:
        raise PluginDefinitionError(f"plugin {origin} has nothing to run; define run, or name methods of your own")
    for name in (*methods, "init", "verify", "tasks", "run"):
        _check_method(kind, name, origin)
    return kind


def methods_of(kind: type[Plugin]) -> tuple[str, ...]:
    """Return the names of its methods beside ``run``."""
    return () if isinstance(kind.methods, str) else tuple(kind.methods)


def callable_methods(kind: type[Plugin]) -> tuple[str, ...]:
    """Return the methods that a run of it may name."""
    return (*(("run",) if kind.run is not Plugin.run else ()), *methods_of(kind))


def _check_method(kind: type[Plugin], name: Any, origin: str) -> None:
    if not isinstance(name, str) or not METHOD.match(name) or (name in RESERVED and name in methods_of(kind)):
        raise PluginDefinitionError(
            f"plugin {origin}: methods names {name!r}, which no method of a plugin can be called"
        )
    method = getattr(kind, name, None)
    if not callable(method):
        raise PluginDefinitionError(f"plugin {origin}: methods names {name!r}, and the class has no such method")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise PluginDefinitionError(f"plugin {origin}: {name} is async; define it with def, it runs in a sync pool")
