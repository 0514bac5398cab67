"""The jobs this program knows: a registry filled by ``@job``, never import-by-name.

A queue payload names a job; only names registered by a module listed under ``jobs:``
run. So nothing that reaches Redis can make a worker import or execute other code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from supervisor.core.errors import ArgumentsError, TenureError, UnknownJobError
from supervisor.core.model import PRIORITIES, Kind, Template
from supervisor.core.retry import Retry
from supervisor.core.signatures import kind_of, parameters_of, signature_of

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}\Z")

F = TypeVar("F", bound=Callable[..., Any])


class DuplicateJobError(TenureError):
    """Two functions claim one job name."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A registered job: its function and what every run of it starts from."""

    name: str
    function: Callable[..., Any]
    kind: Kind
    queue: str
    priority: int
    retry: Retry
    timeout_s: float
    soft_timeout_s: float | None
    max_crashes: int
    result_ttl_s: float
    at_most_once: bool
    context_parameter: str | None
    arguments: type[msgspec.Struct] = field(repr=False)
    signature: str = ""

    @property
    def origin(self) -> str:
        """Where the function is defined, as ``module:qualname``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``args`` converted to the types of the signature.

        Raises:
            ArgumentsError: a name is unknown or missing, or a value has the wrong type.
        """
        known = self.arguments.__struct_fields__
        unknown = sorted(set(args) - set(known))
        if unknown:
            raise ArgumentsError(
                f"job {self.name} takes no argument {', '.join(map(repr, unknown))}; it takes {self.signature}"
            )
        try:
            value = msgspec.convert(dict(args), self.arguments, strict=False)
        except msgspec.ValidationError as error:
            raise ArgumentsError(f"job {self.name}{self.signature}: {error}") from None
        given = ((name, getattr(value, name)) for name in known)
        # What the caller left out stays out, so that the function's own default applies.
        return {name: item for name, item in given if item is not msgspec.UNSET}

    def template(self, args: Mapping[str, Any], **overrides: Any) -> Template:
        """Return the template of a run with ``args``; ``overrides`` replace fields of it by name.

        Raises:
            ArgumentsError: the arguments do not fit the signature.
        """
        self.check(args)
        fields: dict[str, Any] = {
            "job": self.name,
            "kind": self.kind,
            "queue": self.queue,
            "priority": self.priority,
            "args": dict(args),
            "retry": self.retry,
            "timeout_s": self.timeout_s,
            "soft_timeout_s": self.soft_timeout_s,
            "max_crashes": self.max_crashes,
            "result_ttl_s": self.result_ttl_s,
            "at_most_once": self.at_most_once,
        }
        fields.update({name: value for name, value in overrides.items() if value is not None})
        return Template(**fields)

    def card(self) -> JobCard:
        """Return what a producer without this function needs to route and check a run of it."""
        fields = msgspec.structs.fields(self.arguments)
        template = Template(
            job=self.name,
            kind=self.kind,
            queue=self.queue,
            priority=self.priority,
            retry=self.retry,
            timeout_s=self.timeout_s,
            soft_timeout_s=self.soft_timeout_s,
            max_crashes=self.max_crashes,
            result_ttl_s=self.result_ttl_s,
            at_most_once=self.at_most_once,
        )
        return JobCard(
            template=template,
            signature=self.signature,
            required=[item.name for item in fields if item.required],
            optional=[item.name for item in fields if not item.required],
        )


class JobCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as agents publish it in Redis: routing and argument names, never code."""

    v: int = 1
    template: Template
    signature: str = ""
    required: list[str] = []
    optional: list[str] = []

    def instantiate(self, args: Mapping[str, Any], **overrides: Any) -> Template:
        """Return the template of a run with ``args``, whose names are checked here and whose types by the worker.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        name = self.template.job
        unknown = sorted(set(args) - {*self.required, *self.optional})
        missing = sorted(set(self.required) - set(args))
        if unknown or missing:
            wrong = [f"takes no argument {item!r}" for item in unknown] + [f"needs {item!r}" for item in missing]
            raise ArgumentsError(f"job {name} {', '.join(wrong)}; its signature is {self.signature}")
        fields = {item: value for item, value in overrides.items() if value is not None}
        return msgspec.structs.replace(self.template, args=dict(args), **fields)


