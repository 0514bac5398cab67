"""The jobs this program knows: a registry filled by ``@job``, never import-by-name.

A queue payload names a job; only names registered by a module listed under ``jobs:``
run. So nothing that reaches Redis can make a worker import or execute other code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from supervisor.core.errors import ArgumentsError, TenureError, UnknownJobError
from supervisor.core.jobs.job_cards import JobCard, instantiated
from supervisor.core.jobs.options import Options, placeholders
from supervisor.core.jobs.profile_policies import Given, Policies, given_of, profile_field, under
from supervisor.core.jobs.resource import Resource
from supervisor.core.jobs.signatures import Signature, in_words, kind_of, signature_of
from supervisor.core.model import Kind, Template
from supervisor.core.model_types import plain_model, read_model
from supervisor.core.retry import Retry
from supervisor.core.untyped import check_untyped

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}\Z")

_DEFAULTS = Template(job="", kind=Kind.SYNC)

F = TypeVar("F", bound=Callable[..., Any])


class DuplicateJobError(TenureError):
    """Two functions claim one job name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A registered job: its function and the defaults of every run of it."""

    base: Template
    """What a run of it is unless somebody says otherwise. Its arguments are the defaults that limits need."""

    function: Callable[..., Any]
    arguments: type[msgspec.Struct] = field(repr=False)
    context_parameter: str | None = None
    resources: tuple[tuple[str, type[Resource]], ...] = ()
    """Parameters that the worker fills with a resource, and its class; in the order of the signature."""

    without: tuple[type, ...] = ()
    """Classes of middleware that do not stand around it."""

    signature: str = ""
    has_models: bool = False
    """Whether an argument is, or holds, a pydantic model."""

    given: Given = frozenset()
    """Options that its ``@job`` said, and no profile replaces."""

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.base.job

    @property
    def kind(self) -> Kind:
        """Kind of the pool that runs it."""
        return self.base.kind

    @property
    def queue(self) -> str:
        """Default queue of its runs."""
        return self.base.queue

    @property
    def retry(self) -> Retry:
        """Retry policy of its runs."""
        return self.base.retry

    @property
    def timeout_s(self) -> float:
        """Seconds until a run is killed."""
        return self.base.timeout_s

    @property
    def at_most_once(self) -> bool:
        """True if a run is lost rather than run again."""
        return self.base.at_most_once

    @property
    def origin(self) -> str:
        """Definition of the function, as ``module:qualname``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``args`` converted to the types of the signature.

        Raises:
            ArgumentsError: a name is unknown or missing, or a value has the wrong type.
        """
        value = self.read(args)
        # What the caller left out stays out, so that the function's own default applies.
        return {
            name: item
            for name in self.arguments.__struct_fields__
            if (item := getattr(value, name)) is not msgspec.UNSET
        }

    def read(self, args: Mapping[str, Any]) -> msgspec.Struct:
        """Return ``args`` as the struct that they are; for those who only want to know whether they fit.

        Raises:
            ArgumentsError: they do not.
        """
        known = self.arguments.__struct_fields__
        if not args.keys() <= set(known):
            unknown = sorted(set(args) - set(known), key=str)
            raise ArgumentsError(
                f"job {self.name} takes no argument {', '.join(map(repr, unknown))}; it takes {self.signature}"
            )
        try:
            given = args if type(args) is dict else dict(args)
            return msgspec.convert(given, self.arguments, strict=False, dec_hook=read_model)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ArgumentsError(f"job {self.name}{self.signature}: {in_words(self.arguments, str(error))}") from None

    def admit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``args`` as they travel: pydantic models as JSON values, everything else as it is.

        Raises:
            ArgumentsError: they do not fit the signature, or one for a parameter without a type has no form in JSON.
        """
        self.read(args)
        check_untyped(self.name, self.arguments, args)
        if not self.has_models:
            return args
        plain: dict[str, Any] = msgspec.to_builtins(args, enc_hook=plain_model)
        return plain

    def template(self, args: Mapping[str, Any], **overrides: Any) -> Template:
        """Return the template of a run with ``args``; ``overrides`` replace fields of it by name.

        Raises:
            ArgumentsError: the arguments do not fit the signature.
        """
        return instantiated(self.base, self.admit(args), overrides)

    def card(self) -> JobCard:
        """Return the card by which a producer without this function routes and checks a run of it."""
        fields = msgspec.structs.fields(self.arguments)
        return JobCard(
            template=self.base,
            signature=self.signature,
            required=[item.name for item in fields if item.required],
            optional=[item.name for item in fields if not item.required],
            given=sorted(self.given),
        )


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

    def use(self, policies: Policies) -> None:
        """Have every job, also those that come later, follow its profile."""
        self._policies = policies
        for spec in list(self._jobs.values()):
            self._jobs[spec.name] = self._by_function[spec.function] = self._following(spec)

    def _following(self, spec: JobSpec) -> JobSpec:
        base = under(spec.base, spec.given, self._policies)
        return spec if base is spec.base else replace(spec, base=base)

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
        try:
            return self._by_function[function]
        except (KeyError, TypeError):
            raise UnknownJobError(f"{function!r} is not a job; decorate it with @job") from None

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
    timeout: float | str | None = None,
    soft_timeout: float | str | None = None,
    max_crashes: int = 3,
    result_ttl: float | str = 86_400.0,
    delivery: str = "at_least_once",
    start_deadline: float | str | None = None,
    unique: bool | str = False,
    concurrency: int | tuple[str, int] | tuple[str, int, str] | None = None,
    rate: str | tuple[str, str] | None = None,
    without: Iterable[type] = (),
    profile: str = "default",
) -> Callable[[F], F]:
    """Register a function as a job; the function itself is returned unchanged, to be called in tests.

    A coroutine function runs in an async pool, a plain function in a sync pool; one that yields is a planner. A
    parameter annotated ``Context`` or with a subclass of ``Resource`` receives that; every other one is an argument.
    Durations are seconds, or texts such as ``"5m"``. Limits hold for the whole cluster, or for each value of a key.

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
        ValueError: an option is outside its range, or a key names no parameter of the function.
    """
    options = Options(
        queue=queue,
        priority="normal" if priority is None else priority,
        retry=retry,
        timeout=_DEFAULTS.timeout_s if timeout is None else timeout,
        soft_timeout=soft_timeout,
        max_crashes=max_crashes,
        result_ttl=result_ttl,
        delivery=delivery,
        start_deadline=start_deadline,
        unique=unique,
        concurrency=concurrency,
        rate=rate,
    )
    given = given_of(priority=priority, retry=retry, timeout=timeout, start_deadline=start_deadline)
    return partial(_register, name, options.fields() | {"profile": profile_field(profile)}, tuple(without), given)


def _register(name: str | None, fields: dict[str, Any], without: tuple[type, ...], given: Given, function: F) -> F:
    registry.add(replace(_spec(name, function, fields, without), given=given))
    return function


def _spec(name: str | None, function: Callable[..., Any], fields: dict[str, Any], without: tuple[type, ...]) -> JobSpec:
    job_name = name or f"{function.__module__}.{function.__name__}"
    if not _NAME.match(job_name):
        raise ValueError(f"job name {job_name!r} must be 1 to 128 of letters, digits and _ . : -")
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
        without=_checked_without(job_name, without),
        signature=signature_of(function, signature.injected),
        has_models=signature.has_models,
    )


def _checked_without(job_name: str, without: tuple[type, ...]) -> tuple[type, ...]:
    for item in without:
        if not (isinstance(item, type) and getattr(item, "__tenure_middleware__", False)):
            raise ValueError(f"job {job_name}: without= takes classes of middleware, got {item!r}")
    return without
