"""``tenure leader``: what it says, and to whom it lets a leader hand over."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.cli.leader import change_line, change_row, leader_line, lease_row, replica_row
from supervisor.core.errors import EXIT_NO
from supervisor.operations.leader import CannotHandOverError, choose_heir
from supervisor.store.election.leases import CandidateInfo, LeaseCode, LeaseEvent, LeaseView

NOW_MS = 1_800_000_000_000


def view(**fields: Any) -> LeaseView:
    """Return a lease that ``one.aaaaaa`` holds since a minute."""
    known: dict[str, Any] = {
        "code": LeaseCode.VIEW, "epoch": NOW_MS - 60_000, "nonce": "f" * 32, "holder": "one.aaaaaa", "seq": 60,
        "remaining_ms": 4200, "duration_ms": 5000, "now_ms": NOW_MS, "genesis": "g", "last_event": "5-0",
        "acquired_ms": NOW_MS - 60_000,
    }  # fmt: skip
    return LeaseView(**{**known, **fields})


def candidate(replica: str, *, age_ms: int = 1000, **fields: Any) -> CandidateInfo:
    """Return a replica that was seen a moment ago."""
    return CandidateInfo(replica=replica, seen_ms=NOW_MS - age_ms, **fields)


ALL = [candidate("one.aaaaaa"), candidate("two.bbbbbb"), candidate("twenty.cccccc")]


@pytest.mark.parametrize(
    ("to", "heir"),
    [
        (None, ""),
        ("two.bbbbbb", "two.bbbbbb"),
        ("two", "two.bbbbbb"),
        ("two.", "two.bbbbbb"),
        ("twe", "twenty.cccccc"),
        ("one", "one.aaaaaa"),
    ],
)
def test_a_heir_is_named_by_its_id_its_name_or_the_beginning_of_it(to: str | None, heir: str) -> None:
    """Nobody types the six digits that tell two incarnations of a replica apart."""
    assert choose_heir(view(), ALL, to) == heir


def test_a_name_means_the_replica_of_that_name_and_not_one_that_begins_with_it() -> None:
    """Of node-1 and node-10 the first must stay reachable by its name."""
    candidates = [candidate("one.aaaaaa"), candidate("node-1.dddddd"), candidate("node-10.eeeeee")]

    assert choose_heir(view(), candidates, "node-1") == "node-1.dddddd"


@pytest.mark.parametrize(
    ("lease", "candidates", "to", "says"),
    [
        (view(holder=""), ALL, None, "nobody leads"),
        (view(), ALL, "three", "no replica that could lead is called 'three'; candidates beside the leader: twenty"),
        (view(), ALL, "tw", "'tw' names 2 replicas: twenty.cccccc, two.bbbbbb; write one in full"),
        (view(), ALL[:1], None, "one.aaaaaa is the only candidate: start another replica first"),
        (view(), [ALL[0], candidate("two.bbbbbb", age_ms=60_000)], None, "only candidate"),
        (view(), [ALL[0], candidate("two.bbbbbb", draining=True)], "two", "no replica that could lead"),
        (view(), [ALL[0], candidate("two.bbbbbb", participates=False)], None, "only candidate"),
    ],
)
def test_a_hand_over_that_cannot_be_is_refused_with_the_reason(
    lease: LeaseView, candidates: list[CandidateInfo], to: str | None, says: str
) -> None:
    """Before anything is asked of the leader; exit code 3."""
    with pytest.raises(CannotHandOverError, match=says) as refused:
        choose_heir(lease, candidates, to)
    assert refused.value.exit_code == EXIT_NO


def test_the_line_about_the_leader_says_what_is_wrong_with_it() -> None:
    """Overdue, holding its fires, or not there at all."""
    assert leader_line(view()) == f"Leader: one.aaaaaa (epoch {NOW_MS - 60_000}, for 1m, renewed 60 times)"
    assert "its lease ran out 2s ago" in leader_line(view(remaining_ms=-2000))
    assert "until `tenure leader clear-hold`: data lost" in leader_line(view(hold="data lost"))
    assert leader_line(view(holder="", epoch=7)) == "Nobody leads (last epoch 7)."


def test_a_lease_without_a_holder_has_none_in_json() -> None:
    """A script asks for null, not for an empty string."""
    nobody = lease_row(view(holder="", remaining_ms=-1_800_000_000_000))
    assert (nobody["holder"], nobody["remaining_ms"]) == (None, None)
    assert lease_row(view())["acquired"] == "2027-01-15T07:59:00.000Z"


def test_a_candidate_that_was_not_seen_for_three_leases_is_silent_and_not_standing_by() -> None:
    """The entry of a replica that died stays listed for a while; nobody should count on it."""
    roles = [replica_row(each, view())["role"] for each in (*ALL, candidate("four.dddddd", age_ms=15_001))]
    assert roles == ["leader", "standby", "standby", "silent"]


def test_a_change_is_one_line_with_its_time_and_one_object_with_the_same() -> None:
    """What a person reads and what a script reads are the same facts."""
    change = LeaseEvent.of("1800000000000-3", {"kind": "acquired", "epoch": "9", "who": "two.b", "reason": "free"})

    assert change_line(change) == "2027-01-15T08:00:00.000Z  acquired         epoch 9  two.b (free)"
    assert change_row(change) == {
        "time": "2027-01-15T08:00:00.000Z", "change": "acquired", "epoch": 9, "who": "two.b", "reason": "free",
    }  # fmt: skip


def test_an_event_of_another_version_is_shown_as_far_as_it_can_be_read() -> None:
    """During a rolling update two versions write the same stream."""
    change = LeaseEvent.of("1800000000000-0", {"kind": "novelty", "epoch": "?"})

    assert (change.kind, change.epoch, change.who, change.reason) == ("novelty", 0, "", "")
