"""The lease: trust, silence, order of candidates, and the table of states."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.election.lease import (
    RETRY_LAST_NS,
    SLACK_NS,
    STAGGER_NS,
    STAGGER_NS_MAX,
    TRANSITIONS,
    ElectorEvent,
    ImpossibleTransitionError,
    Loss,
    Memory,
    Observation,
    Rank,
    Sight,
    State,
    granted,
    is_named,
    retry_delay_ns,
    stagger_ns,
    step,
    version_key,
)
from supervisor.core.units import MILLISECOND_NS
from tests.kit.tables import table

S = 1000 * MILLISECOND_NS
NONCE = "ab" * 16


def test_a_slow_grant_does_not_extend_the_term() -> None:
    """Trust counts from the question, so a 4 s reply leaves 0.5 s of a 5 s lease."""
    term = granted(epoch=1, nonce=NONCE, asked_at_ns=100 * S, duration_ns=5 * S, margin_ns=S // 2)

    assert term.is_trusted(104 * S + 499 * MILLISECOND_NS)
    assert not term.is_trusted(104 * S + 500 * MILLISECOND_NS)


@given(
    asked=st.integers(0, 10**15),
    request=st.integers(0, 10**10),
    reply=st.integers(0, 10**10),
    duration=st.integers(1000, 300_000),
)
def test_trust_ends_before_redis_can_give_the_lease_away(asked: int, request: int, reply: int, duration: int) -> None:
    """Whatever the request and the reply took, a follower that saw the grant waits longer than the holder trusts."""
    term = granted(
        epoch=1,
        nonce=NONCE,
        asked_at_ns=asked,
        duration_ns=duration * MILLISECOND_NS,
        margin_ns=duration * MILLISECOND_NS // 10,
    )
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


_ANSWERS = frozenset({ElectorEvent.ADOPTED, ElectorEvent.GRANTED, ElectorEvent.REFUSED})
IMPOSSIBLE: dict[State, frozenset[ElectorEvent]] = {
    # It asked nothing and holds nothing.
    State.FOLLOWER: _ANSWERS
    | {ElectorEvent.TRUST_EXPIRED, ElectorEvent.PROMOTE, ElectorEvent.RESIGN, ElectorEvent.RELEASED},
    # It holds nothing that it knows of; and it stops by way of RESIGN, since it may hold something all the same.
    State.CAMPAIGNING: frozenset(
        {
            ElectorEvent.RESUMED,
            ElectorEvent.TRUST_EXPIRED,
            ElectorEvent.PROMOTE,
            ElectorEvent.RELEASED,
            ElectorEvent.STOP,
        },
    ),
    # It holds a term: it neither finds nor asks for another, and gives this one back before it stops.
    State.LEADER: frozenset(
        {ElectorEvent.RESUMED, ElectorEvent.CAMPAIGN, ElectorEvent.ADOPTED, ElectorEvent.RELEASED, ElectorEvent.STOP}
    ),
    State.PROMOTING: frozenset(
        {
            ElectorEvent.RESUMED,
            ElectorEvent.CAMPAIGN,
            ElectorEvent.ADOPTED,
            ElectorEvent.TRUST_EXPIRED,
            ElectorEvent.RELEASED,
            ElectorEvent.STOP,
        },
    ),
    State.LAPSED: frozenset(
        {
            ElectorEvent.RESUMED,
            ElectorEvent.CAMPAIGN,
            ElectorEvent.ADOPTED,
            ElectorEvent.TRUST_EXPIRED,
            ElectorEvent.RELEASED,
            ElectorEvent.STOP,
        },
    ),
    # It waits for one answer only.
    State.RESIGNING: frozenset(ElectorEvent) - {ElectorEvent.RELEASED},
    State.STOPPED: frozenset(ElectorEvent),
}


@table(("state", "event"), list(product(State, ElectorEvent)))
def test_every_pair_of_state_and_event_is_decided(state: State, event: ElectorEvent) -> None:
    """A pair is in the product's table or in the one above: nothing falls through, and nothing is forbidden by omission."""
    is_possible = (state, event) in TRANSITIONS
    assert is_possible != (event in IMPOSSIBLE[state])
    if is_possible:
        assert step(state, event) in State
    else:
        with pytest.raises(ImpossibleTransitionError, match=event.value):
            step(state, event)


def test_nothing_leaves_the_stopped_state() -> None:
    """An elector that stopped holds nothing and asks for nothing."""
    assert not [pair for pair in TRANSITIONS if pair[0] is State.STOPPED]


def test_every_state_that_may_hold_a_term_can_give_it_back() -> None:
    """A stop must find a way out of each of them that tells Redis."""
    for state in (State.CAMPAIGNING, State.LEADER, State.PROMOTING, State.LAPSED):
        assert step(state, ElectorEvent.RESIGN) is State.RESIGNING


def rank(replica: str, **fields: Any) -> Rank:
    known = {"draining": False, "is_skewed": False, "priority": 0, "version": "1.0", "started_ms": 0}
    return Rank(replica=replica, **{**known, **fields})


