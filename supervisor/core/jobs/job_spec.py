"""A registered job: its function, its arguments and the defaults of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs.job_cards import JobCard, instantiated
from supervisor.core.jobs.profile_policies import Given
from supervisor.core.jobs.resource import Resource
from supervisor.core.jobs.signatures import in_words
from supervisor.core.model import Kind, Template
from supervisor.core.model_types import plain_model, read_model
from supervisor.core.retry import Retry
from supervisor.core.untyped import check_untyped


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

    rules: Retry | None = None
    """Exceptions after which a run is tried again, or given up: all else of its retry policy travels with the run."""

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
