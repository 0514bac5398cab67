"""The style checks itself (after TigerBeetle's tidy.zig): limits that no reviewer has to argue about."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("sources")  # one process reads and parses them for all rules
ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
SOURCES = sorted(
    path for folder in ("supervisor", "tenure", "jobs", "tests", "bench") for path in (ROOT / folder).rglob("*.py")
)
TESTS = [path for path in SOURCES if path.name.startswith("test_") and path != Path(__file__).resolve()]
SCRIPTS = sorted((ROOT / "supervisor/store/lua").rglob("*.lua"))
FOLDER_MODULES_MAX = 16
FOLDER_SCRIPTS_MAX = 32
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def relative(path: Path) -> str:
    """Return a path as messages name it."""
    return str(path.relative_to(ROOT))


@cache
def text(path: Path) -> str:
    """Return the text of a file, read once."""
    return path.read_text()


Kept = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.ClassDef | ast.ImportFrom


@cache
def modules() -> dict[Path, tuple[Kept, ...]]:
    """Return of each file its module with every class, function and import from elsewhere.

    All are parsed at once: the collector would walk through those before again and again, four fifths of the time.
    """
    gc.disable()
    try:
        return {path: _kept(path) for path in SOURCES}
    finally:
        gc.freeze()
        gc.enable()


def _kept(path: Path) -> tuple[Kept, ...]:
    found: list[Kept] = []
    open_nodes: list[ast.AST] = [ast.parse(text(path))]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.expr):
            continue  # most of a file, and none of these is in it
        if isinstance(node, Kept):
            found.append(node)
        open_nodes.extend(ast.iter_child_nodes(node))
    return tuple(found)


@cache
def nodes(path: Path) -> tuple[Function | ast.Module | ast.ClassDef, ...]:
    """Return the module of a file with every class and function."""
    return tuple(node for node in modules()[path] if not isinstance(node, ast.ImportFrom))


@cache
def functions(path: Path) -> tuple[Function, ...]:
    """Return every function of a file."""
    return tuple(node for node in nodes(path) if isinstance(node, Function))


def test_files_and_functions_fit_in_the_head() -> None:
    """A file over the limit has two subjects; a function over it cannot be seen at once."""
    long_files = [
        f"{relative(path)}: {lines} lines"
        for path in (*SOURCES, *SCRIPTS)
        if (lines := len(text(path).splitlines())) > FILE_LINES_MAX
    ]
    long_functions = [
        f"{relative(path)}: {function.name} has {lines} lines"
        for path in SOURCES
        for function in functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long_files + long_functions == []


def test_folders_of_the_product_fit_in_the_head() -> None:
    """A folder over the limit has two subjects, and nobody finds the third."""
    modules = Counter(path.parent for path in SOURCES if _is_product(path) and path.name != "__init__.py")
    scripts = Counter(path.parent for path in SCRIPTS)
    crowded = [(folder, count) for folder, count in modules.items() if count > FOLDER_MODULES_MAX]
    crowded += [(folder, count) for folder, count in scripts.items() if count > FOLDER_SCRIPTS_MAX]
    assert [f"{relative(folder)}: {count} files" for folder, count in crowded] == []


def _is_product(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] in {"supervisor", "tenure", "jobs"}


def test_class_names_are_unique() -> None:
    """A name that stands for two classes sends every search to the wrong one."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in filter(_is_product, SOURCES):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(relative(path))
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}


def test_files_are_named_by_what_they_do() -> None:
    """A drawer without a label fills up."""
    assert [relative(path) for path in SOURCES if path.stem in BANNED_NAMES] == []


def test_tests_say_what_they_show() -> None:
    """The docstring is the specification."""
    assert [
        f"{relative(path)}: {function.name}"
        for path in TESTS
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ] == []


def test_docstrings_open_with_their_subject() -> None:
    """A line that opens with a question names nothing to search for."""
    question = re.compile(r"(what|which|who|whom|whose|how|why|where|when|whether)\b", re.IGNORECASE)
    assert [
        f"{relative(path)}: {found}"
        for path in SOURCES
        if relative(path).split("/")[0] in {"supervisor", "tenure", "jobs"}
        for node in nodes(path)
        if question.match(found := (ast.get_docstring(node) or "").partition("\n")[0])
    ] == []


def test_unit_tests_never_wait() -> None:
    """A sleep is a race that has not failed yet."""
    unit = [path for path in TESTS if "unit" in path.parts]
    assert [relative(path) for path in unit if re.search(r"\bsleep\((?!_until)", text(path))] == []


def test_nothing_is_left_unfinished() -> None:
    """Open work lives in the tracker; a skipped test is a check that cannot fail."""
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|pytest\.(mark\.)?(skip|skipif|importorskip)\b")
    others = [path for path in SOURCES if path != Path(__file__).resolve()]
    assert [f"{relative(path)}: {found[0]}" for path in others if (found := unfinished.search(text(path)))] == []


def test_fake_clocks_are_the_kits() -> None:
    """Each test that wrote its own gave time another meaning; two drive more than a clock."""
    allowed = {"tests/kit/clock.py", "tests/kit/stepper.py", "tests/simulation/turns_loop.py"}
    tests = [path for path in SOURCES if relative(path).startswith("tests/")]
    found = {relative(path) for path in tests if any(each.name == "elapsed_ns" for each in functions(path))}
    assert found == allowed


def test_json_of_others_is_read_in_one_place() -> None:
    """Elsewhere somebody forgets that data which is nested too deeply raises no DecodeError, and a process dies of it."""
    allowed = {"supervisor/core/json_values.py", "supervisor/core/jobs/signatures.py"}
    code = [path for path in SOURCES if relative(path).split("/")[0] in {"supervisor", "tenure", "jobs"}]
    found = [relative(path) for path in code if re.search(r"msgspec\.json\.(decode|Decoder)\b", text(path))]
    assert set(found) - allowed == set()


def test_scripts_keep_every_name_local() -> None:
    """One global assignment makes a real server refuse the script and poisons the interpreter of fakeredis."""
    assigned = re.compile(
        r"^(?!\s*(local|--|if|for|return|end|else|elseif|while|repeat|until|break)\b)\s*[a-z_]+\s*=[^=]|^function\b",
        re.MULTILINE,
    )
    outermost = {
        path: "\n".join(line for line in text(path).splitlines() if not line.startswith(" ")) for path in SCRIPTS
    }
    assert [
        f"{relative(path)}: {found[0]}" for path, lines in outermost.items() if (found := assigned.search(lines))
    ] == []


def test_the_project_speaks_of_itself_alone() -> None:
    """Paths of somebody's machine and hosts of registries mean nothing to a reader."""
    banned = re.compile(r"/work/(main|shared)|/tmp/w/|pypi\.org/simple|/opt/pypi|files\.pythonhosted")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "config").rglob("*.*")]
    read = [path for path in (*SOURCES, *SCRIPTS, *pages) if path != Path(__file__).resolve() and path.is_file()]
    assert [f"{relative(path)}: {found[0]}" for path in read if (found := banned.search(text(path)))] == []


def test_what_tests_import_of_tests_is_there() -> None:
    """A module that moved would else be missed where nobody runs the test that asks for it."""
    assert [
        f"{relative(path)}: {node.module}"
        for path in SOURCES
        if relative(path).startswith("tests/")
        for node in modules()[path]
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests"
        if not (ROOT / f"{node.module.replace('.', '/')}.py").is_file()
        if not all((ROOT / node.module.replace(".", "/") / f"{each.name}.py").is_file() for each in node.names)
    ] == []
