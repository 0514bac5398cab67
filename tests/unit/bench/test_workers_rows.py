"""The benchmark of workers: what it measures stands in the documents."""

from __future__ import annotations

import re
from pathlib import Path

from bench.workers import ROWS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "measuring.md"


def test_every_row_stands_in_the_documents_and_no_other() -> None:
    """Whoever reads the page asks for a row by its name."""
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}

    assert named == set(ROWS)
