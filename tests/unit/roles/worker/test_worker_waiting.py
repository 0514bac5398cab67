"""How a worker waits through an outage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from supervisor.core.errors import StoreUnavailableError
from supervisor.roles.worker.process.heartbeat import FIRST_S, LONGEST_S, Outage
from tests.kit.clock import FakeClock


@given(failures=st.integers(1, 200), uniform=st.floats(0, 1, exclude_max=True))
def test_pauses_grow_to_a_bound_and_are_never_nothing(failures: int, uniform: float) -> None:
    """Workers that failed together must neither come back together nor hammer a server that starts."""
    outage = Outage(FakeClock(), lambda: uniform)

    with capture_logs():
        pauses = [outage.failed("turn", StoreUnavailableError("no")) for _ in range(failures)]

    assert pauses[0] <= FIRST_S
    assert all(FIRST_S / 2 <= pause <= LONGEST_S for pause in pauses)
    assert pauses == sorted(pauses)


def test_an_outage_is_told_once_and_its_end_with_its_length() -> None:
    """A line for each failed call would fill the disk of every replica at the worst moment."""
    clock = FakeClock()
    outage = Outage(clock, lambda: 0.5)
    with capture_logs() as logs:
        outage.answered()
        for _ in range(3):
            outage.failed("turn", StoreUnavailableError("no answer"))
            clock.advance(2)
        is_on = outage.is_on
        outage.answered()
        outage.answered()

    assert is_on
    assert not outage.is_on
    assert [(line["event"], line.get("after_s")) for line in logs] == [("redis_lost", None), ("redis_back", 6.0)]


def test_the_next_outage_begins_with_a_short_pause_again() -> None:
    """A single lost reply is the usual case."""
    outage = Outage(FakeClock(), lambda: 0.5)
    with capture_logs():
        for _ in range(10):
            outage.failed("turn", StoreUnavailableError("no"))
        outage.answered()

        assert outage.failed("turn", StoreUnavailableError("no")) <= FIRST_S
