"""Base of every settings section: the model, types of names and durations, paths, origins of settings, broken rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from supervisor.core.durations import DURATION_PATTERN, format_duration, parse_duration

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SCHEDULE_ID = r"^[A-Za-z0-9._:/-]{1,200}$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"

Name = Annotated[str, StringConstraints(pattern=NAME)]
QueueName = Name
ScheduleId = Annotated[str, StringConstraints(pattern=SCHEDULE_ID)]
ModuleName = Annotated[str, StringConstraints(pattern=MODULE)]

Path = tuple[str | int, ...]
"""Where a setting is in the tree: ``("workers", "io", "queues", 0)``."""


def key_of(field: str) -> str:
    """Return the key that people write for a field."""
    return field.removesuffix("_s")


class Section(BaseModel):
    """A mapping with known keys. A field that ends in ``_s`` is written without that: its value has a unit."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=key_of, populate_by_name=True, use_attribute_docstrings=True
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Values may be secrets: `tenure config show` prints them masked.
        for name in sorted(self.model_fields_set):
            yield name, ...


ORIGINS_MAX = 10_000
"""A copy goes to every process: of schedules only where each begins, and of very many not all."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins of settings: paths and places, never values. All are equal: a value is the same wherever it is from."""

    by_path: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Path of a setting to file:line, variable or flag; absent: its default, or left out."""

    left_out: int = field(default=0, compare=False)


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


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. The first path is the one a person is sent to, unless only others were written."""

    paths: tuple[Path, ...]
    message: str
    remedy: str = ""


def split(message: str) -> tuple[str, str]:
    """Return the message and the remedy of an error of the core, which separates them by a semicolon."""
    text, _, remedy = message.rpartition("; ")
    return (text, remedy) if text else (message, "")
