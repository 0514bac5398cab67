"""The shape of the settings: which keys exist where, and how a text becomes a value there.

Derived from the models once, so that files, variables, flags, masking and the reference
file agree about names without a second list of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from supervisor.settings.sections.models import Settings

BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
"""Limits of a number, as pydantic calls them, in words."""

_MASKED = ("cloudforet", "config")
"""Free content that its section masks as a whole."""


class ShapeKind(Enum):
    """Kind of content at a place in the tree."""

    SECTION = "section"  # a mapping with known keys
    TABLE = "table"  # a mapping from ids that people choose to sections
    FREE = "free"  # a mapping with any content: the arguments of a job
    LIST = "list"
    TEXT = "text"  # taken from variables and flags as it is
    VALUE = "value"  # a number, truth value or duration


@dataclass(frozen=True, slots=True)
class Shape:
    """Permitted content at one place, and below it."""

    kind: ShapeKind
    children: Mapping[str, Shape] = field(default_factory=dict)
    item: Shape | None = None
    is_secret: bool = False
    is_duration: bool = False
    info: FieldInfo | None = None

    def child(self, step: str | int) -> Shape | None:
        """Return the shape under one key or index; None where none is known."""
        if self.kind is ShapeKind.SECTION:
            return self.children.get(step) if isinstance(step, str) else None
        return self.item

    def at(self, path: tuple[str | int, ...]) -> Shape | None:
        """Return the shape under ``path``; None inside free mappings and at unknown keys."""
        shape: Shape | None = self
        for step in path:
            shape = shape.child(step) if shape is not None else None
        return shape

    def paths(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """Yield the path of every setting outside tables, sections included."""
        for key, child in self.children.items():
            yield (*prefix, key)
            yield from child.paths((*prefix, key))


@cache
def settings_shape() -> Shape:
    """Return the shape of the whole configuration."""
    return _of_model(Settings, None)


def is_never_shown(path: tuple[str | int, ...]) -> bool:
    """Return whether the value at ``path`` is a secret by its type, or a text in place of a section that has some."""
    shape = settings_shape().at(path)
    return path[: len(_MASKED)] == _MASKED or (shape is not None and _has_secret(shape))


def _has_secret(shape: Shape) -> bool:
    inner = [*shape.children.values(), *([] if shape.item is None else [shape.item])]
    return shape.is_secret or any(map(_has_secret, inner))


def _of_model(model: type[BaseModel], info: FieldInfo | None) -> Shape:
    children = {entry.alias or name: _of(entry.annotation, entry) for name, entry in model.model_fields.items()}
    return Shape(ShapeKind.SECTION, children=children, info=info)


def _of(annotation: Any, info: FieldInfo | None) -> Shape:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _of(get_args(annotation)[0], info)
    if origin in {Union, UnionType}:
        (inner,) = (part for part in get_args(annotation) if part is not type(None))
        return _of(inner, info)
    if origin is dict:
        item = _of(get_args(annotation)[1], None)
        is_table = item.kind is ShapeKind.SECTION
        is_known = is_table or item.is_secret  # a message about a secret quotes nothing
        return Shape(ShapeKind.TABLE if is_table else ShapeKind.FREE, item=item if is_known else None, info=info)
    if origin is tuple:
        return Shape(ShapeKind.LIST, item=_of(get_args(annotation)[0], None), info=info)
    if origin is Literal:
        is_text = all(isinstance(choice, str) for choice in get_args(annotation))
        return Shape(ShapeKind.TEXT if is_text else ShapeKind.VALUE, info=info)
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return _of_model(annotation, info)
        if issubclass(annotation, str | StrEnum | SecretStr):
            return Shape(ShapeKind.TEXT, is_secret=issubclass(annotation, SecretStr), info=info)
    return Shape(ShapeKind.VALUE, is_duration=annotation is float, info=info)
