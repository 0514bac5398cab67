"""The last step before anything starts: jobs imported, schedules checked against them.

Guarantees
    Every schedule that comes out names a registered job, carries arguments that fit its
    signature, and goes to a queue that a pool of this replica can run it from. The same
    holds for the queue of every job that could be enqueued by hand.
    The result is immutable and needs no job module any more.

Does not guarantee
    Anything about other replicas. One without pools (``workers: {}``) is exempt from the
    rule about queues, because others run its jobs.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType

import msgspec

from supervisor.core.errors import ConfigError, Fault, Problem
from supervisor.core.jobs.registry import Registry, registry
from supervisor.core.model import Kind, ScheduleDef
from supervisor.settings.document import DEFAULT_ORIGIN, format_path
from supervisor.settings.loader import Loaded, UnusableError, in_reading_order
from supervisor.settings.schedules import search_path
from supervisor.settings.schedules.declarations import with_declared
from supervisor.settings.schedules.definitions import definition_of, faults_of_definition, owners
from supervisor.settings.schedules.hook_sources import problems_of
from supervisor.settings.schedules.profiles import policies_of
from supervisor.settings.schedules.rules import unfollowable
from supervisor.settings.schedules.search_path import (
    AmbiguousModuleError,
    DirectoryChangedError,
    import_named,
    missing_module,
    module_of,
    search_here,
    staying_here,
)
from supervisor.settings.schedules.template import template_of
from supervisor.settings.sections.models import Settings
from supervisor.version import install_extra

EXTRAS = {"opentelemetry": "otel"}
"""The extra that brings the requirements of a module that ships with Tenure."""


def import_jobs(
    modules: Sequence[str],
    origins: Mapping[str, str] | None = None,
    *,
    on_import: Callable[[str], None] | None = None,
) -> list[Problem]:
    """Import the modules listed under ``jobs``, and return the problems that keep any of them from being used.

    Args:
        modules: their names, or the short names of those that ship.
        origins: where each setting was written, as in ``Loaded.origins``.
        on_import: receives the name of each module that was imported.
    """
    search_here()
    problems: list[Problem] = []
    for index, module in enumerate(modules):
        path = format_path(("jobs", index))
        where = (origins or {}).get(path, DEFAULT_ORIGIN)
        try:
            with staying_here(f"module {module}", module):
                imported = import_named(module_of(module))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any code may stand there
            problems.append(Problem(where, path, *_import_failure(module, error)))
            continue
        if on_import is not None:
            on_import(imported.__name__)
        if not _registers(imported):
            remedy = "decorate a function in it with @job, or remove it from jobs"
            problems.append(Problem(where, path, f"module {module} registers no job", remedy))
    return problems


def _import_failure(module: str, error: BaseException) -> tuple[str, str]:
    if isinstance(error, AmbiguousModuleError | DirectoryChangedError):
        message, _, remedy = str(error).partition("; ")
        return message, remedy
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if module == error.name or module.startswith(f"{error.name}."):
            return missing_module(module)
        extra = EXTRAS.get(error.name.partition(".")[0])
        remedy = install_extra(extra) if extra else "install it"
        return f"module {module} needs {error.name}, which is not installed", remedy
    what = " ".join(str(error).split())[:300]
    text = f"module {module} cannot be imported: {type(error).__name__}{f': {what}' if what else ''}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    frames = [frame for frame in frames if frame.filename not in {__file__, search_path.__file__}]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text, "fix it, or remove it from jobs"


def _registers(module: ModuleType) -> bool:
    """Return whether a job is defined in the module or below it, or lies in its namespace; a middleware will do too."""
    if any(getattr(type(value), "__tenure_middleware__", False) for value in vars(module).values()):
        return True
    inside = f"{module.__name__}."
    held = {id(value) for value in vars(module).values()}
    specs = (registry.get(name) for name in registry.names())
    return any(f"{spec.function.__module__}.".startswith(inside) or id(spec.function) in held for spec in specs)


def complete(loaded: Loaded, known: Registry = registry) -> tuple[ScheduleDef, ...]:
    """Return the schedules as Redis will keep them, in the order of the configuration.

    Raises:
        ConfigError: with everything about jobs, arguments and queues that does not fit.
    """
    profiles = loaded.settings.profiles
    known.use(policies_of(profiles))
    problems = problems_of(loaded, known)
    definitions: list[ScheduleDef] = []
    for name, schedule in loaded.settings.schedules.items():
        secret = _has_secrets(name, loaded)
        template, faults = template_of(name, schedule, known, has_secrets=secret, profiles=profiles)
        if template is not None:
            definition = definition_of(name, schedule, template, profiles, loaded.settings.calendars)
            if function := loaded.declared.get(name):
                definition = msgspec.structs.replace(definition, declared_by=function)
            faults = faults_of_definition(definition)
            definitions.append(definition)
        problems += (_problem(name, fault, loaded) for fault in faults)
    problems += _unfollowable(loaded)
    if loaded.settings.workers_strict:
        problems += unserved(loaded, definitions, known)
    if problems:
        raise ConfigError(in_reading_order(problems, loaded.files))
    return tuple(definitions)


def unserved(loaded: Loaded, definitions: Iterable[ScheduleDef], known: Registry = registry) -> list[Problem]:
    """Return where runs of jobs and schedules of this replica go that none of its pools takes; another one's may."""
    found: list[Problem] = []
    scheduled: set[str] = set()
    for definition in definitions:
        name, template = definition.id, definition.template
        scheduled.add(template.job)
        if not _is_served(template.queue, template.kind, loaded.settings):
            key = "job" if loaded.settings.schedules[name].queue is None else "queue"
            faults = _unserved(template.queue, template.kind, f"job {template.job}")
            found.append(loaded.problem(("schedules", name, key), *faults))
    return [*found, *_unserved_jobs(loaded, known, scheduled)]


