"""What sentinels and nodes say, and what is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.store.routing.topology import (
    Claim,
    DiscoveryFailure,
    checked,
    is_failing_over,
    is_master,
    moved_to,
    promoted_claim,
    rank,
    sentinel_claim,
    summary,
)

ADDRESSES = st.sampled_from(["a:1", "b:2", "c:3"])
CLAIMS = st.lists(st.builds(Claim, ADDRESSES, st.integers(0, 3)), max_size=8)


def test_the_newest_configuration_outvotes_any_number_of_older_ones() -> None:
    """Sentinels that were cut off with the old master may be the first and the most to answer."""
    assert rank([Claim("old:1", 3), Claim("old:1", 3), Claim("new:1", 4)]) == ["new:1", "old:1"]


def test_among_equals_the_most_votes_come_first() -> None:
    """Nodes of a cluster tell no epoch."""
    assert rank([Claim("a:1"), Claim("b:1"), Claim("b:1")]) == ["b:1", "a:1"]
    assert rank([]) == []


@given(CLAIMS)
def test_every_claim_is_tried_once_and_none_before_a_newer_one(claims: list[Claim]) -> None:
    """The order is by evidence alone."""
    ranked = rank(claims)
    assert sorted(ranked) == sorted({claim.address for claim in claims})
    newest = {address: max(claim.epoch for claim in claims if claim.address == address) for address in ranked}
    assert [newest[address] for address in ranked] == sorted(newest.values(), reverse=True)


def test_a_sentinel_names_address_and_epoch() -> None:
    """The address from the one answer, which is new first; the epoch from the other."""
    facts = [b"name", b"m", b"ip", b"10.0.0.9", b"config-epoch", b"12", b"quorum", b"2"]
    assert sentinel_claim([b"10.0.0.1", b"6379"], facts) == Claim("10.0.0.1:6379", 12)
    assert sentinel_claim([b"::1", b"6379"], None) == Claim("[::1]:6379", 0)
    assert sentinel_claim([b"h", b"1"], [b"config-epoch", b"x"]) == Claim("h:1", 0)


def test_a_promotion_is_known_before_it_is_announced() -> None:
    """The elected sentinel marks the replica; others hear of it up to a second later."""
    facts = [b"flags", b"master,o_down,failover_in_progress", b"config-epoch", b"4"]
    replicas = [
        [b"ip", b"10.0.0.2", b"port", b"6379", b"flags", b"slave"],
        [b"ip", b"10.0.0.3", b"port", b"6380", b"flags", b"slave,promoted"],
    ]
    assert is_failing_over(facts)
    assert promoted_claim(facts, replicas) == Claim("10.0.0.3:6380", 5, is_coming=True)
    assert rank([Claim("old:1", 4), Claim("old:1", 4), Claim("10.0.0.3:6380", 5)])[0] == "10.0.0.3:6380"
    for nobody in (replicas[:1], [], None, [[b"flags", b"promoted"]]):
        assert promoted_claim(facts, nobody) is None
    assert not is_failing_over([b"flags", b"master"])
    assert not is_failing_over(None)


@pytest.mark.parametrize("reply", [None, [], [b"h"], b"h:1", [b"h", b"1", b"2"]])
def test_a_sentinel_that_names_nobody_is_no_claim(reply: object) -> None:
    """An unknown name is answered with nothing."""
    assert sentinel_claim(reply, None) is None


@pytest.mark.parametrize("address", [[b"h", b"0"], [b"", b"1"], [b"h h", b"1"], [b"h" * 300, b"1"], [b"h", b"x"]])
def test_an_answer_that_is_no_address_is_an_error(address: list[bytes]) -> None:
    """It must not reach the board."""
    with pytest.raises(ValueError, match=r"address|literal"):
        sentinel_claim(address, None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", "127.0.0.1:6381"),
        ("3999 127.0.0.1:6381", "127.0.0.1:6381"),
        ("MOVED 1 :7000", "asked:7000"),
        ("MOVED 1 ::1:7000", "[::1]:7000"),
        ("MOVED 1 node.example:7000", "node.example:7000"),
        ("CLUSTERDOWN", None),
        ("MOVED", None),
    ],
)
def test_a_redirection_is_read(message: str, expected: str | None) -> None:
    """Without a host it means the host that was asked."""
    assert moved_to(message, "asked:6379") == expected


def test_an_address_is_checked_for_what_the_board_can_carry() -> None:
    """A name of the longest kind fits; nothing is ever cut off."""
    assert checked("h:1") == "h:1"
    with pytest.raises(ValueError, match="address"):
        checked(f"{'h' * 254}:1")


@pytest.mark.parametrize(
    ("role", "expected"), [([b"master", 1, []], True), ([b"slave", b"h", 1], False), ([b"sentinel"], False), ([], False), (None, False)]
)  # fmt: skip
def test_only_a_master_is_one(role: object, expected: bool) -> None:  # noqa: FBT001 - a table
    """Anything else is not to be written to."""
    assert is_master(role) is expected


def test_who_said_what_is_told() -> None:
    """One line for a person."""
    assert (
        summary([DiscoveryFailure("a:1", "no answer in time"), DiscoveryFailure("b:2", "refused")])
        == "a:1: no answer in time, b:2: refused"
    )
