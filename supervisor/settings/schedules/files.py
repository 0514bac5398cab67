"""Schedules in a file or on standard input: YAML, JSON, or one JSON object on each line.

Guarantees
    Every entry knows the line it was written on (JSON: the file). An id that comes twice is a problem.
    Lines are decoded when they are asked for, so that a file of 100,000 costs its own size and little more.

Does not guarantee
    Anything about the content of an entry: ``settings.schedules.validate_schedules`` does.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from supervisor.core.errors import Problem
from supervisor.core.json_values import (
    JSON_DEPTH_MAX,
    check_unrepeated,
    is_deeper,
    json_reader,
    read_json,
    read_unrepeated,
)
from supervisor.settings.document import Node, format_path, wrap
from supervisor.settings.yaml_source import parse_bytes

BYTES_MAX = 256 * 1024 * 1024
YAML_BYTES_MAX = 8 * 1024 * 1024
DEPTH_MAX = JSON_DEPTH_MAX + 10
"""How deep JSON may be nested: arguments, and what is around them."""

_DEEP = f"is nested deeper than {DEPTH_MAX} levels"


class Format(StrEnum):
    """Format of a file."""

    YAML = "yaml"
    JSON = "json"
    NDJSON = "ndjson"


class Entries(NamedTuple):
    """Content of a text: schedules by id, and the problems of unreadable ones."""

    schedules: Mapping[str, Any]
    problems: tuple[Problem, ...]


class Lines(Mapping[str, Node]):
    """Schedules by id, each still the JSON of its line."""

    def __init__(self, lines: dict[str, tuple[int, bytes]], name: str) -> None:
        self._lines = lines
        self._name = name

    def __getitem__(self, schedule: str) -> Node:
        number, line = self._lines[schedule]
        entry = read_json(line)
        del entry["id"]
        return wrap(entry, f"{self._name}:{number}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def guess_format(name: str, raw: bytes) -> Format:
    """Return the format by the end of the name, else by the beginning of the text."""
    for suffix, found in ((".ndjson", Format.NDJSON), (".jsonl", Format.NDJSON), (".json", Format.JSON)):
        if name.endswith(suffix):
            return found
    if name.endswith((".yaml", ".yml")) or raw[:1024].lstrip()[:1] not in {b"{", b"["}:
        return Format.YAML
    first, _, rest = raw.strip().partition(b"\n")
    is_lines = first.rstrip().endswith(b"}") and (not rest or rest.lstrip()[:1] == b"{")
    return Format.NDJSON if is_lines and b'"id"' in first else Format.JSON


def read_entries(raw: bytes, *, name: str, form: Format | None = None) -> Entries:
    """Return the schedules in ``raw``.

    Args:
        raw: the whole text: a mapping from ids to schedules, perhaps under ``schedules:``; a list of schedules
            with an ``id``; or such a schedule on each line.
        name: the file, for problems.
        form: how it is written; None: see ``guess_format``.
    """
    if len(raw) > BYTES_MAX:
        return Entries({}, (Problem(name, "", f"is larger than {BYTES_MAX // 1024 // 1024} MiB", "split it"),))
    found = form or guess_format(name, raw)
    if found is Format.NDJSON:
        return _lines(raw, name)
    if found is Format.JSON:
        try:
            content = read_unrepeated(raw)
        except msgspec.DecodeError as error:
            return Entries({}, (Problem(name, "", f"is not JSON: {error}"),))
        if is_deeper(raw, DEPTH_MAX):
            return Entries({}, (Problem(name, "", _DEEP),))
        return _by_id(wrap(content, name), name)
    return _yaml(raw, name)


def read_all(files: Sequence[tuple[str, bytes]], *, form: Format | None = None) -> Entries:
    """Return the schedules of several files, each with its name; an id that two of them hold is a problem."""
    schedules: list[Mapping[str, Any]] = []
    problems: list[Problem] = []
    holder: dict[str, str] = {}
    for name, raw in files:
        entries = read_entries(raw, name=name, form=form)
        problems += entries.problems
        twice = [each for each in entries.schedules if each in holder]
        problems += [Problem(name, each, f"is in {holder[each]} as well", "keep one of them") for each in twice]
        holder.update(dict.fromkeys(entries.schedules, name))
        schedules.insert(0, entries.schedules)  # a ChainMap is walked from its last mapping on
    return Entries(ChainMap(*schedules) if len(schedules) > 1 else (schedules or [{}])[0], tuple(problems))  # type: ignore[arg-type]


def _yaml(raw: bytes, name: str) -> Entries:
    if len(raw) > YAML_BYTES_MAX:
        remedy = "write one JSON object on each line instead, with an id, into a file that ends in .ndjson"
        return Entries({}, (Problem(name, "", f"is larger than {YAML_BYTES_MAX // 1024 // 1024} MiB", remedy),))
    parsed = parse_bytes(raw, name)
    if parsed.root is None:
        return Entries({}, parsed.problems)
    found = _by_id(parsed.root, name)
    return Entries(found.schedules, (*parsed.problems, *found.problems))


def _by_id(root: Node, name: str) -> Entries:
    if isinstance(root.value, dict) and isinstance(inner := root.value.get("schedules"), Node):
        others = [key for key in root.value if key != "schedules" and not key.startswith("x-")]
        if others and isinstance(inner.value, dict | list):
            remedy = "a file to apply holds schedules only; settings belong into the configuration"
            return Entries({}, (Problem(root.value[others[0]].origin, others[0], "is not a schedule", remedy),))
        root = inner
    if isinstance(root.value, dict):
        return Entries(root.value, ())
    if isinstance(root.value, list):
        return _listed(root.value)
    return Entries({}, (Problem(root.origin or name, "", "must be a mapping from ids to schedules, or a list"),))


def _listed(items: list[Node]) -> Entries:
    schedules: dict[str, Node] = {}
    problems: list[Problem] = []
    for index, item in enumerate(items):
        path = format_path((index,))
        own = item.child("id")
        if not isinstance(item.value, dict) or own is None or not isinstance(own.value, str):
            problems.append(Problem(item.origin, path, "has no id", "write id: and a text"))
        elif own.value in schedules:
            first = schedules[own.value].origin
            problems.append(Problem(own.origin, path, f"{own.value!r} is there already", f"see {first}"))
        else:
            rest = {key: child for key, child in item.value.items() if key != "id"}
            schedules[own.value] = Node(rest, item.origin)
    return Entries(schedules, tuple(problems))


class _Head(msgspec.Struct):
    id: str


def _lines(raw: bytes, name: str) -> Entries:
    lines: dict[str, tuple[int, bytes]] = {}
    problems: list[Problem] = []
    decode = json_reader(_Head)
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            schedule = decode(line).id
            check_unrepeated(line)
        except msgspec.DecodeError as error:
            problems.append(Problem(f"{name}:{number}", "", f"is not a JSON object with an id: {error}"))
            continue
        if is_deeper(line, DEPTH_MAX):
            problems.append(Problem(f"{name}:{number}", "", _DEEP))
            continue
        if schedule in lines:
            message = f"{schedule!r} is there already"
            problems.append(Problem(f"{name}:{number}", "id", message, f"see line {lines[schedule][0]}"))
            continue
        lines[schedule] = (number, line)
    return Entries(Lines(lines, name), tuple(problems))
