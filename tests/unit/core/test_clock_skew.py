"""The one comparison between this machine's wall clock and Redis'."""

from __future__ import annotations

import pytest

from supervisor.core.election.clock_skew import ROUND_TRIP_NS_MAX, Skew
from supervisor.core.units import MILLISECOND_NS
from tests.kit.tables import table


def measured(skew_ms: int, *, before: Skew | None = None, took_ms: int = 0) -> Skew:
    """Return what an answer shows when this clock is ``skew_ms`` ahead and the answer half as old as it took."""
    wall_ms = 1_000_000 + skew_ms + took_ms // 2
    return (before or Skew()).measured(wall_ms=wall_ms, redis_ms=1_000_000, round_trip_ns=took_ms * MILLISECOND_NS)


@table("skew_ms", [-3_600_000, -501, -500, 0, 500, 501, 3_600_000])
@table("took_ms", [0, 2, 400])
def test_half_the_way_of_the_answer_is_taken_off(skew_ms: int, took_ms: int) -> None:
    """A slow Redis must not look like a clock that is ahead."""
    skew = measured(skew_ms, took_ms=took_ms)

    assert skew == Skew(skew_ms, is_over=abs(skew_ms) > 500)


@table("before_ms", [-3_600_000, -700, 0, 700, 3_600_000])
@table("skew_ms", [-3_600_000, 0, 3_600_000])
def test_an_answer_that_took_too_long_only_refutes(before_ms: int, skew_ms: int) -> None:
    """This process was stopped, or Redis was: when it read its clock is known to its round trip. Clocks step meanwhile."""
    took_ms = ROUND_TRIP_NS_MAX // MILLISECOND_NS + 501
    skew = measured(skew_ms, before=measured(before_ms), took_ms=took_ms)

    assert abs(skew.ms - skew_ms) <= took_ms // 2 + 1
    if abs(before_ms - skew_ms) < took_ms // 2:
        assert skew.ms == before_ms


@pytest.mark.parametrize(("skew_ms", "is_over"), [(501, True), (500, True), (-251, True), (250, False), (0, False)])
def test_who_was_too_far_off_must_come_well_within_the_limit(skew_ms: int, *, is_over: bool) -> None:
    """A clock near the limit is told of once, not every second."""
    assert measured(skew_ms, before=measured(600)).is_over == is_over


@table(
    ("own_ms", "other_ms", "is_worse"),
    [
        (-3_600_000, 0, True),
        (-3_600_000, 500, True),
        (-3_600_000, -5_000, True),  # that one is off as well, and far nearer
        (-3_600_000, -360_000, False),
        (-5_000, -3_600_000, False),  # which of two leads by it is settled once
        (501, 499, False),  # as good as the same
        (501, -250, True),
        (3_600_000, 3_600_000, False),  # it is Redis' clock that is off
    ],
)
def test_only_a_clock_that_is_clearly_better_counts(own_ms: int, other_ms: int, *, is_worse: bool) -> None:
    """Otherwise two replicas near the limit would hand over to each other."""
    assert measured(own_ms).is_worse_than(other_ms) == is_worse
