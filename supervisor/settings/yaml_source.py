"""YAML files and texts as nodes that know their line; every trap is a problem, not a guess.

Built on the parser's events instead of its constructor, so that limits hold while a file is
read and not after it was expanded, and so that keys and scalars still have their marks.

Guarantees
    A file is read in bounded memory and time: size, depth and number of nodes (aliases
    counted as often as they are used) have limits.
    One pass reports every duplicate key and every ambiguous scalar; only a syntax error ends it.
    No message echoes a value under a key that looks like a secret, or whose setting is one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from supervisor.core.errors import Problem
from supervisor.settings.document import Node, format_path
from supervisor.settings.masking import echo, looks_secret
from supervisor.settings.scalars import Trap, resolve
from supervisor.settings.schema import is_never_shown
from supervisor.trust import distrust

BYTES_MAX = 8 * 1024 * 1024
NODES_MAX = 200_000
DEPTH_MAX = 64
OLD_CHARS_MAX = 200

Tolerates = Callable[[tuple[str | int, ...]], bool]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING_TAG = "tag:yaml.org,2002:str"
_MERGE_KEY = "<<"


class _StopReadingError(Exception):
    """The rest of the text cannot be read, or must not be."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of parsing a text: a tree, or None when it was empty or unreadable; and all its problems."""

    root: Node | None
    problems: tuple[Problem, ...]


def read_file(path: Path, tolerates: Tolerates | None = None, *, is_named: bool = True) -> Parsed:
    """Read one configuration file; for ``tolerates`` see ``parse_text``.

    One that nobody named is read only if it is trusted, as it is when it is open: it may be another than a moment ago.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            if not is_named and (why := distrust(os.fstat(file.fileno()))):
                return Parsed(None, (Problem(name, "", f"is not read by itself: {why}", "name it by --config"),))
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        return Parsed(None, (Problem(name, "", f"cannot be read: {error.strerror or error}"),))
    if len(raw) > BYTES_MAX:
        limit = BYTES_MAX // (1024 * 1024)
        return Parsed(None, (Problem(name, "", f"is larger than {limit} MiB", "split it over conf.d"),))
    parsed = parse_bytes(raw, name, tolerates)
    if parsed.root is not None and not isinstance(parsed.root.value, dict):
        problem = Problem(parsed.root.origin, "", "the top level must be a mapping", "write key: value lines")
        return Parsed(None, (*parsed.problems, problem))
    return parsed


def parse_bytes(raw: bytes, name: str, tolerates: Tolerates | None = None) -> Parsed:
    """Read YAML from the bytes of the file ``name``; for ``tolerates`` see ``parse_text``."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Parsed(None, (Problem(f"{name}:{line}", "", "is not UTF-8", "save the file as UTF-8"),))
    return parse_text(text, lambda line: f"{name}:{line}", tolerates=tolerates)


def parse_text(
    text: str, origin: Callable[[int], str], under: tuple[str, ...] = (), *, tolerates: Tolerates | None = None
) -> Parsed:
    """Read YAML from ``text``.

    Args:
        text: the whole of it.
        origin: names the place of a line, counted from 1.
        under: the path of the setting that the text is the value of; problems name it.
        tolerates: where an ambiguous scalar has its meaning of YAML 1.1, for files written for a reader of that.
    """
    builder = _Builder(text, origin, under, tolerates)
    try:
        root = builder.document()
    except _StopReadingError as stop:
        return Parsed(None, (*builder.problems, stop.problem))
    except yaml.YAMLError as error:
        return Parsed(None, (*builder.problems, _syntax_problem(error, text, origin)))
    return Parsed(root, tuple(builder.problems))


def _syntax_problem(error: yaml.YAMLError, text: str, origin: Callable[[int], str]) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
    if mark is None:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        return Problem(origin(line), "", f"is not YAML: {what}", "remove control characters")
    lines = text.split("\n")
    line_text = lines[mark.line] if mark.line < len(lines) else ""
    indent = line_text[: len(line_text) - len(line_text.lstrip())]
    at = line_text[mark.column : mark.column + 1]
    remedy = "indent with spaces, not tabs" if "\t" in indent or at == "\t" else ""
    if "*" in line_text[max(0, mark.column - 1) : mark.column + 1]:
        remedy = "quote it: a * that begins a value is an alias to YAML"
    return Problem(f"{origin(mark.line + 1)}:{mark.column + 1}", "", f"is not YAML: {what}", remedy)


def _old_meaning(text: str) -> str | int | float | bool:
    """Return the value of a plain scalar in YAML 1.1; what is no number, or none that JSON can carry, stays a text."""
    if len(text) > OLD_CHARS_MAX:
        return text  # a number of base 60 takes time by the square of its length
    try:
        value = yaml.safe_load(text)
    except ValueError:  # ``0b_``
        return text
    is_plain = isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain and -(2**63) <= value < 2**63 else text


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    size: int
    height: int


