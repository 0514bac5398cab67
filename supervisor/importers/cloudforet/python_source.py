"""A Python module with Cloudforet's configuration, read as text: its code is never executed.

``conf/global_conf.py`` of a service holds assignments of literals, and that is all that is
understood here: constants, lists, tuples, mappings, and names assigned above. Everything
else is left out and named, because running it to learn a value would run everything.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from supervisor.importers.cloudforet.report import ImportReport
from supervisor.settings.document import Node

BYTES_MAX = 1024 * 1024
NEEDED = frozenset({"GLOBAL", "IMPORT", "REMOTE_URL", "SCHEDULERS", "WORKERS", "QUEUES"})
"""Without the value of one of these nothing can be converted; others are left out with a notice."""


class _NotLiteralError(Exception):
    """An expression whose value needs running it."""

    def __init__(self, node: ast.AST) -> None:
        super().__init__()
        self.line = getattr(node, "lineno", 1)


def read_module(path: Path, report: ImportReport) -> Node | None:
    """Return the module's names and values; None when it cannot be read at all."""
    name = str(path)
    whole = Node({}, f"{name}:1")
    try:
        raw = path.read_bytes()
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

    def names(self, tree: ast.Module) -> dict[str, Node]:
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._assign(target, statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, statement.value)
            else:
                self._other(statement)
        return {name: node for name, node in self._known.items() if not name.startswith("_")}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self._leave_out(target, _root_name(target), "is not a plain assignment")
            return
        try:
            self._known[target.id] = self._value(value)
        except _NotLiteralError as error:
            self._known.pop(target.id, None)
            self._leave_out(target, target.id, f"is not a literal (line {error.line}), and no code is run to find out")

    def _other(self, statement: ast.stmt) -> None:
        """Look into statements that may assign: a value that is changed later is not the one that was written first."""
        for inner in ast.walk(statement):
            targets: list[ast.expr] = []
            if isinstance(inner, ast.Assign):
                targets = inner.targets
            elif isinstance(inner, ast.AugAssign | ast.AnnAssign):
                targets = [inner.target]
            for name in {_root_name(target) for target in targets} & (NEEDED | self._known.keys()):
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self._known.pop(name, None)
                    self._leave_out(statement, name, "is assigned by code that would have to run")

    def _leave_out(self, node: ast.AST, name: str, what: str) -> None:
        place = Node(None, f"{self._name}:{getattr(node, 'lineno', 1)}")
        if name in NEEDED:
            self._report.problem(place, (name,), what, "write it as a literal, or give its value in a YAML file")
        elif name:
            self._report.remark(place, (name,), f"{what}; left out")

    def _value(self, value: ast.expr) -> Node:
        origin = f"{self._name}:{value.lineno}"
        match value:
            case ast.Constant(value=found) if isinstance(found, str | int | float | bool | None):
                return Node(found, origin)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return Node(-number, origin)
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
            name = _key(key.value)
            if name in entries:
                place = Node(None, f"{self._name}:{key.lineno}")
                self._report.problem(place, (name,), f"is written twice, first at {entries[name].origin}", "keep one")
            entries[name] = self._value(value)
        return Node(entries, origin)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _root_name(target: ast.expr) -> str:
    while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
