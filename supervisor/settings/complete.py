"""The last step before anything starts: jobs imported, schedules checked against them.

Guarantees
    Every schedule that comes out names a registered job, carries arguments that fit its
    signature, and goes to a queue that a pool of this replica can run it from. The same
    holds for the queue of every job that could be enqueued by hand.
    What comes out is immutable and needs no job module any more.

Does not guarantee
    Anything about other replicas. One without pools (``workers: {}``) is exempt from the
    rule about queues, because others run its jobs.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

import msgspec

from supervisor.core.errors import ArgumentsError, ConfigError, Problem
from supervisor.core.model import PAYLOAD_BYTES_MAX, PRIORITIES, Kind, ScheduleDef, Template
from supervisor.core.registry import JobSpec, Registry, registry
from supervisor.settings.loader import Loaded
from supervisor.settings.models import ScheduleSettings, Settings
from supervisor.settings.nodes import DEFAULT_ORIGIN, format_path

_ENVELOPE_BYTES = 1024  # room for what a run adds to its template: ids, times, counters


def import_jobs(modules: Sequence[str], origins: Mapping[str, str] | None = None) -> list[Problem]:
    """Import the modules listed under ``jobs``, and return what keeps any of them from being used.

    Args:
        modules: their names.
        origins: where each setting was written, as in ``Loaded.origins``.
    """
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds texts
        # A command installed as a script does not search the current directory, where users keep
        # their jobs. Last, so that nothing in it replaces an installed module.
        sys.path.append(os.getcwd())  # noqa: PTH109
    problems: list[Problem] = []
    for index, module in enumerate(modules):
        path = format_path(("jobs", index))
        where = (origins or {}).get(path, DEFAULT_ORIGIN)
        try:
            imported = _import(module, where, path)
        except ConfigError as error:
            problems += error.problems
            continue
        if not _registers(imported):
            remedy = "decorate a function in it with @job, or remove it from jobs"
            problems.append(Problem(where, path, f"module {module} registers no job", remedy))
    return problems


def _import(module: str, where: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError([Problem(where, path, *_import_failure(module, error))]) from error


def _import_failure(module: str, error: BaseException) -> tuple[str, str]:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if module == error.name or module.startswith(f"{error.name}."):
            return f"there is no module {module}", "install it, or start where it lies; the name is package.module"
        return f"module {module} needs {error.name}, which is not installed", "install it"
    what = " ".join(str(error).split())[:300]
    text = f"module {module} cannot be imported: {type(error).__name__}{f': {what}' if what else ''}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    frames = [frame for frame in frames if frame.filename != __file__]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text, "fix it, or remove it from jobs"


def _registers(module: ModuleType) -> bool:
    """Return whether a job is defined in the module or below it, or lies in its namespace."""
    inside = f"{module.__name__}."
    held = {id(value) for value in vars(module).values()}
    specs = (registry.get(name) for name in registry.names())
    return any(f"{spec.function.__module__}.".startswith(inside) or id(spec.function) in held for spec in specs)


def complete(loaded: Loaded, known: Registry = registry) -> tuple[ScheduleDef, ...]:
    """Return the schedules as Redis will keep them, in the order of the configuration.

    Raises:
        ConfigError: with everything about jobs, arguments and queues that does not fit.
    """
    problems: list[Problem] = []
    definitions: list[ScheduleDef] = []
    for name, schedule in loaded.settings.schedules.items():
        template = _template(name, schedule, loaded, known, problems)
        if template is None:
            continue
        problems += _unserved_schedule(name, template, loaded)
        definitions.append(_definition(name, schedule, template))
    problems += _unserved_jobs(loaded, known, {definition.template.job for definition in definitions})
    if problems:
        raise ConfigError(problems)
    return tuple(definitions)


def _template(
    name: str, schedule: ScheduleSettings, loaded: Loaded, known: Registry, problems: list[Problem]
) -> Template | None:
    path = ("schedules", name)
    if schedule.job not in known:
        where = loaded.origin(*path, "job")
        message, remedy = _unknown_job(schedule.job, known, loaded.settings)
        problems.append(Problem(where, format_path((*path, "job")), message, remedy))
        return None
    spec = known.get(schedule.job)
    try:
        template = spec.template(
            schedule.args,
            queue=schedule.queue,
            priority=None if schedule.priority is None else PRIORITIES[schedule.priority],
            timeout_s=schedule.timeout_s,
        )
        size = len(msgspec.json.encode(template)) + _ENVELOPE_BYTES
    except (ArgumentsError, msgspec.EncodeError) as error:
        message, remedy = _arguments_message(spec, error, name, loaded)
        problems.append(Problem(loaded.origin(*path, "args"), format_path((*path, "args")), message, remedy))
        return None
    if size > PAYLOAD_BYTES_MAX:
        message = f"are {size} bytes with the rest of the run, of {PAYLOAD_BYTES_MAX} allowed"
        remedy = "put them into a file, and pass its path"
        problems.append(Problem(loaded.origin(*path, "args"), format_path((*path, "args")), message, remedy))
        return None
    if template.soft_timeout_s is not None and template.soft_timeout_s > template.timeout_s:
        # The schedule shortened the hard timeout below the job's soft one: derive that anew.
        return msgspec.structs.replace(template, soft_timeout_s=None)
    return template


def _unknown_job(job: str, known: Registry, settings: Settings) -> tuple[str, str]:
    close = difflib.get_close_matches(job, known.names(), n=1, cutoff=0.6)
    if close:
        return f"no job is called {job!r}", f"did you mean {close[0]}?"
    if not settings.jobs:
        return f"no job is called {job!r}: no modules are listed under jobs", "list the module that defines it"
    return f"no job is called {job!r}", f"known: {', '.join(known.names()) or 'none'}"


def _arguments_message(spec: JobSpec, error: Exception, name: str, loaded: Loaded) -> tuple[str, str]:
    prefix = ("schedules", name, "args")
    if any(path[:3] == prefix for path in loaded.settings.references):
        return f"do not fit job {spec.name}{spec.signature} (values from references are not shown)", ""
    text, _, remedy = str(error).rpartition("; ")
    return (text, remedy) if text else (str(error), "")


def _definition(name: str, schedule: ScheduleSettings, template: Template) -> ScheduleDef:
    return ScheduleDef(
        id=name,
        template=template,
        every_ms=None if schedule.every_s is None else round(schedule.every_s * 1000),
        cron=schedule.cron,
        timezone=schedule.timezone,
        missed=schedule.missed,
        overlap=schedule.overlap,
        description=schedule.description,
    )


def _is_served(queue: str, kind: Kind, settings: Settings) -> bool:
    pools = settings.workers.values()
    return not pools or any(pool.kind.value == kind.value and queue in pool.queues for pool in pools)


def _unserved_schedule(name: str, template: Template, loaded: Loaded) -> Iterable[Problem]:
    if _is_served(template.queue, template.kind, loaded.settings):
        return
    schedule = loaded.settings.schedules[name]
    key = "job" if schedule.queue is None else "queue"
    where, path = loaded.origin("schedules", name, key), format_path(("schedules", name, key))
    yield Problem(where, path, *_unserved(template.queue, template.kind, f"job {template.job}"))


def _unserved_jobs(loaded: Loaded, known: Registry, scheduled: set[str]) -> Iterable[Problem]:
    by_queue: dict[tuple[str, Kind], list[str]] = {}
    for name in known.names():
        spec = known.get(name)
        if name not in scheduled and not _is_served(spec.queue, spec.kind, loaded.settings):
            by_queue.setdefault((spec.queue, spec.kind), []).append(name)
    for (queue, kind), names in by_queue.items():
        what = f"job {names[0]}" if len(names) == 1 else f"jobs {', '.join(names)}"
        yield Problem(loaded.origin("workers"), "workers", *_unserved(queue, kind, what))


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
