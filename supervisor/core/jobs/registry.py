"""The jobs this program knows: a registry filled by ``@job``, never import-by-name.

A queue payload names a job; only names registered by a module listed under ``jobs:``
run. So nothing that reaches Redis can make a worker import or execute other code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, cast

import msgspec

from supervisor.core.durations import Duration
from supervisor.core.errors import OptionError, TenureError, UnknownJobError, shown
from supervisor.core.jobs.job_spec import JobSpec
from supervisor.core.jobs.options import (
    checked_priority,
    crashes_field,
    delivery_fields,
    limit_fields,
    placeholders,
    time_fields,
)
from supervisor.core.jobs.profile_policies import Policies, given_of, profile_field, under
from supervisor.core.jobs.signatures import Signature, kind_of, signature_of
from supervisor.core.model import PRIORITIES, Kind, Template
from supervisor.core.names import check_name
from supervisor.core.retry import Retry

__all__ = ["DuplicateJobError", "JobSpec", "Registry", "job", "registry"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}\Z")

_DEFAULTS = Template(job="", kind=Kind.SYNC)

ATTRIBUTES = ("enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async", "options", "arguments")
"""By which the function of a job enqueues it; it stays the object it was: called, awaited, inspected and pickled."""
_CALLS = "supervisor.store.producer.job_calls"  # by name: the core imports nothing above it

F = TypeVar("F", bound=Callable[..., Any])


class DuplicateJobError(TenureError):
    """Two functions claim one job name."""


class Registry:
    """Job name to job. Filled while modules are imported, read afterwards."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobSpec] = {}
        self._by_function: dict[Callable[..., Any], JobSpec] = {}
        self._policies: Policies = {}

    def add(self, spec: JobSpec) -> None:
        """Register ``spec``.

        Raises:
            DuplicateJobError: another function holds the name; names both origins.
        """
        known = self._jobs.get(spec.name)
        if known is not None and known.origin != spec.origin:
            raise DuplicateJobError(
                f"job {spec.name!r} is registered twice, by {known.origin} and by {spec.origin}; rename one"
            )
        if known is not None:
            self._by_function.pop(known.function, None)
        spec = self._following(spec)
        self._jobs[spec.name] = self._by_function[spec.function] = spec

    @property
    def policies(self) -> Policies:
        """Policies that jobs follow, by profile."""
        return self._policies

    def use(self, policies: Policies) -> None:
        """Have every job, also those that come later, follow its profile."""
        self._policies = policies
        for spec in list(self._jobs.values()):
            self._jobs[spec.name] = self._by_function[spec.function] = self._following(spec)

    def _following(self, spec: JobSpec) -> JobSpec:
        declared = spec.declared or spec.base
        base = under(declared, spec.given, self._policies)
        if base == spec.base:
            return spec
        return replace(spec, base=base, declared=None if base is declared else declared)

    def get(self, name: str) -> JobSpec:
        """Return the job called ``name``.

        Raises:
            UnknownJobError: no imported module registered it.
        """
        try:
            return self._jobs[name]
        except KeyError:
            raise UnknownJobError(
                f"no job is called {shown(name)}; list the module that defines it under jobs: in the configuration"
            ) from None

    def find(self, function: Callable[..., Any]) -> JobSpec:
        """Return the job that ``function`` is.

        Raises:
            UnknownJobError: it was not registered.
        """
        try:
            return self._by_function[function]
        except (KeyError, TypeError):
            raise UnknownJobError(f"{shown(function)} is not a job; decorate it with @job") from None

    def __contains__(self, name: object) -> bool:
        return name in self._jobs

    def names(self) -> list[str]:
        """Return every registered name, sorted."""
        return sorted(self._jobs)

    def cards(self) -> dict[str, str]:
        """Return every job as the JSON that agents publish, by name."""
        return {name: msgspec.json.encode(self._jobs[name].card()).decode() for name in self.names()}


registry = Registry()
"""The one registry of this process."""


