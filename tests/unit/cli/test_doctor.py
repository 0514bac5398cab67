"""What ``tenure doctor`` says of names."""

from __future__ import annotations

import pytest

from supervisor.cli.doctor import replica_names, replicas_of
from supervisor.store.election.leases import CandidateInfo, LeaseCode, LeaseView
from supervisor.store.queues.reads import Served

LEASE = LeaseView(
    code=LeaseCode.VIEW, epoch=7, nonce="n", holder="a.1", seq=1, remaining_ms=1, duration_ms=5000, now_ms=100_000,
    genesis="g", last_event="0-0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "is_ok"),
    [
        ({"a.1": 99_000, "b.2": 99_000}, True),
        ({"a.1": 99_000, "a.2": 99_000}, False),
        ({"a.1": 99_000, "a.2": 84_000}, True),
        ({"a": 99_000, "b": 99_000}, True),
        ({}, True),
    ],
)
def test_a_name_that_two_living_replicas_have_is_found(seen: dict[str, int], *, is_ok: bool) -> None:
    """Safe, but nobody can tell their logs and metrics apart; one that left long ago does not count."""
    candidates = [CandidateInfo(replica=replica, seen_ms=seen_ms) for replica, seen_ms in seen.items()]

    assert replica_names(candidates, LEASE).is_ok is is_ok


def test_a_cluster_without_replicas_is_found_for_producers_with_the_names_there_are() -> None:
    """Whoever asks why nothing runs reads the name to correct."""
    wrong = replicas_of("default", Served.NO_CLUSTER, ["shop"])
    right = replicas_of("shop", Served.NO, ["shop"])

    assert (wrong.is_ok, right.is_ok) == (False, True)
    assert "no replica of default was ever seen; the database holds shop" in wrong.seen
    assert "TENURE_CLUSTER" in wrong.remedy
