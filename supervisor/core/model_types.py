"""Pydantic models as arguments and results of jobs, by their own methods: pydantic is never imported here.

A model travels as the JSON that ``model_dump(mode="json")`` makes, and ``model_validate_json`` reads at the worker.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec


def is_model(kind: object) -> bool:
    """Return whether ``kind`` is a class of pydantic models."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def has_model(hint: object) -> bool:
    """Return whether an annotation is a pydantic model, or a union, list or mapping with one in it."""
    return is_model(hint) or any(has_model(each) for each in get_args(hint))


def read_model(kind: type, value: object) -> object:
    """Return ``value`` as the model ``kind``: the decoding hook of msgspec.

    Raises:
        TypeError: ``kind`` is no pydantic model.
        ValueError: the model refuses the value; names its fields, and repeats no value.
    """
    if not is_model(kind):
        raise TypeError(f"type {kind} is not supported")
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate_json(msgspec.json.encode(value, enc_hook=plain_model))  # type: ignore[attr-defined]
    except ValueError as error:
        raise ValueError(_refusal(error)) from None


def plain_model(value: object) -> Any:
    """Return a model as JSON values: the encoding hook of msgspec.

    Raises:
        TypeError: ``value`` is no pydantic model.
    """
    if not is_model(type(value)):
        raise TypeError(f"objects of type {type(value).__name__} have no form in JSON")
    return value.model_dump(mode="json")  # type: ignore[attr-defined]


def model_schema(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a model: the schema hook of msgspec. Of nested models only the title and the type.

    Raises:
        TypeError: ``kind`` is no pydantic model.
    """
    if not is_model(kind):
        raise TypeError(f"type {kind} is not supported")
    schema: dict[str, Any] = kind.model_json_schema()  # type: ignore[attr-defined]
    return {"title": kind.__name__, "type": "object"} if "$defs" in schema else schema


def _refusal(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
