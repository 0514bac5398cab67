"""What a benchmark of goals is made of: rows with a goal, samples, and the table that compares the two."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

Tick = Callable[[], None]  # advances the progress bar by one round
Measure = Callable[[Path, int, Tick], "Samples"]


@dataclass(frozen=True, slots=True)
class Samples:
    """What one row measured."""

    values: list[float]
    note: str = ""  # what a reader must know to read the numbers
    parts: dict[str, list[float]] = field(default_factory=dict)  # for lines of their own, by Part.name


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table: what is measured, and how large it may be."""

    name: str  # for --rows
    title: str
    p50_max: float | None = field(default=None, kw_only=True)
    p99_max: float | None = field(default=None, kw_only=True)
    unit: str = field(default="ms", kw_only=True)

    @property
    def limits(self) -> str:
        """The goal, for people."""
        limits = {"p50": self.p50_max, "p99": self.p99_max}
        return ", ".join(f"{name} ≤ {limit:g} {self.unit}" for name, limit in limits.items() if limit is not None)


@dataclass(frozen=True, slots=True)
class Row(Goal):
    """A line with what measures it."""

    measure: Measure
    rounds: int
    parts: tuple[Goal, ...] = field(default=(), kw_only=True)  # what the same measurement tells besides
    is_optional: bool = field(default=False, kw_only=True)  # only when named: it takes many minutes


@dataclass(frozen=True, slots=True)
class Result:
    """A line and what was measured for it, or why it could not be."""

    row: Goal
    samples: Samples = field(default_factory=lambda: Samples([]))
    failure: str = ""

    def quantile(self, share: float) -> float | None:
        """Return the nearest-rank quantile."""
        values = sorted(self.samples.values)
        return values[max(0, math.ceil(share * len(values)) - 1)] if values else None

    @property
    def ratio(self) -> float | None:
        """The worst of measured by goal: at most 1 holds."""
        pairs = ((self.quantile(0.5), self.row.p50_max), (self.quantile(0.99), self.row.p99_max))
        ratios = [
            (seen / limit) if limit else float(seen > 0)
            for seen, limit in pairs
            if seen is not None and limit is not None
        ]
        return max(ratios) if ratios else None

    @property
    def verdict(self) -> str:
        """Whether the goal is met; empty where there is none."""
        if not self.row.limits and not self.failure:
            return ""
        if self.failure or self.ratio is None:
            return "not measured"
        if self.row.p50_max == 0 or self.row.p99_max == 0:
            return "holds" if self.ratio == 0 else "MISSED"
        return "holds" if self.ratio <= 1 else "MISSED"


def print_results(results: Sequence[Result]) -> None:
    """Print the table for people."""
    table = Table("measure", "goal", "p50", "p99", "rounds", "ratio", "verdict", "note")
    for each in results:
        shown = [_number(each.quantile(0.5), each.row.unit), _number(each.quantile(0.99), each.row.unit)]
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        rounds = str(len(each.samples.values))
        table.add_row(
            each.row.title, each.row.limits, *shown, rounds, ratio, each.verdict, each.failure or each.samples.note
        )
    Console(width=None if Console().is_terminal else 200).print(table)


def print_json(results: Sequence[Result]) -> None:
    """Print one object for each row, with every sample."""
    rows = [
        {
            "name": each.row.name,
            "title": each.row.title,
            "unit": each.row.unit,
            "p50_max": each.row.p50_max,
            "p99_max": each.row.p99_max,
            "p50": each.quantile(0.5),
            "p99": each.quantile(0.99),
            "ratio": each.ratio,
            "verdict": each.verdict,
            "note": each.failure or each.samples.note,
            "values": each.samples.values,
        }
        for each in results
    ]
    print(json.dumps(rows, indent=2))


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}"