def job(
    name: str | None = None,
    *,
    queue: str = "default",
    priority: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    soft_timeout: Duration | None = None,
    max_crashes: int = 3,
    result_ttl: Duration = 86_400.0,
    delivery: str = "at_least_once",
    start_deadline: Duration | None = None,
    unique: bool | str = False,
    concurrency: int | tuple[str, int] | tuple[str, int, str] | None = None,
    rate: str | tuple[str, str] | None = None,
    without: Iterable[type] = (),
    profile: str = "default",
) -> Callable[[F], F]:
    """Register a function as a job. Without options no brackets are needed. Types: ``tenure/declaring.py``.

    The function itself is returned; its attributes enqueue it: ``send.enqueue(…)``, ``send.options(…).enqueue(…)``.
    A coroutine function runs in an async pool, a plain function in a sync pool; one that yields is a planner. A
    parameter annotated ``Context`` or with a subclass of ``Resource`` receives that; every other one is an argument.
    Durations are seconds, texts such as ``"5m"``, or ``timedelta``. Limits hold for the cluster, or for each key.

    Args:
        name: the job's name; default ``module.function``. 1 to 128 of ``A-Z a-z 0-9 _ . : -``.
        queue: the queue its runs go to by default.
        priority: ``high``, ``normal`` or ``low``; default: the profile's, which is ``normal`` unless it sets another.
        retry: when a failed run is tried again; default: the profile's, three attempts.
        timeout: until the run is killed with its process; above 0. Default: the profile's, 300 seconds.
        soft_timeout: until it is asked to stop by an exception. Default: 90 % of ``timeout``, at least 1 s before it.
        max_crashes: how many processes a run may take down before it is dead; 1 to 1000.
        result_ttl: how long to keep a result that is not None, and the last progress; 0 keeps no result.
        delivery: ``at_least_once``, or ``at_most_once``: lost rather than run again.
        start_deadline: a run that did not begin so long after it could is not started; it ends expired.
        unique: at most one unfinished run with the same arguments (``True``) or the same key (a pattern).
        concurrency: how many runs may execute at once; or (key, how many); or (key, how many, ``replace``).
        rate: how many runs may start in a time: ``"100/m"``, ``"5/2h"``; or (key, rate).
        without: classes of middleware that do not wrap this job.
        profile: the bundle of policies and hooks, from ``profiles:`` of the configuration, that it goes by.

    Raises:
        OptionError: an option is outside its range or of another type, or a key names no parameter of the function.
    """
    profile, classes = profile_field(check_name("profile", profile)), _classes(without)
    fields = {
        "queue": check_name("queue", queue),
        "priority": PRIORITIES["normal" if priority is None else checked_priority(priority)],
        "max_crashes": crashes_field(max_crashes),
        **time_fields(timeout, soft_timeout, result_ttl, start_deadline),
        **delivery_fields(delivery, retry),
        **limit_fields(unique, concurrency, rate),
        "profile": profile,
    }
    given = given_of(priority=priority, retry=retry, timeout=timeout, start_deadline=start_deadline)
    more = {"given": given, "rules": retry}
    if callable(name):  # plain @job: what it is given is the function
        return cast("Callable[[F], F]", _register(None, fields, classes, more, name))
    return partial(_register, name, fields, classes, more)


def _register(
    name: str | None, fields: dict[str, Any], without: tuple[type, ...], more: dict[str, Any], function: F
) -> F:
    registry.add(replace(_spec(name, function, fields, without), **more))
    for attribute in ATTRIBUTES:
        setattr(function, attribute, partial(_call, function, attribute))
    return function


def _spec(name: str | None, function: Callable[..., Any], fields: dict[str, Any], without: tuple[type, ...]) -> JobSpec:
    job_name = f"{function.__module__}.{function.__name__}" if name is None else name
    if not isinstance(job_name, str) or not _NAME.match(job_name):
        raise OptionError(f"job name {shown(job_name)} must be 1 to 128 of letters, digits and _ . : -")
    signature = Signature.of(job_name, function)
    return JobSpec(
        base=Template(
            job=job_name,
            kind=kind_of(job_name, function),
            args=signature.defaults_of(job_name, placeholders(fields)),
            # Only what differs: a run carries it through Redis, and what it leaves out is the default.
            **{name: value for name, value in fields.items() if value != getattr(_DEFAULTS, name)},
        ),
        function=function,
        arguments=signature.arguments,
        context_parameter=signature.context_parameter,
        resources=signature.resources,
        without=without,
        signature=signature_of(function, signature.injected),
        has_models=signature.has_models,
    )


def _classes(without: Any) -> tuple[type, ...]:
    found = tuple(without) if isinstance(without, Iterable) else (without,)
    for item in found:
        if not (isinstance(item, type) and getattr(item, "__tenure_middleware__", False)):
            raise OptionError(f"without= takes classes of middleware, got {shown(item)}")
    return found


def _call(function: Callable[..., Any], name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Load the producer, and with it a Redis client, and call ``name`` of the job's calls."""
    return getattr(import_module(_CALLS).JobCalls(function), name)(*args, **kwargs)
