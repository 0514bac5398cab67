"""The style checks itself (after TigerBeetle's tidy.zig): limits that no reviewer has to argue about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
SOURCES = sorted(path for folder in ("supervisor", "jobs", "tests", "bench") for path in (ROOT / folder).rglob("*.py"))
TESTS = [path for path in SOURCES if path.name.startswith("test_") and path != Path(__file__).resolve()]
SCRIPTS = sorted((ROOT / "supervisor/store/lua").glob("*.lua"))
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


def relative(path: Path) -> str:
    """Return a path as a test id."""
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_and_functions_fit_in_the_head(path: Path) -> None:
    """A file over the limit has two subjects; a function over it cannot be seen at once."""
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX
    for function in functions(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_are_named_by_what_they_do(path: Path) -> None:
    """A drawer without a label fills up."""
    assert path.stem not in BANNED_NAMES


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_tests_say_what_they_show(path: Path) -> None:
    """The docstring is the specification."""
    for function in functions(path):
        if function.name.startswith("test_"):
            assert ast.get_docstring(function), f"{function.name} has no docstring"


@pytest.mark.parametrize("path", [p for p in TESTS if "unit" in p.parts], ids=relative)
def test_unit_tests_never_wait(path: Path) -> None:
    """A sleep is a race that has not failed yet."""
    assert not re.search(r"\bsleep\((?!_until)", path.read_text())


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix == ".py"], ids=relative)
def test_nothing_is_left_unfinished(path: Path) -> None:
    """Open work lives in the tracker; a skipped test is a check that cannot fail."""
    text = path.read_text()
    if path == Path(__file__).resolve():
        return
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)
    assert not re.search(r"pytest\.(mark\.)?(skip|skipif|importorskip)\b", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_scripts_keep_every_name_local(path: Path) -> None:
    """One global assignment makes a real server refuse the script and poisons the interpreter of fakeredis."""
    assert not re.search(
        r"^(?!\s*(local|--|if|for|return|end|else|elseif|while|repeat|until|break)\b)\s*[a-z_]+\s*=[^=]",
        "\n".join(line for line in path.read_text().splitlines() if not line.startswith(" ")),
        re.MULTILINE,
    )
    assert not re.search(r"^function\b", path.read_text(), re.MULTILINE)


def test_the_project_speaks_of_itself_alone() -> None:
    """Paths of somebody's machine and hosts of registries mean nothing to a reader."""
    banned = re.compile(r"/work/(main|shared)|/tmp/w/|pypi\.org/simple|/opt/pypi|files\.pythonhosted")
    for path in [
        *SOURCES,
        *SCRIPTS,
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "config").rglob("*.*"),
    ]:
        if path != Path(__file__).resolve() and path.is_file():
            assert not banned.search(path.read_text()), f"{relative(path)} names a place outside the project"
