"""What a benchmark found, beside what was promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

Told = Callable[[str], None]
"""Takes what is measured just now."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number and its goal. ``at_least``: more is better."""

    value: float
    goal: float
    unit: str
    at_least: bool = False
    name: str = ""

    @property
    def ratio(self) -> float:
        """How much of the goal is used up: above 1 it is missed."""
        if self.at_least:
            return self.goal / self.value if self.value else float("inf")
        return self.value / self.goal


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: numbers that belong together, and a note on how they came about."""

    name: str
    measures: tuple[Measure, ...]
    note: str = ""

    @property
    def ratio(self) -> float:
        """The worst of its measures."""
        return max(measure.ratio for measure in self.measures)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        goals = " / ".join(_goal(measure) for measure in self.measures)
        values = " / ".join(f"{measure.name}{_number(measure.value)} {measure.unit}" for measure in self.measures)
        verdict = "[green]met[/]" if self.ratio <= 1 else "[red]missed[/]"
        return self.name, goals, values, f"{self.ratio:.2f}", verdict, self.note

    def as_json(self) -> dict[str, Any]:
        """Return it for a machine to read."""
        return {
            "name": self.name,
            "measures": [asdict(measure) | {"ratio": measure.ratio} for measure in self.measures],
            "ratio": self.ratio,
            "met": self.ratio <= 1,
            "note": self.note,
        }


def table_of(rows: Iterable[Row]) -> Table:
    """Return the table that people read."""
    table = Table("measure", "goal", "measured", "of goal", "verdict", "note")
    for row in rows:
        table.add_row(*row.cells())
    return table


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of ``values`` do not exceed."""
    assert values
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _goal(measure: Measure) -> str:
    return f"{'≥' if measure.at_least else '≤'} {_number(measure.goal)} {measure.unit}"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.01 or value == 0 else f"{value:.1e}"
