"""``make test-mutants``: break one place of the sources at a time, drawn by a seed; the tests nearest to it must see it.

Each mutant is one changed token of ``core``, ``store`` or ``roles``: a comparison, an operator, a constant, a condition or a
result. It is written into a copy of the tree, in which the tests that name the module run until one fails, then, if none did,
those of its folder. A failure counts when the same tests pass without the mutant.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("core", "store", "roles")
TEST_FILES_MAX = 12
TIMEOUT_S = 300.0
CAUGHT_MIN = 0.9
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


class Mutant(NamedTuple):
    """One place of one file, and the source with that place changed."""

    path: Path
    line: int
    change: str
    source: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return a broken copy of a node; None where this tool knows no way to break it."""
    broken: ast.AST = copy.deepcopy(node)
    match broken:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            broken.ops = [COMPARED[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in OPERATED:
            broken.op = OPERATED[type(operator)]()
        case ast.BoolOp(op=operator):
            broken.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            broken = broken.operand
        case ast.Constant(value=bool(value)):
            broken.value = not value
        case ast.Constant(value=int(value)):
            broken.value = value + 1
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            broken.value = ast.Constant(None)
        case _:
            return None
    return broken


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes within functions that can be broken, but for assertions, annotations and messages."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            pending: list[ast.AST] = [*function.body]
            while pending:
                node = pending.pop()
                if isinstance(node, ast.Assert | ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr):
                    continue
                if changed(node) is not None:
                    yield node
                skipped = node.annotation if isinstance(node, ast.AnnAssign) else None
                pending += [child for child in ast.iter_child_nodes(node) if child is not skipped]


def drawn(rng: Random) -> Mutant:
    """Return one mutant: a file by its number of places, then a place."""
    while True:
        path = rng.choice(sorted(each for name in FOLDERS for each in (ROOT / "supervisor" / name).rglob("*.py")))
        text = path.read_text()
        found = sorted(places(ast.parse(text)), key=lambda node: (node.lineno, node.col_offset, type(node).__name__))
        if not found:
            continue
        node = rng.choice(found)
        lines = text.splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line.encode()))
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        body, after = text.encode(), ast.unparse(changed(node) or node)
        after = after if isinstance(node, ast.stmt) else f"({after})"
        source = (body[:begin] + after.encode() + body[end:]).decode()
        try:
            ast.parse(source)
        except SyntaxError:  # a part of a formatted text
            continue
        return Mutant(path, node.lineno, f"{ast.unparse(node)}  ->  {after}", source)


def tests_of(path: Path) -> list[str]:
    """Return the test files that name the module, those of units first, then the shortest."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    package, name = module.rsplit(".", 1)
    named = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
    files = [each for each in (ROOT / "tests").rglob("test_*.py") if "e2e" not in each.parts]
    scored = []
    for each in files:
        text = each.read_text()
        near = f"test_{name}" in each.stem or each.stem.endswith(f"_{name}")
        if near or named.search(text):
            scored.append((not near, "unit" not in each.parts, len(text), str(each.relative_to(ROOT))))
    return [each[-1] for each in sorted(scored)][:TEST_FILES_MAX]


def wider_tests_of(path: Path) -> list[str]:
    """Return the folders of tests nearest to the module's own, and the simulation of what elects and fires."""
    folder = path.parent.relative_to(ROOT / "supervisor")
    nearest = [each for each in (folder, *folder.parents) if each.name]
    found: list[str] = []
    for layer in ("unit", "integration"):
        there = [f"tests/{layer}/{each}" for each in nearest if (ROOT / "tests" / layer / each).exists()]
        found += there[:1]
    return [*found, "tests/simulation/test_simulation.py", "tests/simulation/test_turns.py"]


def fails(tree: Path, tests: list[str]) -> bool:
    """Return whether one of ``tests`` fails in ``tree``, or hangs."""
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def is_caught(mutant: Mutant, tree: Path) -> bool:
    """Return whether a test fails with the mutant in it that passes without."""
    near, target = tests_of(mutant.path), tree / mutant.path.relative_to(ROOT)
    original = target.read_text()
    for tests in (near, wider_tests_of(mutant.path)):
        target.write_text(mutant.source)
        try:
            seen = bool(tests) and fails(tree, tests)
        finally:
            target.write_text(original)
        if seen and not fails(tree, tests):
            return True
    return False


def main() -> int:
    """Draw, run, print; 1 when fewer than nine of ten were caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--skip", type=int, default=0, help="go on after so many")
    arguments = parser.parse_args()
    rng, caught = Random(arguments.seed), 0
    with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(
            ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", ".hypothesis")
        )
        for number in range(arguments.count):
            mutant = drawn(rng)
            if number < arguments.skip:
                continue
            found = is_caught(mutant, tree)
            caught += found
            where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print(f"{number + 1:3} {'caught  ' if found else 'SURVIVED'} {where}  {mutant.change}", flush=True)
    tried = arguments.count - arguments.skip
    print(f"{caught} of {tried} caught (seed {arguments.seed})")
    return 0 if caught >= CAUGHT_MIN * tried else 1


if __name__ == "__main__":
    sys.exit(main())
