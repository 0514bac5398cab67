"""How many runs a sync worker holds."""

from __future__ import annotations

import pytest

from supervisor.roles.worker.polling.poll import FAST_S, JOBS_MAX, KNOWN_MIN, STREAK_MIN, Pace


def paced(prefetch: int, seconds: float, runs: int = 50) -> Pace:
    """Return the pace of a process whose runs all took so long."""
    pace = Pace(prefetch)
    for _ in range(runs):
        pace.ended("a", seconds)
    return pace


def test_one_run_at_a_time_until_a_streak_of_fast_ones() -> None:
    """Nothing is known of a new process's work."""
    assert Pace(16).want == 1
    assert paced(16, 0.0001, STREAK_MIN - 1).want == 1
    assert paced(16, 0.0001, STREAK_MIN).want > 1


@pytest.mark.parametrize(("seconds", "want"), [(0.0001, 16), (0.001, 9), (0.004, 2), (0.005, 1), (1.0, 1)])
def test_as_many_as_are_over_within_ten_milliseconds(seconds: float, want: int) -> None:
    """What waits behind others must not wait long; from 5 ms on a journey of its own costs less than that."""
    assert paced(16, seconds).want == pytest.approx(want, abs=1 if want > 1 and want < 16 else 0)


def test_prefetch_of_one_never_holds_two() -> None:
    """The setting is how one turns it off."""
    assert paced(1, 0.0001).want == 1


def test_one_slow_run_ends_the_streak() -> None:
    """The next may be as slow."""
    pace = paced(16, 0.0001)
    pace.ended("b", FAST_S)

    assert pace.want == 1


def test_a_job_is_fast_once_it_is_known_to_be() -> None:
    """By its own runs, whatever others do."""
    pace = Pace(16)
    for _ in range(KNOWN_MIN):
        assert not pace.is_fast("a")
        pace.ended("a", 0.0001)
        pace.ended("slow", 1.0)

    assert pace.is_fast("a")
    assert not pace.is_fast("slow")
    assert not pace.is_fast("unknown")


def test_a_job_that_was_fast_and_turns_slow_is_found_out() -> None:
    """Its last runs count most."""
    pace = paced(16, 0.0001)
    for _ in range(3):
        pace.ended("a", 0.05)

    assert not pace.is_fast("a")


def test_a_bounded_number_of_jobs_is_remembered() -> None:
    """Names come from the registry, but a process lives long."""
    pace = Pace(16)
    for number in range(JOBS_MAX + 5):
        pace.ended(f"job-{number}", 0.001)

    assert len(pace._jobs) == JOBS_MAX