@table(
    ("first", "second"),
    [
        (rank("b", draining=False), rank("a", draining=True, priority=9)),
        (rank("b", is_skewed=True), rank("a", draining=True)),
        (rank("b"), rank("a", is_skewed=True, priority=9)),
        (rank("b", priority=2), rank("a", priority=1, version="2.0")),
        (rank("b", version="1.10.0"), rank("a", version="1.9.9", started_ms=9)),
        (rank("b", version="2.0"), rank("a", version="2.0rc1", started_ms=9)),
        (rank("b", version="0.1"), rank("a", version="built by hand", started_ms=9)),
        (rank("b", started_ms=9), rank("a", started_ms=1)),
        (rank("a"), rank("b")),
    ],
)
def test_the_better_candidate_goes_first(first: Rank, second: Rank) -> None:
    """Draining last, then priority, then the newest version, then the youngest: whoever will be there longest."""
    assert stagger_ns(first, [second]) == 0
    assert stagger_ns(second, [first]) == STAGGER_NS


def test_however_many_better_candidates_are_listed_nobody_waits_for_more_than_a_second() -> None:
    """A list of a thousand, which anybody may have written, kept a released lease from the only one that lives."""
    others = [rank(f"other.{n}", priority=9) for n in range(1000)]
    assert stagger_ns(rank("a"), others) == STAGGER_NS_MAX == S


def test_versions_are_ordered_by_their_numbers() -> None:
    """As text, 0.10 comes before 0.9, and a release before its own candidates."""
    ordered = ["?", "0.9", "0.10.dev3", "0.10a2", "0.10b1", "0.10rc1", "0.10rc2", "0.10", "0.10.1", "v1", "1.0.0.1"]

    assert sorted(ordered, key=version_key, reverse=True) == ordered[::-1]
    assert version_key("1") == version_key("1.0.0") == version_key("1.0+local")


@pytest.mark.parametrize(
    ("name", "is_meant"), [("a", True), ("a.f00", True), ("b", False), ("", False), ("a.f0", False)]
)
def test_a_replica_is_meant_by_its_name_or_by_its_full_id(name: str, *, is_meant: bool) -> None:
    """People know the name; the suffix differs with each start."""
    assert is_named("a.f00", name) is is_meant


def sight(epoch: int, seq: int = 0, **fields: Any) -> Sight:
    known: dict[str, Any] = {
        "genesis": "g", "duration_ns": 5 * S, "is_held": True, "is_ours": False, "is_renewal": False
    }  # fmt: skip
    return Sight(epoch=epoch, seq=seq, **known | fields)


def remembered(*sights: Sight) -> tuple[Memory, list[Loss | None]]:
    memory, losses = Memory(), []
    for each in sights:
        memory, loss = memory.learn(each)
        losses.append(loss)
    return memory, losses


def test_nothing_is_lost_where_everything_grows() -> None:
    """Grants, renewals, a release, another holder."""
    grown = [sight(5), sight(5, 3), sight(5, 4, is_renewal=True), sight(5, 4, is_held=False), sight(9), sight(9, 1)]

    assert remembered(*grown)[1] == [None] * len(grown)


@table(
    ("seen", "loss"),
    [
        (sight(0, genesis="", is_held=False), Loss.DATA),
        (sight(12, genesis="another"), Loss.DATA),
        (sight(6), Loss.ROLLED_BACK),
        (sight(0, is_held=False), Loss.ROLLED_BACK),
        (sight(7, 2), Loss.ROLLED_BACK),
        (sight(7, 3, is_renewal=True), Loss.ROLLED_BACK),
        (sight(7, 3), None),
        (sight(7, 4, is_renewal=True), None),
        (sight(8), None),
    ],
)
def test_a_loss_shows_in_the_first_reply_after_it_and_is_found_once(seen: Sight, loss: Loss | None) -> None:
    """An emptied server, another data set, an earlier term, fewer renewals than were seen."""
    memory, losses = remembered(sight(7, 3), seen, replace(seen, seq=seen.seq + 1))

    assert losses[1:] == [loss, None]
    assert memory.floor == max(7, seen.epoch)


def test_an_agent_that_resumed_a_term_knows_an_emptied_server() -> None:
    """All it has is the epoch on the board."""
    assert Memory(floor=7, epoch=7).learn(sight(0, genesis="", is_held=False))[1] is Loss.DATA


def test_the_highest_term_may_be_believed_in_for_its_duration() -> None:
    """By its holder, who may have renewed it just before the reply; what Redis says after a loss does not count."""
    memory, _ = remembered(sight(7), sight(0, genesis="", is_held=False))
    assert memory.believed_ns == 5 * S
    assert memory.heard_release(6).believed_ns == 5 * S
    assert memory.heard_release(7).believed_ns == 0
    assert remembered(sight(7, is_ours=True))[0].believed_ns == 0
    assert remembered(sight(7), sight(7, is_held=False))[0].believed_ns == 0


def test_a_candidate_does_not_wait_for_itself() -> None:
    """The list that Redis keeps holds the reader too."""
    assert stagger_ns(rank("a"), [rank("a", priority=9)]) == 0


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_retries_are_paced_and_bounded(failures: int, uniform: float) -> None:
    """Between 25 and 400 ms, however long Redis is away."""
    assert 25 * MILLISECOND_NS <= retry_delay_ns(failures, uniform) <= RETRY_LAST_NS
