"""How long nobody leads when Redis is emptied and the leader dies, together or one after the other."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import Cluster, cluster

LEASE_S = 5.0
ROUND_S = 0.5


def leads_after_s(it: Cluster, limit_s: float) -> float:
    """Let time pass until a living replica leads and is trusted; return how much passed."""
    for tenth in range(int(limit_s * 10) + 1):
        if any(replica.is_leading for replica in it.replicas):
            return tenth / 10
        it.pass_s(0.1)
    raise AssertionError(f"nobody leads after {limit_s} s")


@pytest.mark.share(3)
@pytest.mark.parametrize("dead_for_s", [0.0, 0.3, 3.0])
def test_without_leader_and_data_a_standby_leads_within_two_leases(dead_for_s: float) -> None:
    """One lease until a standby asks and is refused, one that the lost term may be believed in."""
    for tenths in range(0, 50, 16):
        with cluster(3) as it:
            it.pass_s(20 + tenths / 10)
            it.leader.kill()
            it.pass_s(dead_for_s)
            it.server.empty()

            assert leads_after_s(it, 4 * LEASE_S) <= 2 * LEASE_S + ROUND_S
            assert it.repeated() == {}


def test_a_server_that_is_emptied_again_and_again_keeps_nobody_from_leading() -> None:
    """The second loss is of nothing that was seen, so nobody waits anew for the term that the first one took."""
    with cluster(3) as it:
        it.pass_s(20)
        it.leader.kill()
        for _ in range(6):
            it.server.empty()
            it.pass_s(2.0)
        it.pass_s(ROUND_S)

        assert it.leader.is_leading
