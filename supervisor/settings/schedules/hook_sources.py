"""Sources of hooks: in-tree checks, webhooks, entry points, modules; and the problems of each.

Guarantees
    ``problems_of`` finds every name of no hook or of two, every hook that cannot be enabled
    as, arguments that it does not take, and a second dispatcher. It imports the modules of enabled hooks, and builds
    no hook: building belongs to a worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from supervisor.core.errors import Problem
from supervisor.core.jobs.hooks import POINTS, DuplicateHookError, Hook, HookRegistry, Point, UnknownHookError, order
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.core.jobs.registry import Registry
from supervisor.core.schedules import checks
from supervisor.core.suggestions import suggestion
from supervisor.settings.base import split
from supervisor.settings.document import DEFAULT_ORIGIN, format_path
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.profiles import unknown_profile
from supervisor.settings.schedules.search_path import DirectoryChangedError, import_named, search_here, staying_here
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.pipeline import HooksSettings, WebhookSettings

GROUP = "tenure.hooks"
_UNDO = "unreserve"


_offered: dict[str, type] = {}


class UnusableHookError(ValueError):
    """The object that a name refers to is no hook."""


def offer(name: str, kind: type) -> None:
    """Let profiles enable ``kind``, a class of the program around us, by ``name``.

    Raises:
        DuplicateHookError: another class has the name.
    """
    known = _offered.setdefault(name, kind)
    if known is not kind:
        raise DuplicateHookError(
            f"hook {name!r} is registered twice, by {_place(known)} and by {_place(kind)}; rename one"
        )


def _place(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def known_hooks(settings: Settings, origins: Mapping[str, str] | None = None) -> HookRegistry:
    """Return every hook that has a name of its own: checks, webhooks, and entry points, which are not imported yet.

    Raises:
        DuplicateHookError: two have the same name.
    """
    registry = HookRegistry()
    registry.merge(checks.hooks())
    registry.merge(_webhook(name, webhook, origins or {}) for name, webhook in settings.webhooks.items())
    registry.merge(_promised(entry) for entry in entry_points(group=GROUP))
    registry.merge(_imported(name, _place(kind), kind) for name, kind in _offered.items())
    return registry


def find_hook(name: str, known: HookRegistry) -> Hook:
    """Return the hook called ``name``, imported: of ``known``, or ``module:class``.

    Raises:
        UnknownHookError: there is none.
        UnusableHookError: it cannot be imported, or is no hook.
    """
    if name in known:
        hook = known.get(name)
        return hook if hook.points else _imported(name, hook.origin, hook.make({}) if hook.make else None)
    if ":" not in name:
        hint = suggestion(name, known.names(), f"known: {', '.join(known.names())}, or write module:class")
        raise UnknownHookError(f"no hook is called {name!r}; {hint}")
    search_here()
    module, _, attribute = name.partition(":")
    try:
        with staying_here(f"hook {name}", module):
            target = getattr(import_named(module), attribute)
    except DirectoryChangedError as error:
        raise UnusableHookError(str(error)) from None
    except (Exception, SystemExit) as error:
        raise UnusableHookError(f"hook {name} cannot be imported: {type(error).__name__}: {error}") from error
    return _imported(name, name, target)


def enabled_names(hooks: HooksSettings) -> list[str]:
    """Return the hooks that ``hooks`` enables at any point, in their order."""
    return list(dict.fromkeys(entry.rpartition("/")[2] for entry in hooks.enabled))


def points_of(hooks: HooksSettings, hook: Hook) -> list[Point]:
    """Return where ``hook`` is asked."""
    return [
        point for point in POINTS if point in hook.points and hook.name in order(hooks.enabled, hooks.disabled, point)
    ]


def problems_of(loaded: Loaded, known: Registry) -> list[Problem]:
    """Return the problems that keep the profiles of a configuration from being used by its jobs and schedules."""
    settings = loaded.settings
    problems = [*_profiles_of_jobs(loaded, known)]
    enabled = {name for profile in settings.profiles.values() for name in enabled_names(profile.hooks)}
    if not enabled and not settings.webhooks:
        return problems
    try:
        registry = known_hooks(settings, loaded.origins)
    except (DuplicateHookError, UnusableHookError) as error:
        return [*problems, loaded.problem(("profiles",), *split(str(error)))]
    found: dict[str, Hook] = {}
    for profile, section in settings.profiles.items():
        problems += _problems_of_profile(profile, section.hooks, registry, found, loaded)
    return problems + _second_dispatcher(found.values(), loaded)


def _problems_of_profile(
    profile: str, hooks: HooksSettings, registry: HookRegistry, found: dict[str, Hook], loaded: Loaded
) -> Iterator[Problem]:
    base = loaded.settings.profiles.get(DEFAULT_PROFILE)
    inherited = () if profile == DEFAULT_PROFILE or base is None else base.hooks.enabled
    for index, entry in enumerate(hooks.enabled):
        name = entry.rpartition("/")[2]
        path = ("profiles", profile, "hooks", "enabled", index)
        try:
            hook = found[name] = found.get(name) or find_hook(name, registry)
        except (UnknownHookError, UnusableHookError) as error:
            if entry not in inherited:  # else it is told with ``default``
                yield loaded.problem(path, *split(str(error)))
            continue
        point = entry.partition("/")[0] if "/" in entry else ""
        if point and point not in hook.points:
            offered = ", ".join(hook.points)
            yield loaded.problem(path, f"hook {name} is not asked at {point}", f"it has {offered}")
        place = ("profiles", profile, "hooks", "config", name)
        for message in hook.verify(hooks.config.get(name, {})):
            yield loaded.problem(place, message, "write the arguments that it takes")
    for name in hooks.config:
        if name not in enabled_names(hooks) and not (base is not None and name in base.hooks.config):
            place = ("profiles", profile, "hooks", "config", name)
            yield loaded.problem(place, "is for a hook that is not enabled", "enable it")


def _second_dispatcher(hooks: Iterable[Hook], loaded: Loaded) -> list[Problem]:
    """Return the fault that two hooks execute runs: the executor of a run would be unknown."""
    names = sorted(
        {
            hook.name
            for hook in hooks
            if any(Point.DISPATCH in points_of(profile.hooks, hook) for profile in loaded.settings.profiles.values())
        }
    )
    if len(names) < 2:
        return []
    message = f"hooks {' and '.join(names)} both dispatch, and one may in a whole configuration"
    return [loaded.problem(("profiles",), message, f"disable dispatch/{names[1]}")]


def _profiles_of_jobs(loaded: Loaded, known: Registry) -> Iterator[Problem]:
    for name in known.names():
        spec = known.get(name)
        profile = spec.base.profile
        if profile and profile not in loaded.settings.profiles:
            code = getattr(inspect.unwrap(spec.function), "__code__", None)
            where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else spec.origin
            message, remedy = unknown_profile(profile, loaded.settings.profiles)
            yield Problem(where, "jobs", f"job {name}: {message}", remedy)


def _webhook(name: str, settings: WebhookSettings, origins: Mapping[str, str]) -> Hook:
    where = origins.get(format_path(("webhooks", name)), DEFAULT_ORIGIN)
    return Hook(name, f"webhooks.{name} in {where}", tuple(Point(verb) for verb in settings.verbs))


def _promised(entry: EntryPoint) -> Hook:
    distribution = entry.dist.name if entry.dist is not None else "an unknown distribution"
    return Hook(entry.name, f"entry point {entry.value} of {distribution}", (), make=lambda _: _load(entry))


def _load(entry: EntryPoint) -> Any:
    try:
        with staying_here(f"hook {entry.name}", entry.module):
            return entry.load()
    except DirectoryChangedError as error:
        raise UnusableHookError(str(error)) from None
    except (Exception, SystemExit) as error:
        raise UnusableHookError(
            f"hook {entry.name} cannot be imported from {entry.value}: {type(error).__name__}: {error}"
        ) from error


def _imported(name: str, origin: str, target: Any) -> Hook:
    if not inspect.isclass(target):
        raise UnusableHookError(f"hook {name} is a {type(target).__name__}; name a class, to be built in each worker")
    points = tuple(point for point in POINTS if callable(getattr(target, point.value, None)))
    if not points:
        raise UnusableHookError(f"hook {name} has none of the methods {', '.join(POINTS)}; add one")
    if Point.RESERVE in points and not callable(getattr(target, _UNDO, None)):
        raise UnusableHookError(f"hook {name} reserves and cannot undo it; add a method {_UNDO}")

    def verify(config: Mapping[str, Any]) -> list[str]:
        try:
            inspect.signature(target).bind(**config)
        except (TypeError, ValueError) as error:
            return [f"hook {name}: {error}"]
        return []

    has_coroutines = any(inspect.iscoroutinefunction(getattr(target, name, None)) for name in (*POINTS, _UNDO))
    return Hook(
        name, origin, points, make=lambda config: target(**config), verify=verify, has_coroutines=has_coroutines
    )
