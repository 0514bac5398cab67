"""The table of a benchmark: a goal is met only if every limit of it is, and what was not measured is never called met."""

from __future__ import annotations

import pytest

from bench.table import Goal, Result, Samples

GOAL = Goal(name="x", title="x", p50_max=2, p99_max=25)


@pytest.mark.parametrize(
    ("values", "verdict", "ratio"),
    [([1.0] * 100, "holds", 0.5), ([1.0] * 98 + [30.0] * 2, "MISSED", 1.2), ([3.0] * 100, "MISSED", 1.5)],
)
def test_the_worst_of_two_limits_decides(values: list[float], verdict: str, ratio: float) -> None:
    """A good median does not excuse a bad tail."""
    result = Result(GOAL, Samples(values))

    assert (result.verdict, result.ratio) == (verdict, ratio)


def test_quantiles_are_samples_that_were_measured() -> None:
    """Nearest rank: of ten rounds the p99 is the worst one, not something between two."""
    result = Result(GOAL, Samples([float(n) for n in range(1, 11)]))

    assert (result.quantile(0.5), result.quantile(0.99)) == (5.0, 10.0)


def test_a_goal_of_zero_allows_none() -> None:
    """Lost runs, wrong take-overs, epochs that went back."""
    goal = Goal(name="x", title="x", p99_max=0)

    assert Result(goal, Samples([0.0, 0.0])).verdict == "holds"
    assert Result(goal, Samples([0.0, 1.0])).verdict == "MISSED"


def test_what_could_not_be_measured_is_not_met() -> None:
    """A row that failed says why, and fails the command."""
    assert Result(GOAL).verdict == "not measured"
    assert Result(GOAL, Samples([1.0]), failure="no server").verdict == "not measured"
    assert Result(Goal(name="x", title="x"), Samples([1.0])).verdict == ""
