"""Size and shape of the product: folders, names, docstrings, duplicated code. `make house` prints the table.

Measured from the sources, and for the way of a run from a small tree, so that two commits can be compared. Tests and
benchmarks do not count.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.house_path import modules_of_a_run

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("supervisor", "jobs")
QUESTION = re.compile(r"(what|which|who|whom|whose|how|why|where|when|whether)\b", re.IGNORECASE)
NUMBER = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")
WORD = re.compile(r"[A-Za-z']+")
SHAPE_LINES_MIN = 6
WORDS = {tokenize.NAME: "", tokenize.OP: "", tokenize.NUMBER: "0", tokenize.STRING: "s"}
"""Tokens that make the shape of a line, and what each kind counts as; empty: as itself."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: str
    goal: str

    @property
    def verdict(self) -> str:
        """Return whether each number is within its goal."""
        seen, goals = (
            [float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (self.value, self.goal)
        )
        return "" if not goals else "met" if all(a <= b for a, b in zip(seen, goals, strict=False)) else "over"


def sources(suffix: str) -> list[Path]:
    """Return the product's files that end in `suffix`."""
    return sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob(f"*{suffix}"))


@cache
def trees() -> dict[Path, ast.Module]:
    """Return every module of the product, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources(".py")}


def files_by_folder(suffix: str) -> Counter[str]:
    """Return the number of files of each folder; the file that makes it a package does not count."""
    return Counter(str(path.parent.relative_to(ROOT)) for path in sources(suffix) if path.name != "__init__.py")


def repeated_classes() -> dict[str, list[str]]:
    """Return the class names that more than one module defines at its top, with those modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def docstrings() -> Iterator[str]:
    """Yield every docstring of modules, classes and functions."""
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def repeated_shapes() -> list[str]:
    """Return where six lines of code or more stand that are elsewhere too, but for names, numbers and texts."""
    found = {path: list(_code_lines(path, tree)) for path, tree in trees().items()}
    count = Counter(window for lines in found.values() for window in _windows(lines))
    places = []
    for path, lines in found.items():
        shared = [count[window] > 1 for window in _windows(lines)]
        for start, is_shared in enumerate(shared):
            if is_shared and not (start and shared[start - 1]):
                end = next((at for at in range(start, len(shared)) if not shared[at]), len(shared))
                places.append(f"{path.relative_to(ROOT)}:{lines[start][0]}-{lines[end + SHAPE_LINES_MIN - 2][0]}")
    return places


def _windows(lines: list[tuple[int, str]]) -> list[tuple[str, ...]]:
    shapes = [shape for _, shape in lines]
    return [tuple(shapes[at : at + SHAPE_LINES_MIN]) for at in range(len(shapes) - SHAPE_LINES_MIN + 1)]


def _code_lines(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each line of code inside functions, without names and constants. Docstrings and imports are none."""
    inside, skipped = set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= _lines_of(node)
        elif isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            skipped |= _lines_of(node)
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in WORDS:
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            words[token.start[0]].append("n" if is_name else WORDS[token.type] or token.string)
    for line in sorted(words.keys() & inside - skipped):
        yield line, " ".join(words[line])


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def files_of(script: str) -> int:
    """Return how many files of Lua a script is made of: itself, and the libraries that it or one of them includes."""
    found, waiting = set[str](), [script]
    paths = {path.stem: path for path in sources(".lua")}
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            header = re.search(r"^-- Includes((?:  +\w+\n(?:--)?)+)", paths[name].read_text(), re.MULTILINE)
            waiting += re.findall(r"\w+", header[1]) if header else []
    return len(found)


def rows() -> list[Row]:
    """Measure everything."""
    modules, scripts = files_by_folder(".py").most_common(1)[0], files_by_folder(".lua").most_common(1)[0]
    texts = list(docstrings())
    questions = sum(bool(QUESTION.match(text)) for text in texts)
    words = Counter(word.lower() for text in texts for word in WORD.findall(text))
    python, lua = (sum(len(path.read_text().splitlines()) for path in sources(suffix)) for suffix in (".py", ".lua"))
    return [
        Row("most modules in one folder", f"{modules[1]} ({modules[0]})", "16"),
        Row("most scripts in one folder", f"{scripts[1]} ({scripts[0]})", "32"),
        Row("class names used twice or more", str(len(repeated_classes())), "0"),
        Row("docstrings that open with a question word", f"{100 * questions / len(texts):.1f} %", "1 %"),
        Row("'what' per 1,000 words of docstrings", f"{1000 * words['what'] / words.total():.1f}", "2"),
        Row("modules from due schedule to history", str(len(modules_of_a_run())), "30"),
        Row("files of Lua for a fire and for a turn", f"{files_of('fire')} + {files_of('turn')}", "10 + 10"),
        Row("lines of Python and of Lua", f"{python:,} + {lua:,}", "56,000 + 6,000"),
        Row("duplicated shapes of six lines or more", str(len(repeated_shapes())), "30"),
    ]


def main() -> None:
    """Print the table, and what the two lists consist of."""
    for row in (Row("", "now", "goal at most"), *rows()):
        print(f"{row.name:<44} {row.value:<40} {row.goal:<18} {row.verdict}".rstrip())
    for title, lines in (
        ("Class names used twice or more", [f"{name}: {', '.join(at)}" for name, at in repeated_classes().items()]),
        ("Places that share a shape", repeated_shapes()),
    ):
        print(f"\n{title}")
        for line in lines:
            print(f"  {line}")


if __name__ == "__main__":
    main()
