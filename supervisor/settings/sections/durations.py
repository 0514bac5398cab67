"""Durations as fields of settings. How they are written: core/durations.py."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from supervisor.core.durations import DURATION_PATTERN, delay_to_ms, format_duration, parse_duration

__all__ = ["DURATION_PATTERN", "Seconds", "delay_to_ms", "format_duration", "parse_duration"]


def _validate(value: Any, info: ValidationInfo) -> float:
    # The loader validates JSON. Numbers in Python mode come from code and from defaults, and are seconds.
    if info.mode == "python" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return parse_duration(value)


Seconds = Annotated[
    float,
    BeforeValidator(_validate),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
"""A field in seconds that people write with a unit."""
