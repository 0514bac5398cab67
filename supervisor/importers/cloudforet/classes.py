"""Kind of a scheduler class, read from its source: nothing is imported, nothing runs.

A name such as ``pkg.mod.Class`` or ``pkg.mod:Class`` is looked for below some directories.
Its bases are followed, by the imports of the module that names them, to one of the three
schedulers that everybody derives from; arguments of ``super().__init__`` that are literals
are read too, for classes that fix their own timing.

Does not guarantee
    An answer. Facts that need running code are not guessed: ``kind`` is then empty.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from supervisor.trust import open_regular

SOURCE_BYTES_MAX = 2 * 1024 * 1024
DEPTH_MAX = 16
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:[.:][A-Za-z_]\w*)\Z", re.ASCII)
_CORE = ("spaceone.core.", "supervisor.compat.cloudforet")


class TimingKind(StrEnum):
    """Kind of a scheduler's timing."""

    INTERVAL = "interval"  # seconds
    HOURLY = "hourly"  # hours and a minute
    CRON = "cron"  # a rule


_WELL_KNOWN = {
    "IntervalScheduler": TimingKind.INTERVAL,
    "HourlyScheduler": TimingKind.HOURLY,
    "CronScheduler": TimingKind.CRON,
}
ARGUMENTS = {
    TimingKind.INTERVAL: ("interval",),
    TimingKind.HOURLY: ("interval", "minute"),
    TimingKind.CRON: ("rule",),
}


@dataclass(frozen=True, slots=True)
class SourceClass:
    """Facts about a class, read from its source."""

    kind: TimingKind | None
    """None: no source, or no base that tells."""

    where: str = ""
    """File and line of the class; empty without source."""

    fixed: dict[str, Any] = field(default_factory=dict)
    """Timing that the class sets itself, such as ``rule`` or ``interval``."""

    takes: frozenset[str] | None = None
    """Names that its constructor takes besides ``queue``; None: any, or nobody knows."""

    is_known: bool = False
    """Whether there was source, or the name is one everybody knows."""


def split_name(name: str) -> tuple[str, str] | None:
    """Return module and class of ``pkg.mod.Class`` or ``pkg.mod:Class``; None when it is neither."""
    if not _NAME.match(name):
        return None
    module, _, attribute = name.replace(":", ".").rpartition(".")
    return module, attribute


