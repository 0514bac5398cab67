"""When the absence of a leader's connection may be taken for its death."""

from __future__ import annotations

import pytest

from supervisor.core.election.presence import CONFIRM_NS, PresenceWatch, Sighting

S = 1_000_000_000
LEASE_NS = 5 * S


class Watched:
    """One watch and a clock."""

    def __init__(self) -> None:
        self.watch = PresenceWatch(LEASE_NS)
        self.now_ns = 1000 * S

    def look(self, count: int, *, after_ns: int = S, epoch: int = 7) -> Sighting:
        self.now_ns += after_ns
        return self.watch.look(epoch=epoch, count=count, now_ns=self.now_ns)


@pytest.fixture
def proven() -> Watched:
    """A holder that was seen for longer than a lease."""
    watched = Watched()
    assert [watched.look(1) for _ in range(7)] == [Sighting.NOTHING] * 7
    return watched


def test_a_holder_that_vanished_is_absent_at_the_second_look(proven: Watched) -> None:
    """One look may have met the moment in which it made a new connection."""
    assert proven.look(0) is Sighting.ABSENT_ONCE
    assert proven.look(0, after_ns=CONFIRM_NS // 2) is Sighting.ABSENT_ONCE
    assert proven.look(0, after_ns=CONFIRM_NS) is Sighting.ABSENT


def test_a_holder_that_came_back_is_there(proven: Watched) -> None:
    """The count starts over."""
    assert proven.look(0) is Sighting.ABSENT_ONCE
    assert proven.look(1) is Sighting.NOTHING
    assert proven.look(0) is Sighting.ABSENT_ONCE


def test_a_server_that_does_not_say_ends_a_suspicion(proven: Watched) -> None:
    """Unknown is not absent."""
    assert proven.look(0) is Sighting.ABSENT_ONCE
    assert proven.look(-1) is Sighting.NOTHING
    assert proven.look(0) is Sighting.ABSENT_ONCE


def test_who_was_never_seen_is_never_absent() -> None:
    """A proxy hides subscribers: then nothing follows from not seeing one, however long."""
    watched = Watched()

    assert {watched.look(0) for _ in range(100)} == {Sighting.NOTHING}


def test_nothing_is_concluded_within_a_lease_of_a_new_term(proven: Watched) -> None:
    """Its holder may not have subscribed yet."""
    assert proven.look(1, epoch=8) is Sighting.NOTHING
    assert proven.look(0, epoch=8) is Sighting.NOTHING
    assert proven.look(0, epoch=8, after_ns=LEASE_NS) is Sighting.ABSENT_ONCE


def test_nothing_is_concluded_within_a_lease_of_an_interruption_of_our_own(proven: Watched) -> None:
    """A server that restarted dropped the holder's connection too; it must be seen anew."""
    proven.watch.interrupted(proven.now_ns)
    assert proven.look(0) is Sighting.NOTHING
    assert proven.look(0, after_ns=LEASE_NS) is Sighting.NOTHING
    assert proven.look(1) is Sighting.NOTHING

    assert proven.look(0) is Sighting.ABSENT_ONCE
