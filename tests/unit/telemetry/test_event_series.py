"""How equal events fold: told once, counted after that, bounded whatever comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.events import Event
from supervisor.telemetry.events import FRESH_PER_S, IDLE_NS, PACE_NS, SERIES_MAX, EventAggregator, tell

S = 1_000_000_000
KEY = ("run_failed", "warning", "tests.job")


def admit(folding: EventAggregator, now_ns: int, key: tuple[str, str, str] = KEY, note: str = "") -> list[Event]:
    """Record one event and return what is told of it now."""
    _, due = folding.admit(key, note=note, fields={}, now_ns=now_ns, wall_ms=now_ns // 1_000_000)
    return [tell(series, replica="r", role="t", now_ns=now_ns) for series in due]


def test_the_first_of_a_series_is_told_at_once_and_the_rest_together() -> None:
    """Who waits for one event gets it now; who gets a thousand gets a number."""
    folding = EventAggregator()
    (first,) = admit(folding, S, note="one")
    assert (first.count, first.note) == (1, "one")

    assert [admit(folding, S + number, note=str(number)) for number in range(1, 1000)] == [[]] * 999
    assert folding.due(S + PACE_NS - 1) == []
    (series,) = folding.due(S + PACE_NS)
    told = tell(series, replica="r", role="t", now_ns=S + PACE_NS)
    assert (told.count, told.note, told.first_ms, told.last_ms) == (1000, "999", 1000, 1000)
    assert folding.due(S + 99 * PACE_NS) == []


def test_a_series_that_goes_on_is_told_at_its_pace_by_its_own_events() -> None:
    """A process whose beats stopped still tells."""
    folding = EventAggregator()
    admit(folding, 0)
    assert [event.count for event in admit(folding, PACE_NS)] == [2]
    assert admit(folding, PACE_NS + 1) == []
    assert [event.count for event in admit(folding, 2 * PACE_NS)] == [4]


def test_a_series_that_was_quiet_for_long_is_over() -> None:
    """What happens once a day is one event each day, not a count that grows."""
    folding = EventAggregator()
    admit(folding, 0)
    admit(folding, 1)
    untold, fresh = admit(folding, IDLE_NS + 1)
    assert (untold.count, fresh.count) == (2, 1)
    assert fresh.first_ms == (IDLE_NS + 1) // 1_000_000


def test_level_and_subject_part_series() -> None:
    """Two schedules that fail are two things to look at."""
    folding = EventAggregator()
    keys = [KEY, ("run_failed", "error", "tests.job"), ("run_failed", "warning", "other")]
    assert [len(admit(folding, 0, key)) for key in keys] == [1, 1, 1]


def test_new_series_are_limited_in_each_second() -> None:
    """A program that invents subjects cannot fill log and stream."""
    folding = EventAggregator()
    admitted = [
        folding.admit(("r", "info", str(number)), note="", fields={}, now_ns=0, wall_ms=0)[0] for number in range(100)
    ]
    assert admitted == [True] * FRESH_PER_S + [False] * (100 - FRESH_PER_S)
    assert folding.admit(("r", "info", "later"), note="", fields={}, now_ns=S, wall_ms=0)[0]


def test_the_series_that_was_quiet_longest_makes_room_and_is_told() -> None:
    """Memory is bounded, and nothing that was counted is lost by it."""
    folding = EventAggregator()
    admit(folding, 0)
    admit(folding, 1)
    told = [
        event for number in range(SERIES_MAX) for event in admit(folding, S + number * S, ("r", "info", str(number)))
    ]
    assert len(folding) == SERIES_MAX
    assert [event.count for event in told if event.reason == "run_failed"] == [2]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7 * S)), max_size=200))
def test_every_admitted_event_is_told_exactly_once(steps: list[tuple[int, int]]) -> None:
    """The sum of what is told is what was recorded, less what was refused."""
    folding = EventAggregator()
    now_ns, refused, told = 0, 0, 0
    for subject, wait_ns in steps:
        now_ns += wait_ns
        is_admitted, due = folding.admit(("r", "info", str(subject)), note="", fields={}, now_ns=now_ns, wall_ms=0)
        refused += not is_admitted
        for series in due:
            told += series.untold
            tell(series, replica="", role="", now_ns=now_ns)
    told += sum(series.untold for series in folding.due(now_ns, is_last=True))
    assert told + refused == len(steps)