class Sources:
    """Finds classes below some directories."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        self._modules: dict[str, tuple[Path, ast.Module] | None] = {}

    def find(self, name: str) -> SourceClass:
        """Return the facts about the class ``name`` from its source."""
        split = split_name(name)
        return SourceClass(None) if split is None else self._class(*split, 0)

    def _class(self, module: str, attribute: str, depth: int) -> SourceClass:
        if f"{module}.".startswith(_CORE) or module == _CORE[1]:
            kind = _WELL_KNOWN.get(attribute)
            takes = frozenset(ARGUMENTS[kind]) if kind else None
            return SourceClass(kind, takes=takes, is_known=kind is not None)
        source = self._source(module)
        if source is None or depth > DEPTH_MAX:
            return SourceClass(None)
        path, tree = source
        for statement in reversed(tree.body):
            if isinstance(statement, ast.ClassDef) and statement.name == attribute:
                return self._described(statement, module, path, tree, depth)
            if isinstance(statement, ast.ImportFrom) and (origin := _imported(statement, attribute, module, path)):
                return self._class(*origin, depth + 1)
        return SourceClass(None)

    def _described(self, found: ast.ClassDef, module: str, path: Path, tree: ast.Module, depth: int) -> SourceClass:
        inherited = SourceClass(None)
        for base in found.bases:
            inherited = self._base(base, module, path, tree, depth)
            if inherited.kind is not None:
                break
        where = f"{path}:{found.lineno}"
        constructor = next(
            (each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None
        )
        if constructor is None:
            return SourceClass(inherited.kind, where, inherited.fixed, inherited.takes, is_known=True)
        fixed = inherited.fixed
        if inherited.kind is not None:
            fixed = {**fixed, **_fixed(constructor, ARGUMENTS[inherited.kind])}
        return SourceClass(inherited.kind, where, fixed, _takes(constructor), is_known=True)

    def _base(self, base: ast.expr, module: str, path: Path, tree: ast.Module, depth: int) -> SourceClass:
        dotted = _dotted(base)
        if not dotted or depth > DEPTH_MAX:
            return SourceClass(None)
        first, _, rest = dotted.partition(".")
        if not rest and any(isinstance(each, ast.ClassDef) and each.name == first for each in tree.body):
            return self._class(module, first, depth + 1)
        for statement in tree.body:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if dotted.startswith(f"{alias.asname or alias.name}."):
                        tail = dotted.removeprefix(alias.asname or alias.name)
                        outer, _, name = f"{alias.name}{tail}".rpartition(".")
                        return self._class(outer, name, depth + 1)
            elif isinstance(statement, ast.ImportFrom):
                origin = _imported(statement, first, module, path)
                if origin is not None:
                    outer, _, name = ".".join(filter(None, (*origin, rest))).rpartition(".")
                    return self._class(outer, name, depth + 1)
        return self._starred(first, module, path, tree, depth) if not rest else SourceClass(None)

    def _starred(self, name: str, module: str, path: Path, tree: ast.Module, depth: int) -> SourceClass:
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
                found = self._class(_absolute(statement, module, path), name, depth + 1)
                if found.is_known:
                    return found
        return SourceClass(None)

    def _source(self, module: str) -> tuple[Path, ast.Module] | None:
        if module not in self._modules:
            self._modules[module] = self._read(module)
        return self._modules[module]

    def _read(self, module: str) -> tuple[Path, ast.Module] | None:
        parts = module.split(".")
        for directory in self._directories:
            place = directory.joinpath(*parts)
            for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                try:
                    # Nobody named this file: a pipe or device in its place must not hold up a start or a reload.
                    with os.fdopen(open_regular(path, follows=True), "rb") as file:
                        text = file.read(SOURCE_BYTES_MAX + 1)
                    if len(text) <= SOURCE_BYTES_MAX:
                        return path, ast.parse(text, filename=str(path))
                except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                    continue
        return None


def _absolute(statement: ast.ImportFrom, module: str, path: Path) -> str:
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    up = statement.level - (path.name == "__init__.py")
    return ".".join(filter(None, (*parts[: len(parts) - up], statement.module)))


def _imported(statement: ast.ImportFrom, name: str, module: str, path: Path) -> tuple[str, str] | None:
    for alias in statement.names:
        if name == (alias.asname or alias.name):
            return _absolute(statement, module, path), alias.name
    return None


def _dotted(expression: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    return ".".join([expression.id, *reversed(parts)]) if isinstance(expression, ast.Name) else ""


def _takes(constructor: ast.FunctionDef) -> frozenset[str] | None:
    arguments = constructor.args
    if arguments.kwarg is not None:
        return None
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return frozenset(names[1:]) - {"queue"}


def _fixed(constructor: ast.FunctionDef, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the literals that ``super().__init__(queue, …)`` is called with, by their names there."""
    for inner in ast.walk(constructor):
        if not (
            isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "__init__"
        ):
            continue
        positional = inner.args if _is_super(inner.func.value) else inner.args[1:]
        given = dict(zip(("queue", *names), positional, strict=False))
        given.update({each.arg: each.value for each in inner.keywords if each.arg})
        defaults = _defaults(constructor)
        known = {name: _literal(given[name], defaults) for name in names if name in given}
        return {name: value for name, value in known.items() if value is not None}
    return {}


def _defaults(constructor: ast.FunctionDef) -> dict[str, ast.expr]:
    arguments = constructor.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
    pairs += [
        (each, default) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default
    ]
    return {each.arg: default for each, default in pairs}


def _literal(expression: ast.expr, defaults: dict[str, ast.expr]) -> Any:
    """Return the value of a constant, or of a parameter that has one by default."""
    if isinstance(expression, ast.Name):
        expression = defaults.get(expression.id, expression)
    value = expression.value if isinstance(expression, ast.Constant) else None
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _is_super(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and _dotted(expression.func) == "super"
