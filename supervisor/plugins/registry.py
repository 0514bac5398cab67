"""Registry of plugins: from the configuration, from installed distributions, from the embedding program.

Guarantees
    Two classes never share a name: the second is refused, and both origins are named.
    A class of an installed distribution is imported when it is needed, not when it is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata

from supervisor.core.errors import ConfigError, Problem
from supervisor.core.model import ScheduleDef
from supervisor.core.suggestions import suggestion
from supervisor.plugins.contract import (
    Plugin,
    PluginDefinitionError,
    PluginNotRegisteredError,
    check_class,
    origin_of,
)
from supervisor.plugins.registration import Registered
from supervisor.settings.base import Path, split
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.search_path import DirectoryChangedError, import_named, staying_here
from supervisor.settings.sections.plugins import PluginSettings

GROUP = "tenure.plugins"
JOBS = frozenset({"plugin.run", "plugin.plan"})


class PluginRegistry:
    """The plugins of this process, by name."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Plugin]] = {}
        self._settings: dict[str, PluginSettings] = {}
        self.references: Mapping[Path, str] = {}

    def register(self, kind: type[Plugin]) -> type[Plugin]:
        """Add a class, as an embedding program does; return it, so that it can be a decorator of a class.

        Raises:
            PluginDefinitionError: it is no plugin, or another class has its name.
        """
        check_class(kind)
        known = self._classes.get(kind.name)
        if known is not None and origin_of(known) != origin_of(kind):
            raise PluginDefinitionError(
                f"plugin {kind.name!r} is registered twice, by {origin_of(known)} and by {origin_of(kind)}; rename one"
            )
        self._classes[kind.name] = kind
        return kind

    def configure(self, settings: Mapping[str, PluginSettings], references: Mapping[Path, str]) -> None:
        """Set the configured plugins, in place of those of an earlier configuration.

        Args:
            settings: of each plugin, by its name.
            references: those of the whole configuration.
        """
        self._settings = dict(settings)
        self.references = references

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to run."""
        return not self.names()

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted({*self._settings, *self._classes, *entry_points()})

    def get(self, name: str) -> Registered:
        """Return the plugin called ``name``.

        Raises:
            PluginNotRegisteredError: there is none.
            PluginDefinitionError: its class cannot be imported or used, or two claim the name.
        """
        settings = self._settings.get(name) or PluginSettings()
        own = {path[2:]: text for path, text in self.references.items() if path[:2] == ("plugins", name)}
        if settings.command:
            return Registered(name, settings.command[0], settings, references=own)
        kind = self._by_name(name) if settings.module is None else load_class(settings.module)
        return Registered(name, settings.module or origin_of(kind), settings, kind, own)

    def _by_name(self, name: str) -> type[Plugin]:
        found = self._classes.get(name)
        others = entry_points().get(name, ())
        origins = sorted({*((origin_of(found),) if found else ()), *others})
        if len(origins) > 1:
            raise PluginDefinitionError(
                f"plugin {name!r} is registered twice, by {' and by '.join(origins)}; "
                f"say which by plugins.{name}.module"
            )
        if found is not None:
            return found
        if others:
            kind = load_class(others[0])
            if kind.name != name:
                raise PluginDefinitionError(
                    f"plugin {others[0]} calls itself {kind.name!r} and is registered as {name!r}; use one name"
                )
            return kind
        raise PluginNotRegisteredError(_unknown(name, self.names()))

    def problems(self, origins: Mapping[str, str]) -> Iterator[Problem]:
        """Yield the problems that keep any configured plugin from being used; imports the classes of all."""
        for name in sorted(self._settings):
            path = f"plugins.{name}"
            where = origins.get(f"{path}.module") or origins.get(path) or _nearest(origins, path)
            try:
                self.get(name)
                if (sink := self._settings[name].sink) is not None:
                    load_callable(sink, f"{path}.sink")
            except (PluginDefinitionError, PluginNotRegisteredError) as error:
                yield Problem(where, path, *split(str(error)))


def _nearest(origins: Mapping[str, str], path: str) -> str:
    below = (where for key, where in sorted(origins.items()) if key.startswith(f"{path}."))
    return next(below, "plugins")


def _unknown(name: str, names: list[str]) -> str:
    hint = suggestion(name, names, f"there are: {', '.join(names) or 'none'}")
    return f"no plugin is called {name!r}; {hint}"


@cache
def entry_points() -> dict[str, tuple[str, ...]]:
    """Return the plugins of installed distributions: name to the places of the classes. Imports none of them."""
    found: dict[str, set[str]] = {}
    for point in metadata.entry_points(group=GROUP):
        found.setdefault(point.name, set()).add(point.value)
    return {name: tuple(sorted(values)) for name, values in found.items()}


def load_class(reference: str) -> type[Plugin]:
    """Return the plugin at ``module:Class``.

    Raises:
        PluginDefinitionError: it cannot be imported, or is no plugin.
    """
    return check_class(load_callable(reference, f"plugin {reference}"), origin=reference)


def load_callable(reference: str, what: str) -> object:
    """Return the object at ``module:attribute``.

    Raises:
        PluginDefinitionError: it cannot be imported, or cannot be called.
    """
    module, _, attribute = reference.partition(":")
    try:
        with staying_here(what, module):
            found: object = getattr(import_named(module), attribute)
    except DirectoryChangedError as error:
        raise PluginDefinitionError(str(error)) from None
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())[:300]
        raise PluginDefinitionError(
            f"{what} cannot be imported: {type(error).__name__}: {text}; install it, or correct package.module:name"
        ) from error
    if not callable(found):
        raise PluginDefinitionError(f"{what}: {reference} cannot be called; name a class or a function")
    return found


registry = PluginRegistry()
"""The one registry of this process."""


def check_schedules(definitions: Iterable[ScheduleDef], loaded: Loaded) -> None:
    """Return if every schedule that runs a plugin names one that there is.

    Raises:
        ConfigError: with every one that does not.
    """
    problems = []
    names = registry.names()
    for definition in definitions:
        name = definition.template.args.get("plugin")
        if definition.template.job not in JOBS or name in names or "{{" in str(name):
            continue
        path = ("schedules", definition.id, "args", "plugin")
        message, _, remedy = _unknown(str(name), names).partition("; ")
        problems.append(loaded.problem(path, message, remedy))
    if problems:
        raise ConfigError(problems)
