"""Signature of a job's function, checked and classified by parameter.

Guarantees that whatever could not be called by name, or whose arguments could not be
checked, is refused when its module is imported, not when its first run is due.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, get_args, get_type_hints

import msgspec

from supervisor.core.errors import OptionError, shown
from supervisor.core.jobs.resource import Resource, check_resource
from supervisor.core.model import Kind
from supervisor.core.model_types import has_model, model_schema, plain_model, read_model

_UNSUPPORTED = re.compile(r"type (?:<class ')?([^'> ]+)(?:'>)? is not supported")


def kind_of(job_name: str, function: Callable[..., Any]) -> Kind:
    """Return which pool runs ``function``; refuse functions that neither could."""
    if not inspect.isfunction(function):
        raise OptionError(f"job {job_name}: {shown(function)} is not a function defined with def or async def")
    is_coroutine = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    return Kind.ASYNC if is_coroutine else Kind.SYNC


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a job by their role: the context, a resource, or an argument."""

    arguments: type[msgspec.Struct]
    context_parameter: str | None
    resources: tuple[tuple[str, type[Resource]], ...]
    defaults: Mapping[str, Any]  # of arguments that have one
    has_models: bool = False
    """Whether an argument is, or holds, a pydantic model."""

    @classmethod
    def of(cls, job_name: str, function: Callable[..., Any]) -> Self:
        """Return the signature of ``function``.

        Raises:
            OptionError: a parameter can be none of them.
        """
        contexts: list[str] = []
        resources: list[tuple[str, type[Resource]]] = []
        fields: list[Any] = []
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise OptionError(f"job {job_name}: parameter {name!r} must have a name that callers can use")
            hint = _hint(job_name, function, parameter)
            if getattr(hint, "__tenure_context__", False):
                contexts.append(name)
            elif getattr(hint, "__tenure_resource__", False):
                resources.append((name, check_resource(job_name, kind_of(job_name, function), name, hint)))
            elif parameter.default is parameter.empty:
                fields.append((name, hint))
            else:
                # The default itself is never copied or converted: the function applies it.
                is_fixed = hint is Any or has_model(hint)  # msgspec takes no further type beside a model
                fields.append((name, hint if is_fixed else hint | msgspec.UnsetType, msgspec.UNSET))
        if len(contexts) > 1:
            raise OptionError(f"job {job_name}: {contexts[0]!r} and {contexts[1]!r} both take the Context")
        arguments = _arguments(f"job {job_name}{inspect.signature(function)}", fields)
        known = arguments.__struct_fields__
        defaults = {name: parameters[name].default for name in known}
        return cls(
            arguments,
            contexts[0] if contexts else None,
            tuple(resources),
            {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty},
            any(has_model(field[1]) for field in fields),
        )

    @property
    def injected(self) -> frozenset[str]:
        """Parameters that the worker fills."""
        return frozenset({name for name, _ in self.resources} | {self.context_parameter or ""})

    def defaults_of(self, job_name: str, needed: Mapping[str, str]) -> dict[str, Any]:
        """Return the defaults among ``needed``: parameter to the option that names it.

        A key of a limit is computed where the run is enqueued, so the parameters it names must be there.

        Raises:
            OptionError: one is no argument of the job, or has a default that is no JSON.
        """
        types = {field.name: field.type for field in msgspec.structs.fields(self.arguments)}
        found = {}
        for name, option in needed.items():
            if name not in types:
                raise OptionError(
                    f"job {job_name}: {option} names {{{name}}}, which is no argument of it; "
                    f"its arguments: {', '.join(types) or 'none'}"
                )
            if name not in self.defaults:
                continue
            try:
                # As a run of it will be read: the default travels, like an argument that was given.
                plain = msgspec.json.decode(msgspec.json.encode(self.defaults[name], enc_hook=plain_model))
                msgspec.convert(plain, types[name], strict=False, dec_hook=read_model)
            except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
                raise OptionError(
                    f"job {job_name}: {option} names {{{name}}}, whose default {self.defaults[name]!r} "
                    f"cannot travel with a run: {error}; give it another default, or none"
                ) from None
            found[name] = plain if has_model(types[name]) else self.defaults[name]
        return found


def _arguments(what: str, fields: list[Any]) -> type[msgspec.Struct]:
    arguments = msgspec.defstruct("Arguments", fields, kw_only=True)
    try:
        msgspec.json.Decoder(arguments)  # finds at import what would otherwise fail at the first run
        msgspec.json.schema(arguments, schema_hook=model_schema)  # refuses types that no JSON value converts to
    except TypeError as error:
        unsupported = _UNSUPPORTED.search(str(error))
        if unsupported is None:
            raise OptionError(f"{what}: {error}") from None
        raise OptionError(
            f"{what}: no JSON value converts to the type {unsupported[1]}; "
            f"annotate with Any, or with the type that the values have"
        ) from None
    return arguments


def signature_of(function: Callable[..., Any], injected: Collection[str] = ()) -> str:
    """Return the signature for callers, as people write it: nothing injected, no quotes around deferred annotations."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in injected:
            continue
        hint, text = parameter.annotation, parameter.name
        if hint is not parameter.empty:
            text += f": {hint if isinstance(hint, str) else inspect.formatannotation(hint)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        shown.append(text)
    return f"({', '.join(shown)})"


class _ContextByName:
    """Replacement of an annotation that reads ``Context`` but was imported for type checking only."""

    __tenure_context__ = True


def _hint(job_name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of one parameter.

    Each is resolved by itself, because ``typing.get_type_hints`` fails as a whole when one name,
    such as the return type's, exists only under ``TYPE_CHECKING``.
    """
    hint = parameter.annotation
    if hint is parameter.empty:
        return Any
    if not isinstance(hint, str):
        return hint
    try:
        return _resolve(hint, {**function.__globals__, **_enclosed(function)})
    except (NameError, AttributeError):
        if hint.strip("'\"").rpartition(".")[2] == "Context":
            return _ContextByName
        raise OptionError(
            f"job {job_name}: the type {hint!r} of parameter {parameter.name!r} is not known when the module runs; "
            f"import or define it at module level, outside TYPE_CHECKING"
        ) from None


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names of the enclosing function that ``function`` sees."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty: the name of a function that calls itself is not set yet
            found[name] = cell.cell_contents
    return found


def _resolve(hint: str, scope: dict[str, Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"value": hint}
    return get_type_hints(holder, globalns=scope, include_extras=True)["value"]


def in_words(arguments: type[msgspec.Struct], text: str) -> str:
    """Return msgspec's message about a value, without the value, or its annotation's own.

    That is ``Meta(extra={"remedy": …})``.
    """
    said, at, place = text.rpartition(" - at `")
    for kind in ("Invalid enum value", "Invalid value"):
        if said.startswith(kind):
            text = kind + at + place
    path = text.rpartition("`$.")[2].removesuffix("`")
    hints = [each.type for each in msgspec.structs.fields(arguments) if each.name == path]
    if hints and "matching regex" in text:
        for meta in (meta for hint in (*hints, *get_args(hints[0])) for meta in getattr(hint, "__metadata__", ())):
            if isinstance(meta, msgspec.Meta) and (remedy := (meta.extra or {}).get("remedy")):
                return f"{path}: {remedy}"
    return text
