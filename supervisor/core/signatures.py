"""What a function's signature says about the job it becomes.

Guarantees that whatever could not be called by name, or whose arguments could not be
checked, is refused when its module is imported, not when its first run is due.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_type_hints

import msgspec

from supervisor.core.model import Kind


def kind_of(job_name: str, function: Callable[..., Any]) -> Kind:
    """Return which pool runs ``function``; refuse what neither could."""
    if not inspect.isfunction(function):
        raise ValueError(f"job {job_name}: {function!r} is not a function defined with def or async def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"job {job_name}: a function that yields does nothing when called; return instead")
    return Kind.ASYNC if inspect.iscoroutinefunction(function) else Kind.SYNC


def parameters_of(job_name: str, function: Callable[..., Any]) -> tuple[str | None, type[msgspec.Struct]]:
    """Return the name of the Context parameter, if any, and a struct of all the others."""
    context_parameter: str | None = None
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise ValueError(f"job {job_name}: parameter {parameter.name!r} must have a name that callers can use")
        hint = _hint(job_name, function, parameter)
        if getattr(hint, "__tenure_context__", False):
            if context_parameter is not None:
                raise ValueError(f"job {job_name}: {context_parameter!r} and {parameter.name!r} both take the Context")
            context_parameter = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            # The default itself is never copied or converted: the function applies it.
            fields.append((parameter.name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET))
    arguments = msgspec.defstruct("Arguments", fields, kw_only=True)
    try:
        msgspec.json.Decoder(arguments)  # finds at import what would otherwise fail at the first run
        msgspec.json.schema(arguments)  # refuses types that no JSON value converts to
    except TypeError as error:
        raise ValueError(f"job {job_name}{inspect.signature(function)}: {error}") from None
    return context_parameter, arguments


def signature_of(function: Callable[..., Any], context_parameter: str | None) -> str:
    """Return what callers may give, as people write it: no context, no quotes around deferred annotations."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == context_parameter:
            continue
        hint, text = parameter.annotation, parameter.name
        if hint is not parameter.empty:
            text += f": {hint if isinstance(hint, str) else inspect.formatannotation(hint)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        shown.append(text)
    return f"({', '.join(shown)})"


class _ContextByName:
    """Stands for an annotation that reads ``Context`` but was imported for type checking only."""

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
        raise ValueError(
            f"job {job_name}: the type {hint!r} of parameter {parameter.name!r} is not known when the module runs; "
            f"import or define it at module level, outside TYPE_CHECKING"
        ) from None


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what ``function`` sees of the function around it."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty: the name of a function that calls itself is not set yet
            found[name] = cell.cell_contents
    return found


def _resolve(hint: str, scope: dict[str, Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"value": hint}
    return get_type_hints(holder, globalns=scope, include_extras=True)["value"]