class _Builder:
    """One pass over the events of one text."""

    def __init__(
        self, text: str, origin: Callable[[int], str], under: tuple[str, ...], tolerates: Tolerates | None = None
    ) -> None:
        self._tolerates = tolerates
        self.problems: list[Problem] = []
        self._text = text
        self._origin = origin
        self._under = under
        self._events: Iterator[Any] = iter(())
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._deepest = 0

    def document(self) -> Node | None:
        """Return the only document, or None when there is none."""
        self._events = yaml.parse(self._text, Loader=_Loader)
        next(self._events)  # stream start
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return None
        root = self._node(next(self._events), self._under)
        next(self._events)  # document end
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise _StopReadingError(
                Problem(self._at(event), "", "a second document starts here", "remove the --- line, or use conf.d")
            )
        return None if root.value is None else root

    def _at(self, event: Any) -> str:
        return self._origin(event.start_mark.line + 1)

    def _echo(self, text: str, path: tuple[str | int, ...]) -> str:
        if any(looks_secret(step) for step in path) or is_never_shown(path):
            return "the value (not shown)"
        return echo(text)

    def _complain(self, event: Any, path: tuple[str | int, ...], message: str, remedy: str = "") -> None:
        self.problems.append(Problem(self._at(event), format_path(path), message, remedy))

    def _enter(self, event: Any, depth: int, nodes: int = 1) -> None:
        self._count += nodes
        self._deepest = max(self._deepest, depth)
        if depth > DEPTH_MAX:
            raise _StopReadingError(Problem(self._at(event), "", f"is nested deeper than {DEPTH_MAX} levels"))
        if self._count > NODES_MAX:
            raise _StopReadingError(
                Problem(self._at(event), "", f"holds more than {NODES_MAX:,} values, aliases counted as often as used")
            )

    def _node(self, event: Any, path: tuple[str | int, ...]) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        count, outer = self._count, self._deepest
        self._deepest = len(path)
        self._enter(event, len(path))
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, path)
        else:
            if event.tag is not None:
                self._complain(event, path, "tags are not supported", "remove what follows the !")
            node = self._mapping(event, path) if isinstance(event, yaml.MappingStartEvent) else self._list(event, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(node, self._count - count, self._deepest - len(path))
        self._deepest = max(self._deepest, outer)
        return node

    def _alias(self, event: Any, path: tuple[str | int, ...]) -> Node:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            self._complain(
                event, path, "an alias (*) names no anchor (&) that ends before it", "quote it if it is text"
            )
            return Node(None, self._at(event))
        self._enter(event, len(path) + anchored.height, anchored.size)
        return anchored.node

    def _scalar(self, event: Any, path: tuple[str | int, ...]) -> Node:
        origin = self._at(event)
        is_plain = event.implicit[0]
        if event.tag not in {None, _STRING_TAG}:
            self._complain(event, path, "tags are not supported", "remove what follows the !, or quote the value")
            return Node(None, origin)
        if not is_plain:
            return Node(event.value, origin)
        value = resolve(event.value)
        if isinstance(value, Trap) and self._tolerates is not None and self._tolerates(path):
            return Node(_old_meaning(event.value), origin)
        if isinstance(value, Trap):
            self._complain(event, path, f"{self._echo(event.value, path)} {value.reason}", value.remedy)
            return Node(None, origin)
        return Node(value, origin, is_blank=not event.value)

    def _list(self, event: Any, path: tuple[str | int, ...]) -> Node:
        items: list[Node] = []
        for child in self._events:
            if isinstance(child, yaml.SequenceEndEvent):
                break
            items.append(self._node(child, (*path, len(items))))
        return Node(items, self._at(event))

    def _mapping(self, event: Any, path: tuple[str | int, ...]) -> Node:
        entries: dict[str, Node] = {}
        inherited: dict[str, Node] = {}
        for key_event in self._events:
            if isinstance(key_event, yaml.MappingEndEvent):
                break
            key = self._key(key_event, path)
            node = self._node(next(self._events), (*path, key))
            if key == _MERGE_KEY and key_event.implicit[0]:
                self._inherit(key_event, path, node, inherited)
            elif key in entries:
                first = entries[key].origin
                self._complain(key_event, (*path, key), f"is written twice, first at {first}", "keep one of them")
            else:
                entries[key] = Node(node.value, self._at(key_event), is_blank=node.is_blank)
        return Node({**inherited, **entries}, self._at(event))

    def _key(self, event: Any, path: tuple[str | int, ...]) -> str:
        # Keys are texts, exactly as written: `on:` and `8080:` are names here, not values.
        self._enter(event, len(path) + 1)
        if isinstance(event, yaml.ScalarEvent):
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(Node(event.value, self._at(event)), 1, 0)
            return str(event.value)
        raise _StopReadingError(
            Problem(self._at(event), format_path(path), "a key must be text", "quote it, or write key: value")
        )

    def _inherit(self, event: Any, path: tuple[str | int, ...], node: Node, inherited: dict[str, Node]) -> None:
        sources = node.value if isinstance(node.value, list) else [node]
        for source in sources:
            if not isinstance(source.value, dict):
                self._complain(event, path, "<< merges mappings only", "give it an alias of a mapping")
                continue
            for key, child in source.value.items():
                inherited.setdefault(key, child)
