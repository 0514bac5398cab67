"""Mutants of the simulation change what is there: a new name fails here at once, and not in the night."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import supervisor
from tests.simulation import mutants
from tests.simulation.mutants import FAST, FOCUS, MUTANTS


def _words(*sources: str) -> set[str]:
    return {word for source in sources for word in re.findall(r"\w+", source)}


def _wrong_methods() -> Iterator[tuple[ast.FunctionDef, type]]:
    """Yield each function that takes the place of a method, and the class that its first argument names."""
    for node in ast.walk(ast.parse(inspect.getsource(mutants))):
        if isinstance(node, ast.FunctionDef) and node.args.args and node.args.args[0].arg == "self":
            yield node, getattr(mutants, ast.unparse(node.args.args[0].annotation or node))


def _attributes_of_self(function: ast.FunctionDef) -> Iterator[tuple[str, bool]]:
    """Yield each attribute that is reached from ``self``, and whether it is one of its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            root: ast.AST = node.value
            while isinstance(root, ast.Attribute | ast.Call):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            if isinstance(root, ast.Name) and root.id == "self":
                yield node.attr, root is node.value


def test_every_mutant_replaces_something_that_is_there() -> None:
    """A text that a script no longer has, or an attribute of another name now, would end ``make sim-mutants``."""
    gone = []
    for name, mutation in MUTANTS.items():
        try:
            with mutation():
                pass
        except (AssertionError, AttributeError, KeyError) as error:
            gone.append(f"{name}: {error!r}")
    assert not gone, "\n".join(gone)
    assert set(FAST) | set(FOCUS) <= set(MUTANTS)


def test_every_mutant_calls_attributes_as_the_product_does() -> None:
    """Only some worlds reach them: a former name ended ``make sim-mutants`` with an AttributeError once."""
    product = _words(*(each.read_text("utf-8") for each in Path(supervisor.__file__).parent.rglob("*.py")))
    methods, unknown = list(_wrong_methods()), []
    for function, owner in methods:
        of_owner = _words(*(inspect.getsource(sys.modules[each.__module__]) for each in owner.__mro__[:-1]))
        for name, is_own in _attributes_of_self(function):
            if name not in (of_owner if is_own else product):
                unknown.append(f"{function.name}: {owner.__name__} knows no {name}")
    assert methods
    assert not unknown, "\n".join(unknown)
