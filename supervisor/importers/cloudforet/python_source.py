"""A Python module with Cloudforet's configuration, read as text: its code is never executed.

``conf/global_conf.py`` of a service holds assignments of literals, and that is all that is
understood here: constants, lists, tuples, mappings, and names assigned above. Everything
else is left out and named, because running it to learn a value would run everything;
so is a value that other code of the module may change (python_changes.py).

Guarantees
    Bounded memory and time: the size of the file, and the number and depth of its values, names counted as often as
    they are used, have limits.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.importers.cloudforet.python_changes import changed_names, root_name
from supervisor.importers.cloudforet.report import ImportReport
from supervisor.settings.document import Node
from supervisor.settings.yaml_source import DEPTH_MAX, NODES_MAX
from supervisor.trust import open_regular

BYTES_MAX = 1024 * 1024
NEEDED = frozenset({"GLOBAL", "IMPORT", "REMOTE_URL", "SCHEDULERS", "WORKERS", "QUEUES"})
"""Without the value of one of these nothing can be converted; others are left out with a notice."""

_TOO_MANY = (f"holds more than {NODES_MAX:,} values, names counted as often as used", "split it")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _NotLiteralError(Exception):
    """An expression whose value needs running it, or is none that a configuration can hold."""

    def __init__(self, node: ast.AST, what: str = "") -> None:
        line = getattr(node, "lineno", 1)
        super().__init__(
            f"holds {what} (line {line})" if what else f"is not a literal (line {line}), and no code is run to find out"
        )


def read_module(path: Path, report: ImportReport) -> Node | None:
    """Return the module's names and values; None when it cannot be read at all."""
    name = str(path)
    whole = Node({}, f"{name}:1")
    try:
        with os.fdopen(open_regular(path, follows=True), "rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        report.problem(Node(None, name), (), f"cannot be read: {error.strerror or error}", "check the path")
        return None
    if len(raw) > BYTES_MAX:
        report.problem(whole, (), f"is larger than {BYTES_MAX // 1024} KiB", "is it a configuration?")
        return None
    try:
        tree = ast.parse(raw, filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        report.problem(Node(None, f"{name}:{line}"), (), f"is not Python: {reason}", "correct it")
        return None
    return Node(_Module(name, report).names(tree), f"{name}:1")


class _Module:
    """The assignments of one module."""

    def __init__(self, name: str, report: ImportReport) -> None:
        self._name = name
        self._report = report
        self._known: dict[str, Node] = {}
        self._parts_of: dict[str, str] = {}  # a name to the one of whose value it is a part
        self._sizes = _Sizes()

    def names(self, tree: ast.Module) -> dict[str, Node]:
        # Functions last: they are called when all of the module is there.
        for statement in sorted(tree.body, key=lambda each: isinstance(each, _FUNCTIONS)):
            if isinstance(statement, ast.Assign):
                self._assign(statement.targets, statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign([statement.target], statement.value)
            else:
                self._change(statement)
        found = {name: node for name, node in self._known.items() if not name.startswith("_")}
        if sum(self._sizes.of(node)[0] for node in found.values()) > NODES_MAX:
            self._report.problem(Node(None, f"{self._name}:1"), (), *_TOO_MANY)
            return {}
        return found

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        self._change(value)
        for target in targets:
            if not isinstance(target, ast.Name):
                self._change(target)
                continue
            self._parts_of.pop(target.id, None)
            try:
                self._known[target.id] = self._bounded(value)
            except _NotLiteralError as error:
                self._known.pop(target.id, None)
                self._parts_of[target.id] = root_name(value)
                self._leave_out(target, target.id, str(error))

    def _change(self, code: ast.stmt | ast.expr) -> None:
        """Forget what ``code`` may change: a value that is changed later is not the one that was written first."""
        if isinstance(code, ast.ImportFrom) and any(each.name == "*" for each in code.names):
            place = Node(None, f"{self._name}:{code.lineno}")
            self._report.remark(place, ("import *",), f"what it brings from {code.module or '.'} is left out")
            changed = set(self._known)
        else:
            changed = changed_names(code)
        for name in sorted({self._parts_of.get(name, name) for name in changed} | changed):
            value = self._known.get(name)
            held = {name} | (set() if value is None else self._sharing(value))
            for each in sorted(held & (NEEDED | self._known.keys())):
                self._known.pop(each, None)
                self._leave_out(code, each, "may be changed by code that would have to run")

    def _sharing(self, value: Node) -> set[str]:
        """Return the names whose values have a mapping or list in common with ``value``."""
        parts = set(_containers(value))
        return {name for name, node in self._known.items() if not parts.isdisjoint(_containers(node))}

    def _leave_out(self, node: ast.AST, name: str, what: str) -> None:
        place = Node(None, f"{self._name}:{getattr(node, 'lineno', 1)}")
        if name in NEEDED:
            self._report.problem(place, (name,), what, "write it as a literal, or give its value in a YAML file")
        elif name:
            self._report.remark(place, (name,), f"{what}; left out")

    def _bounded(self, value: ast.expr) -> Node:
        """Return the value of an expression, which names may have made larger than it looks."""
        found = self._value(value)
        size, height = self._sizes.of(found)
        if size > NODES_MAX or height > DEPTH_MAX:
            message = _TOO_MANY if size > NODES_MAX else (f"is nested deeper than {DEPTH_MAX} levels", "")
            self._report.problem(Node(None, f"{self._name}:{value.lineno}"), (), *message)
            return Node(None, found.origin)
        return found

    def _value(self, value: ast.expr) -> Node:
        origin = f"{self._name}:{value.lineno}"
        match value:
            case ast.Constant(value=found) if isinstance(found, str | int | float | bool | None):
                return Node(_scalar(found, value), origin)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return Node(_scalar(-number, value), origin)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return Node([self._value(item) for item in items], origin)
            case ast.Name(id=name) if name in self._known:
                return self._known[name]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(keys, values, origin)
        raise _NotLiteralError(value)

    def _mapping(self, keys: list[ast.expr | None], values: list[ast.expr], origin: str) -> Node:
        entries: dict[str, Node] = {}
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, ast.Constant):
                raise _NotLiteralError(value)
            name = str(_scalar(key.value, key))
            if name in entries:
                place = Node(None, f"{self._name}:{key.lineno}")
                self._report.problem(place, (name,), f"is written twice, first at {entries[name].origin}", "keep one")
            entries[name] = self._value(value)
        return Node(entries, origin)


def _scalar(found: Any, place: ast.expr) -> Any:
    """Return ``found`` if a file of YAML could hold it too."""
    if isinstance(found, int) and not -(2**63) <= found < 2**63:
        raise _NotLiteralError(place, "a number too large for 64 bits")
    if isinstance(found, float) and not math.isfinite(found):
        raise _NotLiteralError(place, "an infinite number")
    if isinstance(found, str) and not found.isascii() and found != found.encode(errors="ignore").decode():
        raise _NotLiteralError(place, "half of a character")
    return found


class _Sizes:
    """Sizes and heights of nodes: values that names brought in count as often as they are used."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Node, int, int]] = {}  # the node is kept, so that its number stays its own

    def of(self, node: Node) -> tuple[int, int]:
        """Return both. What nodes share is walked through once."""
        if id(node) not in self._found:
            inner = [self.of(each) for each in _children(node)]
            size, height = 1 + sum(size for size, _ in inner), 1 + max((height for _, height in inner), default=0)
            self._found[id(node)] = (node, size, height)
        return self._found[id(node)][1:]


def _children(node: Node) -> list[Node]:
    if isinstance(node.value, dict):
        return list(node.value.values())
    return node.value if isinstance(node.value, list) else []


def _containers(node: Node) -> Iterator[int]:
    """Yield the identity of each mapping and list in ``node``, once."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each.value, dict | list) and id(each.value) not in seen:
            seen.add(id(each.value))
            yield id(each.value)
            waiting += _children(each)