def with_late_problems(error: UnusableError, known: Registry = registry) -> ConfigError:
    """Return ``error`` with the problems that completing would find in the schedules that have no problem yet.

    So that somebody with fifty mistakes of different kinds sees all fifty, and not first one kind and then the other.
    """
    loaded = error.partial
    if loaded is None:
        return error
    problems = import_jobs(loaded.settings.jobs, loaded.origins)
    schedules = {} if problems else loaded.settings.schedules
    if not problems:
        try:
            problems = [*problems_of(loaded, known), *_unfollowable(with_declared(loaded, known))]
        except ConfigError as declared:
            problems = list(declared.problems)
    wrong = owners((problem.path for problem in error.problems), schedules)
    for name, schedule in schedules.items():
        if name not in wrong:
            secret = _has_secrets(name, loaded)
            _, faults = template_of(name, schedule, known, has_secrets=secret, profiles=loaded.settings.profiles)
            problems += (_problem(name, fault, loaded) for fault in faults)
    known_paths = {problem.path for problem in error.problems}
    late = [problem for problem in problems if problem.path not in known_paths]
    return ConfigError(in_reading_order([*error.problems, *late], loaded.files))


def _unfollowable(loaded: Loaded) -> Iterator[Problem]:
    for fault in unfollowable(loaded.settings.schedules):
        yield loaded.problem(fault.paths[0], fault.message, fault.remedy)


def _has_secrets(name: str, loaded: Loaded) -> bool:
    return any(path[:3] == ("schedules", name, "args") for path in loaded.settings.references)


def _problem(name: str, fault: Fault, loaded: Loaded) -> Problem:
    return loaded.problem(("schedules", name, *fault.path), fault.message, fault.remedy)


def _is_served(queue: str, kind: Kind, settings: Settings) -> bool:
    pools = settings.workers.values()
    return not pools or any(pool.kind.value == kind.value and queue in pool.queues for pool in pools)


def _unserved_jobs(loaded: Loaded, known: Registry, scheduled: set[str]) -> Iterable[Problem]:
    by_queue: dict[tuple[str, Kind], list[str]] = {}
    for name in known.names():
        spec = known.get(name)
        if name not in scheduled and not _is_served(spec.base.queue, spec.kind, loaded.settings):
            by_queue.setdefault((spec.base.queue, spec.kind), []).append(name)
    for (queue, kind), names in by_queue.items():
        what = f"job {names[0]}" if len(names) == 1 else f"jobs {', '.join(names)}"
        yield loaded.problem(("workers",), *_unserved(queue, kind, what))


def _unserved(queue: str, kind: Kind, what: str) -> tuple[str, str]:
    function = "a coroutine" if kind is Kind.ASYNC else "a plain function"
    return (
        f"no {kind.value} pool takes runs from queue {queue!r}, where {what} ({function}) goes",
        f"add {queue} to the queues of a pool with kind: {kind.value}",
    )


def schedules_digest(definitions: Iterable[ScheduleDef]) -> str:
    """Return the identity of a set of schedules: equal for equal sets, in whatever order they were written."""
    ordered = sorted(definitions, key=lambda definition: definition.id)
    return hashlib.sha256(msgspec.json.encode(ordered, order="sorted")).hexdigest()
