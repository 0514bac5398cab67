"""Configuration as a tree of values that remember where they were written.

Layers are such trees; merging them keeps, for each value, the place that decided it.
So a problem found at the very end can still name the file and line, the variable or the
flag. Nothing here reads files or knows the meaning of settings beyond their ``Shape``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.settings.base import Path
from supervisor.settings.schema import Shape, ShapeKind

DEFAULT_ORIGIN = "default"
_MAPPINGS = frozenset({ShapeKind.SECTION, ShapeKind.TABLE, ShapeKind.FREE})
_BARE_KEY = re.compile(r"[A-Za-z0-9_/:-]+\Z")
_STEP = re.compile(r'(?:\A|\.)(?P<bare>[^.\[\]"=]+)|\["(?P<quoted>[^"]+)"\]')


@dataclass(frozen=True, slots=True)
class Node:
    """One value: a mapping or list of nodes, or a scalar; and the place it was written."""

    value: Any
    origin: str
    source: str | None = None  # the text before ${…} was resolved in it; then value is a secret
    is_blank: bool = False  # nothing is written there, null neither; then value is None

    def plain(self) -> Any:
        """Return the value without origins."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Yield this node and every node below it, with its path."""
        yield path, self
        if isinstance(self.value, dict):
            for key, child in self.value.items():
                yield from child.walk((*path, key))
        elif isinstance(self.value, list):
            for index, child in enumerate(self.value):
                yield from child.walk((*path, index))

    def mapped(self, change: Callable[[Node, Path], Node], path: Path = ()) -> Node:
        """Return the tree with each scalar as ``change`` returns it, which is given its path too."""
        if isinstance(self.value, dict):
            return Node({key: child.mapped(change, (*path, key)) for key, child in self.value.items()}, self.origin)
        if isinstance(self.value, list):
            items = [child.mapped(change, (*path, index)) for index, child in enumerate(self.value)]
            return Node(items, self.origin)
        return change(self, path)

    def nearest(self, path: Path) -> tuple[Path, Node]:
        """Return the deepest node that exists along ``path``, and its path."""
        node, length = self, 0
        for step in path:
            child = node.child(step)
            if child is None:
                break
            node, length = child, length + 1
        return path[:length], node

    def child(self, step: str | int) -> Node | None:
        """Return the value under one key or index, or None."""
        found = None
        if isinstance(self.value, dict):
            found = self.value.get(step)
        elif isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            found = self.value[step]
        return found if isinstance(found, Node) else None

    def given(self, step: str | int) -> Node | None:
        """Return the value under one key or index, or None where there is none or null."""
        found = self.child(step)
        return found if found is not None and found.value is not None else None


def wrap(value: Any, origin: str) -> Node:
    """Return plain data as nodes that all come from ``origin``."""
    if isinstance(value, Mapping):
        return Node({str(key): wrap(child, origin) for key, child in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node([wrap(child, origin) for child in value], origin)
    return Node(value, origin)


def at(path: Path, node: Node) -> Node:
    """Return a tree that holds nothing but ``node`` under ``path``."""
    for step in reversed(path):
        node = Node({step: node}, node.origin)
    return node


def without(node: Node, path: Path) -> Node:
    """Return the tree without the values under ``path``; an element of a list takes the list with it."""
    step, rest = path[0], path[1:]
    child = node.child(step)
    assert child is not None
    assert isinstance(node.value, dict)
    kept = dict(node.value)
    if rest and isinstance(child.value, dict) and child.child(rest[0]) is not None:
        kept[step] = without(child, rest)
    else:
        del kept[step]
    return Node(kept, node.origin)


def with_text(node: Node, path: Path) -> Node:
    """Return the tree with the value at ``path`` as the text that it would be in quotes; as it is without one there."""
    if not path:
        return Node(json.dumps(node.value), node.origin, node.source)
    step, rest = path[0], path[1:]
    if (child := node.child(step)) is None:
        return node
    inner = with_text(child, rest)
    if isinstance(node.value, dict):
        return Node({**node.value, step: inner}, node.origin)
    return Node([inner if index == step else each for index, each in enumerate(node.value)], node.origin)


def merge(base: Node | None, over: Node, shape: Shape) -> Node | None:
    """Return ``base`` with ``over`` laid on top, or None when ``over`` asks for the default.

    Mappings merge deeply, tables per id; lists and scalars replace. null goes back to the
    default, and an empty table or free mapping empties it: a replica uses it for
    ``workers: {}``. A mapping with nothing after its key says nothing: its last line was
    commented out, which is no order to forget the entries of other files.
    """
    if over.value is None:
        return base if over.is_blank and shape.kind in _MAPPINGS else None
    if not isinstance(over.value, dict) or (shape.kind is not ShapeKind.SECTION and not over.value):
        return over
    merged = dict(base.value) if base is not None and isinstance(base.value, dict) else {}
    for key, child in over.value.items():
        inner = shape.child(key)
        kept = _merge_free(merged.get(key), child) if inner is None else merge(merged.get(key), child, inner)
        if kept is None:
            merged.pop(key, None)
        else:
            merged[key] = kept
    if base is None and shape.kind is ShapeKind.TABLE and all(each.is_blank for each in over.value.values()):
        return None  # it is no empty table either
    return Node(merged, over.origin)


def _merge_free(base: Node | None, over: Node) -> Node:
    """Merge values without a shape, such as a job's arguments: there null is a value like any other."""
    if base is None or not isinstance(base.value, dict) or not isinstance(over.value, dict) or not over.value:
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = _merge_free(merged.get(key), child)
    return Node(merged, over.origin)


def format_path(path: Path) -> str:
    """Return ``path`` as people write it: ``redis.url``, ``workers.io.queues[1]``, ``schedules["a.b"].every``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _BARE_KEY.match(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def parse_path(text: str) -> tuple[str, ...] | None:
    """Return the steps of a path that a person wrote, or None when it is none."""
    steps: list[str] = []
    position = 0
    if text.startswith("."):
        return None
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return None
        steps.append(match["bare"] or match["quoted"])
        position = match.end()
    return tuple(steps) or None
