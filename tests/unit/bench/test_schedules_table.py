"""The table of the schedule benchmark: a missed goal must be seen."""

from __future__ import annotations

import pytest

from bench.schedules_table import Measure, Row, percentile


@pytest.mark.parametrize(
    ("measure", "ratio"),
    [
        (Measure(5, 10, "ms"), 0.5),
        (Measure(20, 10, "ms"), 2.0),
        (Measure(40_000, 20_000, "/s", at_least=True), 0.5),
        (Measure(0, 20_000, "/s", at_least=True), float("inf")),
    ],
)
def test_a_ratio_above_one_is_a_missed_goal(measure: Measure, ratio: float) -> None:
    """Whether more is better or less."""
    assert measure.ratio == ratio


def test_a_row_is_as_bad_as_its_worst_number() -> None:
    """A median that is met does not excuse a tail that is not."""
    row = Row("lateness", (Measure(1, 2, "ms", name="p50 "), Measure(30, 10, "ms", name="p99 ")), "a note")
    assert row.ratio == 3
    assert row.cells() == ("lateness", "≤ 2 ms / ≤ 10 ms", "p50 1 ms / p99 30 ms", "3.00", "[red]missed[/]", "a note")
    assert row.as_json()["met"] is False


def test_a_percentile_is_a_value_that_was_measured() -> None:
    """The tail of few rounds is their worst."""
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (51.0, 100.0, 7.0)
