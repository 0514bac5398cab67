"""Values for parameters without a type: a value without a form in JSON would arrive as another, so it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from supervisor.core.errors import ArgumentsError
from supervisor.core.json_values import Place, path_of
from supervisor.core.model_types import is_model

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
    """Return if the values in ``args`` for parameters without a type have a form in JSON.

    Args:
        job: whose they are.
        arguments: the struct of its parameters.
        args: by name.

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