class Registry:
    """Job name to job. Filled while modules are imported, read afterwards."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobSpec] = {}

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
        self._jobs[spec.name] = spec

    def get(self, name: str) -> JobSpec:
        """Return the job called ``name``.

        Raises:
            UnknownJobError: no imported module registered it.
        """
        try:
            return self._jobs[name]
        except KeyError:
            raise UnknownJobError(
                f"no job is called {name!r}; list the module that defines it under jobs: in the configuration"
            ) from None

    def find(self, function: Callable[..., Any]) -> JobSpec:
        """Return the job that ``function`` is.

        Raises:
            UnknownJobError: it was not registered.
        """
        for spec in self._jobs.values():
            if spec.function is function:
                return spec
        raise UnknownJobError(f"{function!r} is not a job; decorate it with @job")

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
    priority: str = "normal",
    retry: Retry | None = None,
    timeout: float = 300.0,
    soft_timeout: float | None = None,
    max_crashes: int = 3,
    result_ttl: float = 86_400.0,
    delivery: str = "at_least_once",
) -> Callable[[F], F]:
    """Register a function as a job; the function itself is returned unchanged, to be called in tests.

    A coroutine function runs in an async pool, a plain function in a sync pool. A parameter
    annotated ``Context`` receives the run's context; every other parameter is an argument.

    Args:
        name: the job's name; default ``module.function``. 1 to 128 of ``A-Z a-z 0-9 _ . : -``.
        queue: the queue its runs go to unless told otherwise.
        priority: ``high``, ``normal`` or ``low``.
        retry: when a failed run is tried again; default three attempts.
        timeout: seconds until the run is killed with its process; above 0.
        soft_timeout: seconds until the job is asked to stop by an exception; below ``timeout``.
            Default: 90 % of ``timeout``, and at least 1 s before it (half of it when that is less).
        max_crashes: how many processes a run may take down before it is dead; at least 1.
        result_ttl: seconds to keep a result that is not None; 0 keeps none.
        delivery: ``at_least_once``, or ``at_most_once``: lost rather than run again.

    Raises:
        ValueError: an option is outside its range.
    """
    options = _options(
        priority=priority,
        retry=retry,
        timeout=timeout,
        soft_timeout=soft_timeout,
        max_crashes=max_crashes,
        result_ttl=result_ttl,
        delivery=delivery,
    )

    def register(function: F) -> F:
        registry.add(_spec(name, function, queue, options))
        return function

    return register


def _spec(name: str | None, function: Callable[..., Any], queue: str, options: dict[str, Any]) -> JobSpec:
    job_name = name or f"{function.__module__}.{function.__name__}"
    if not _NAME.match(job_name):
        raise ValueError(f"job name {job_name!r} must be 1 to 128 of letters, digits and _ . : -")
    kind = kind_of(job_name, function)
    context_parameter, arguments = parameters_of(job_name, function)
    return JobSpec(
        name=job_name,
        function=function,
        kind=kind,
        queue=queue,
        context_parameter=context_parameter,
        arguments=arguments,
        signature=signature_of(function, context_parameter),
        **options,
    )


def _options(
    *,
    priority: str,
    retry: Retry | None,
    timeout: float,
    soft_timeout: float | None,
    max_crashes: int,
    result_ttl: float,
    delivery: str,
) -> dict[str, Any]:
    if priority not in PRIORITIES:
        raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, got {priority!r}")
    if not timeout > 0:
        raise ValueError(f"timeout must be above 0 seconds, got {timeout}")
    if soft_timeout is not None and not 0 < soft_timeout <= timeout:
        raise ValueError(f"soft_timeout must be above 0 and at most timeout ({timeout}), got {soft_timeout}")
    if max_crashes < 1:
        raise ValueError(f"max_crashes must be at least 1, got {max_crashes}")
    if not result_ttl >= 0:
        raise ValueError(f"result_ttl must be 0 seconds or more, got {result_ttl}")
    if delivery not in {"at_least_once", "at_most_once"}:
        raise ValueError(f"delivery must be at_least_once or at_most_once, got {delivery!r}")
    at_most_once = delivery == "at_most_once"
    if at_most_once and retry is not None and retry.attempts > 1:
        raise ValueError("delivery at_most_once cannot be combined with retries; drop retry or set attempts=1")
    return {
        "priority": PRIORITIES[priority],
        "retry": retry or Retry(attempts=1 if at_most_once else 3),
        "timeout_s": float(timeout),
        "soft_timeout_s": soft_timeout,
        "max_crashes": max_crashes,
        "result_ttl_s": float(result_ttl),
        "at_most_once": at_most_once,
    }
