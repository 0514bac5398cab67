"""The lease: trust, silence, order of candidates, and the table of states."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.lease import (
    MS,
    RETRY_LAST_NS,
    SLACK_NS,
    STAGGER_NS,
    TRANSITIONS,
    Event,
    ImpossibleTransitionError,
    Observation,
    Rank,
    State,
    granted,
    retry_delay_ns,
    stagger_ns,
    step,
)

S = 1000 * MS
NONCE = "ab" * 16


def test_a_slow_grant_does_not_extend_the_term() -> None:
    """Trust counts from the question, so a 4 s reply leaves 0.5 s of a 5 s lease."""
    term = granted(epoch=1, nonce=NONCE, asked_at_ns=100 * S, duration_ns=5 * S, margin_ns=S // 2)

    assert term.is_trusted(104 * S + 499 * MS)
    assert not term.is_trusted(104 * S + 500 * MS)


@given(
    asked=st.integers(0, 10**15),
    request=st.integers(0, 10**10),
    reply=st.integers(0, 10**10),
    duration=st.integers(1000, 300_000),
)
def test_trust_ends_before_redis_can_give_the_lease_away(asked: int, request: int, reply: int, duration: int) -> None:
    """Whatever the request and the reply took, a follower that saw the grant waits longer than the holder trusts."""
    term = granted(epoch=1, nonce=NONCE, asked_at_ns=asked, duration_ns=duration * MS, margin_ns=duration * MS // 10)
    applied = asked + request
    seen = Observation.of(epoch=1, seq=0, remaining_ms=duration, duration_ms=duration, now_ns=applied + reply)

    assert term.trusted_until_ns < seen.dead_at_ns


def test_a_follower_waits_what_the_record_has_left() -> None:
    """A holder that renewed 2 s ago is dead 3 s from now if it stays silent."""
    seen = Observation.of(epoch=7, seq=3, remaining_ms=3000, duration_ms=5000, now_ns=10 * S)

    assert seen.dead_at_ns == 13 * S + SLACK_NS


@pytest.mark.parametrize("remaining_ms", [-1, 0, 5001, 10**9])
def test_a_clock_that_stepped_makes_a_follower_wait_a_whole_duration(remaining_ms: int) -> None:
    """The record's remaining time is a hint by Redis' clock; outside its range only silence counts."""
    seen = Observation.of(epoch=7, seq=3, remaining_ms=remaining_ms, duration_ms=5000, now_ns=10 * S)

    assert seen.dead_at_ns == 15 * S + SLACK_NS


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair_of_state_and_event_is_decided(state: State, event: Event) -> None:
    """A pair is either in the table or refused: nothing falls through."""
    if (state, event) in TRANSITIONS:
        assert step(state, event) in State
    else:
        with pytest.raises(ImpossibleTransitionError, match=event.value):
            step(state, event)


def test_nothing_leaves_the_stopped_state() -> None:
    """An elector that stopped holds nothing and asks for nothing."""
    assert not [pair for pair in TRANSITIONS if pair[0] is State.STOPPED]


def test_every_state_that_may_hold_a_term_can_give_it_back() -> None:
    """A stop must find a way out of each of them that tells Redis."""
    for state in (State.CAMPAIGNING, State.LEADER, State.LAPSED):
        assert step(state, Event.RESIGN) is State.RESIGNING


def rank(replica: str, *, draining: bool = False, priority: int = 0, started_ms: int = 0) -> Rank:
    return Rank(draining, priority, started_ms, replica)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rank("b", draining=False), rank("a", draining=True, priority=9)),
        (rank("b", priority=2), rank("a", priority=1, started_ms=9)),
        (rank("b", started_ms=9), rank("a", started_ms=1)),
        (rank("a"), rank("b")),
    ],
)
def test_the_better_candidate_goes_first(first: Rank, second: Rank) -> None:
    """Draining last, then priority, then the youngest: the one that will be there longest."""
    assert stagger_ns(first, [second]) == 0
    assert stagger_ns(second, [first]) == STAGGER_NS


def test_a_candidate_does_not_wait_for_itself() -> None:
    """The list that Redis keeps holds the reader too."""
    assert stagger_ns(rank("a"), [rank("a", priority=9)]) == 0


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_retries_are_paced_and_bounded(failures: int, uniform: float) -> None:
    """Between 25 and 400 ms, however long Redis is away."""
    assert 25 * MS <= retry_delay_ns(failures, uniform) <= RETRY_LAST_NS
