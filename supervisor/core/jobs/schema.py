"""The JSON Schema of a job's arguments, from the signature that checks them: for forms, other languages and reviews."""

from __future__ import annotations

from typing import Any

import msgspec

from supervisor.core.jobs.registry import JobSpec
from supervisor.core.model_types import model_schema

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
