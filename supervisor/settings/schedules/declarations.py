"""Schedules declared in code, below those of the configuration.

Guarantees
    They are validated as an entry of a configuration is, in the same words; a problem names file and line of the
    function. Everything behind it knows no difference: they are declared to Redis as a part of the replica's set.
    A schedule of the configuration replaces the one of the same name in code, wholly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from supervisor.core.durations import format_duration
from supervisor.core.errors import ConfigError, Problem, UnknownJobError, shown
from supervisor.core.jobs.registry import Registry, registry
from supervisor.core.schedules.declared import DeclaredSchedule, schedules
from supervisor.settings.base import SCHEDULE_ID, Violation
from supervisor.settings.document import Node, format_path, wrap
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.rules import faults_of_set
from supervisor.settings.schedules.search_path import import_named, module_of
from supervisor.settings.schema import settings_shape
from supervisor.settings.validation import conform, validate

_NUMBER_END = 2**63
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_SECONDS_MAX = 10**12  # in a duration; a larger number is told as it was written


def with_declared(loaded: Loaded, known: Registry = registry) -> Loaded:
    """Return the configuration with the schedules of the job modules that it lists, which must be imported.

    Raises:
        ConfigError: with everything that is wrong with those.
    """
    is_listed = _listed([import_named(module_of(name)) for name in loaded.settings.jobs])
    entries: dict[str, Node] = {}
    names: dict[str, str] = {}
    problems: list[Problem] = []
    found = schedules.found(is_listed)
    used = {each.function_name for each in found if _job_of(each, known) is not None}
    for each in found:
        job = _job_of(each, known)
        if job is None and each.function_name in used:
            continue  # another function of that name made the job anew: of a factory that was called again, or a reload
        if job is None:
            remedy = "add @job to the function, or remove @schedule"
            problems.append(Problem(each.origin, "schedules", f"{each.function_name} is no job", remedy))
            continue
        name = job if each.name is None else each.name
        if not isinstance(name, str) or not re.fullmatch(SCHEDULE_ID, name):
            message = f"name={shown(name)} must be 1 to 200 of letters, digits and . _ : / -"
            problems.append(Problem(each.origin, "schedules", message))
            continue
        if name in loaded.settings.schedules:
            continue
        if name in entries:
            message = f"is declared twice, also at {entries[name].origin}"
            remedy = "give one of them another name=, or join them with when="
            problems.append(Problem(each.origin, format_path(("schedules", name)), message, remedy))
            continue
        entries[name], names[name] = entry_of(each, job), each.function_name
    if not entries and not problems:
        return loaded
    return _merged(loaded, entries, names, problems)


def _job_of(declared: DeclaredSchedule, known: Registry) -> str | None:
    with suppress(UnknownJobError):
        return known.find(declared.function).name
    return None


def entry_of(declared: DeclaredSchedule, job: str) -> Node:
    """Return a schedule of ``job`` as an entry of a configuration; numbers of seconds become durations."""
    shape = settings_shape().at(("schedules", "x"))
    assert shape is not None
    durations = {key for key in declared.fields if (found := shape.child(key)) is not None and found.is_duration}
    fields = {
        key: format_duration(value) if key in durations and _is_number(value) else value
        for key, value in declared.fields.items()
    }
    return wrap({"job": job, **fields}, declared.origin)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_SECONDS_MAX < value < _SECONDS_MAX


def _merged(loaded: Loaded, entries: dict[str, Node], names: dict[str, str], problems: list[Problem]) -> Loaded:
    settings, shape = loaded.settings, settings_shape()
    for name in list(entries):
        if foreign := _foreign(name, entries[name]):
            problems += foreign
            del entries[name]
    calendars = {name: each.model_dump(mode="json", by_alias=True) for name, each in settings.calendars.items()}
    around = {"schedules": Node(dict(entries), "code"), "calendars": wrap(calendars, "code")}
    tree = conform(Node(around, "code"), shape, problems)
    read = validate(tree, shape, problems)
    if problems or read is None:
        raise ConfigError(problems)
    merged = {**settings.schedules, **read.schedules}
    if broken := list(faults_of_set(merged, lease_s=settings.election.lease_duration_s)):  # with the configuration's
        raise ConfigError([_broken(each, tree, loaded) for each in broken])
    written = {format_path(path): node.origin for path, node in tree.walk() if path[:1] == ("schedules",)}
    settings = settings.model_copy(update={"schedules": merged})
    return replace(loaded, settings=settings, origins={**written, **loaded.origins}, declared=names)


def _foreign(name: str, entry: Node) -> list[Problem]:
    """Return the values of an entry that no configuration could hold."""
    return [
        Problem(node.origin, format_path(("schedules", name, *path)), fault, remedy)
        for path, node in entry.walk()
        for fault, remedy in _misfits(node.value)
    ]


def _misfits(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, int | float):
        if not abs(value) < _NUMBER_END:
            yield f"is {shown(value)}, which no configuration holds", "write a number of at most 64 bits, or a text"
    elif isinstance(value, str | dict):  # of a mapping its keys
        for text in [value] if isinstance(value, str) else value:
            if _HALF_CHARACTER.search(text):
                yield f"has {shown(text)}, in which half a character stands", "write text that UTF-8 can carry"
    elif not (value is None or isinstance(value, list)):
        yield f"is an object of type {type(value).__name__}, which JSON does not have", "write it as text or numbers"


def _broken(violation: Violation, tree: Node, loaded: Loaded) -> Problem:
    path = violation.paths[0]
    is_declared = path[:2] == tree.nearest(path[:2])[0]
    where = tree.nearest(path)[1].origin if is_declared else loaded.origin(*path)
    return Problem(where, format_path(path), violation.message, violation.remedy)


def _listed(modules: list[Any]) -> Callable[[Callable[..., Any]], bool]:
    inside = tuple(f"{module.__name__}." for module in modules)
    held = {id(value) for module in modules for value in vars(module).values()}
    return lambda function: f"{function.__module__}.".startswith(inside) or id(function) in held
