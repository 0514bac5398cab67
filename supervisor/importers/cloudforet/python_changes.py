"""Names of a Python module whose values a statement may change, by its text alone.

Guarantees
    A name is found where the statement binds or deletes it, stores into what it holds, calls a method of it that
    changes a mapping or list, hands it to a function, or walks through it.

Does not guarantee
    That the change happens: whether a branch is taken or a function called is known only to who runs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CHANGING = frozenset(
    {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"}
    | {"__delitem__", "__iadd__", "__ior__", "__setitem__"}
)
_READING = frozenset(
    {"bool", "dict", "float", "int", "isinstance", "len", "list", "max", "min", "print", "repr", "set", "sorted", "str"}
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def root_name(value: ast.AST | None) -> str:
    """Return the name from which an expression goes on by items, attributes and calls; empty if there is none."""
    while isinstance(value, ast.Subscript | ast.Attribute | ast.Starred | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def changed_names(code: ast.AST) -> set[str]:
    """Return the names that ``code``, a statement or an expression of a module, may change."""
    if not isinstance(code, _FUNCTIONS):
        return {name for inner in ast.walk(code) for name in _changed_by(inner)}
    shared = {name for inner in ast.walk(code) if isinstance(inner, ast.Global) for name in inner.names}
    own = {inner.id for inner in ast.walk(code) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    own |= {inner.arg for inner in ast.walk(code) if isinstance(inner, ast.arg)}
    inside = {name for inner in ast.walk(code) for name in _changed_by(inner)}
    return {code.name} | (inside - (own - shared))


def _changed_by(inner: ast.AST) -> Iterator[str]:
    match inner:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield root_name(inner)
        case ast.Call():
            yield from _changed_by_call(inner)
        case ast.For(iter=walked) | ast.AsyncFor(iter=walked) | ast.comprehension(iter=walked):
            yield root_name(walked)  # its items may be changed under another name
        case ast.alias(name=module, asname=asname):
            yield asname or module.partition(".")[0]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def _changed_by_call(call: ast.Call) -> Iterator[str]:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _CHANGING:
        yield root_name(call.func)
    if isinstance(call.func, ast.Name) and call.func.id in _READING:
        return
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield root_name(given)
