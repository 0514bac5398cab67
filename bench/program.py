"""What every program of goals does alike: choose rows, measure each with a progress bar, print one table."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.table import Result, Row, print_json, print_results


def run(program: str, description: str | None, rows: Sequence[Row]) -> int:
    """Measure the rows that the command line asks for, print them, and return 1 if a goal was missed."""
    options = _options(program, description, rows)
    asked = options.rows.split(",") if options.rows else [row.name for row in rows if not row.is_optional]
    results: list[Result] = []
    # On standard error, so that --json leaves standard output to the program that reads it.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for row in (row for row in rows if row.name in asked):
            results += _measure(row, options.rounds or row.rounds, progress)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    (print_json if options.json else print_results)(results)
    return int(any(result.verdict not in {"", "holds"} for result in results))


def _options(program: str, description: str | None, rows: Sequence[Row]) -> argparse.Namespace:
    names = ", ".join(f"{row.name} (only when named)" if row.is_optional else row.name for row in rows)
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--rows", help=f"only these, by comma: {names}")
    parser.add_argument("--rounds", type=int, help="of each row, instead of its own number")
    parser.add_argument("--json", action="store_true", help="print every sample")
    options = parser.parse_args()
    unknown = set((options.rows or "").split(",")) - {"", *(row.name for row in rows)}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {names}")
    return options


def _measure(row: Row, rounds: int, progress: Progress) -> list[Result]:
    """Measure one row; a failure costs that row only, and is shown in its place."""
    task = progress.add_task(row.name, total=rounds)
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True) as directory:
        try:
            samples = row.measure(Path(directory) / "b", rounds, lambda: progress.advance(task))
        except AssertionError as error:
            failure = " ".join(str(error).split())
            return [Result(line, failure=failure) for line in (row, *row.parts)]
    parts = [Result(part, type(samples)(samples.parts[part.name])) for part in row.parts]
    return [Result(row, samples), *parts]
