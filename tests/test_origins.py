"""docs/origins.md answers for every row of the study it comes from, and every reference in it resolves."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/origins.md"
ROWS = {"A": 9, "B": 15, "C": 19, "D": 12, "E": 9, "F": 6, "G": 15, "H": 15, "I": 8, "J": 18, "K": 27, "L": 15}
DEFECTS = 20
VARIATIONS = 14  # from S-00
CLOSED = {"J-15", "L-09"}
"""Rows that a decision closed as a whole. B-06 and G-06 are closed in part: consul, and gRPC as a transport."""

PARTLY_CLOSED = {"B-06": "consul", "G-06": "gRPC"}
NOTHING = "—"


class Row(NamedTuple):
    """One line of the page."""

    id: str
    text: str
    places: str
    tests: str


def ids() -> list[str]:
    """Return every id there is, in the order of the page."""
    lettered = [f"{letter}-{number:02}" for letter, count in ROWS.items() for number in range(1, count + 1)]
    return [
        *lettered,
        *(f"X{number}" for number in range(1, DEFECTS + 1)),
        *(f"S-{number:02}" for number in range(VARIATIONS)),
    ]


@cache
def rows() -> list[Row]:
    """Return the lines of the page's tables."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"[A-LS]-\d\d|X\d+", cells[0]):
            assert len(cells) == len(Row._fields), f"{cells[0]} has {len(cells)} columns"
            found.append(Row(*cells))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions and classes that a file of Python defines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    tree = ast.parse(path.read_text())
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset({node.name for node in ast.walk(tree) if isinstance(node, kinds)} | assigned)


def references(cell: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_has_one_line_for_every_row_in_their_order() -> None:
    """A row without a line is a capability that nobody answered for."""
    assert [row.id for row in rows()] == ids()


def missing(reference: str) -> str | None:
    """Return what a reference names and is not there: a file, or after two colons a name in it."""
    path, _, name = reference.partition("::")
    if not (ROOT / path).exists():
        return path
    return None if not name or name in names_in(ROOT / path) else f"{name} in {path}"


def test_every_place_that_a_row_names_exists() -> None:
    """Where it lives: a file or folder, and after two colons a name in it."""
    problems = []
    for row in rows():
        named = references(row.places)
        problems += [f"{row.id} names {lacks}" for each in named if (lacks := missing(each))]
        problems += [] if named else [f"{row.id} says of no place where it lives"]
    assert problems == []


def test_every_test_that_a_row_names_exists() -> None:
    """How it is tested: a function of a test file, or nothing where a decision closed the row or it is not here."""
    problems = []
    for row in rows():
        if row.tests == NOTHING:
            if not re.search(r"\b(Closed|Not here)\b", row.text):
                problems.append(f"{row.id} is neither tested, nor closed, nor said to lack")
            continue
        named = references(row.tests)
        problems += [] if named else [f"{row.id} names no test"]
        problems += [f"{row.id} names {each}, which is no test" for each in named if not each.startswith("tests/")]
        problems += [f"{row.id} names {lacks}" for each in named if (lacks := missing(each))]
        problems += [f"{row.id} names no function: {each}" for each in named if "::" not in each]
    assert problems == []


def test_rows_closed_by_decision_say_why_and_where() -> None:
    """What is left out on purpose names the decision, so that nobody looks for it."""
    by_id = {row.id: row for row in rows()}
    for name in CLOSED:
        assert by_id[name].text.startswith("Closed"), f"{name} does not say that it is closed"
    for name, what in PARTLY_CLOSED.items():
        assert re.search(rf"[Cc]losed.*{what}|{what}.*[Cc]losed", by_id[name].text), f"{name} does not close {what}"
    for name in (*CLOSED, *PARTLY_CLOSED):
        assert any(place.startswith("docs/") for place in references(by_id[name].places)), f"{name} names no decision"
