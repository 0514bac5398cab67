"""A registered job: its function, its arguments and the defaults of its runs; and its card, which agents publish."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from supervisor.core.errors import ArgumentsError, shown
from supervisor.core.jobs.profile_policies import Given
from supervisor.core.jobs.resource import Resource
from supervisor.core.jobs.signatures import in_words
from supervisor.core.json_values import Place, path_of
from supervisor.core.model import Kind, Template
from supervisor.core.model_types import is_model, model_schema, plain_model, read_model
from supervisor.core.retry import Retry


class JobCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as agents publish it in Redis, for producers without its function: routing and argument names, no code."""

    v: int = 1
    template: Template
    signature: str = ""
    required: list[str] = []
    optional: list[str] = []
    given: list[str] = []

    def admit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``args`` if they have the names that the job takes.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        known = {*self.required, *self.optional}
        unknown = sorted(shown(name) for name in args if name not in known)
        missing = sorted(set(self.required) - set(args))
        if unknown or missing:
            wrong = [f"takes no argument {item}" for item in unknown] + [f"needs {item!r}" for item in missing]
            raise ArgumentsError(f"job {self.template.job} {', '.join(wrong)}; its signature is {self.signature}")
        return args


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

    declared: Template | None = None
    """``base`` without any profile, where it follows one; None: it follows none."""

    name: str = field(init=False)
    """Name of the job."""

    kind: Kind = field(init=False)
    """Kind of the pool that runs it."""

    def __post_init__(self) -> None:
        """Hold at hand what each run asks for."""
        object.__setattr__(self, "name", self.base.job)
        object.__setattr__(self, "kind", self.base.kind)

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
            unknown = sorted(shown(name) for name in args if name not in known)
            raise ArgumentsError(f"job {self.name} takes no argument {', '.join(unknown)}; it takes {self.signature}")
        try:
            given = args if type(args) is dict else dict(args)
            return msgspec.convert(given, self.arguments, strict=False, dec_hook=read_model)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ArgumentsError(f"job {self.name}{self.signature}: {in_words(self.arguments, str(error))}") from None
        except Exception as error:  # of a validator, of __post_init__: whatever it raises, the value was not accepted
            raised = f"the code of its types raised {type(error).__name__}"
            raise ArgumentsError(f"job {self.name}{self.signature}: {raised}") from error

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
        """Return the template of a run with ``args``; ``overrides`` that are not None replace fields of it by name.

        Raises:
            ArgumentsError: the arguments do not fit the signature.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        return msgspec.structs.replace(self.base, args={**self.base.args, **self.admit(args)}, **given)

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


_REMEDIES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), "a text, such as base64,"),
    ((set, frozenset), "a list"),
    ((date, time), "isoformat()"),
    ((timedelta,), "total_seconds()"),
    ((Decimal, UUID), "str() of it"),
    ((Enum,), "its value"),
    ((msgspec.Struct,), "msgspec.to_builtins() of it"),
)


def check_untyped(job: str, arguments: type[msgspec.Struct], args: Mapping[str, Any]) -> None:
    """Return if the values in ``args`` for parameters of ``job`` without a type have a form in JSON.

    Raises:
        ArgumentsError: one holds bytes, a set, a date, a time, a timedelta, a Decimal, a UUID, an enum, a dataclass,
            a struct of msgspec or a model of pydantic; names the place.
    """
    for name in _untyped(arguments):
        value = args.get(name)
        if value is None or _is_plain(value):
            continue
        if problem := _first_foreign(name, value):
            raise ArgumentsError(f"job {job}: argument {problem}")


@lru_cache(maxsize=4096)
def _untyped(arguments: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the parameters of type Any, or lists and mappings of it."""
    info = inspect.type_info(arguments)
    assert isinstance(info, inspect.StructType)
    return tuple(each.name for each in info.fields if _is_untyped(each.type))


def _is_untyped(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return _is_untyped(kind.item_type)
    if isinstance(kind, inspect.DictType):
        return _is_untyped(kind.value_type)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(each, inspect.NoneType) or _is_untyped(each) for each in kind.types)
    return isinstance(kind, inspect.AnyType)


def _is_plain(value: object) -> bool:
    """Return whether ``value`` is JSON as it is. In C, as nearly every one is."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _instead_of(value: object) -> str:
    """Return what to send in place of a value that has no form in JSON; empty for every other value."""
    for kinds, text in _REMEDIES:
        if isinstance(value, kinds):
            return text
    if is_model(type(value)):
        return 'model_dump(mode="json")'
    return "dataclasses.asdict() of it" if is_dataclass(value) else ""


def _first_foreign(name: str, value: object) -> str:
    waiting: list[tuple[object, Place]] = [(value, (None, name))]
    met: set[int] = set()
    while waiting:
        item, place = waiting.pop()
        if instead := _instead_of(item):
            return (
                f"{path_of(place)} is of type {type(item).__name__}, for which JSON has no form; "
                f"send {instead} in its place, or annotate the parameter with its type"
            )
        if isinstance(item, dict | list | tuple) and id(item) not in met:
            met.add(id(item))
            inside = item.items() if isinstance(item, dict) else enumerate(item)
            waiting += [(each, (place, str(key))) for key, each in inside]
    return ""


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def arguments_schema(spec: JobSpec) -> dict[str, Any]:
    """Return the schema of the arguments that ``spec`` takes by name; others are refused."""
    try:
        (found,), definitions = msgspec.json.schema_components(
            [spec.arguments], schema_hook=model_schema, ref_template="#/$defs/{name}"
        )
    except TypeError:  # a type of the job's own: its names are known, and what they hold is checked by the worker
        fields = msgspec.structs.fields(spec.arguments)
        required = [field.name for field in fields if field.required]
        found, definitions = {"properties": {field.name: {} for field in fields}, "required": required}, {}
    name = str(found.get("$ref", "")).rpartition("/")[2]
    own = definitions.pop(name, found)
    schema: dict[str, Any] = {
        "$schema": DIALECT,
        "title": spec.name,
        "type": "object",
        "properties": own.get("properties", {}),
        "required": own.get("required", []),
        "additionalProperties": False,
    }
    return {**schema, "$defs": definitions} if definitions else schema
