"""Replicas that start on a lease they never watched: when they leave it to its holder, and how soon they lead."""

from __future__ import annotations

import pytest

from supervisor.testing.cluster import Cluster, ClusterFactory

LEASE_S, RENEWAL_S = 5.0, 2.0  # a period and a time-out
FIRST_LOOK_S = 0.2
HOUR_MS = 3_600_000


def leads_after_s(cluster: Cluster, limit_s: float) -> float:
    """Let time pass until somebody leads; return how much passed."""
    for tenth in range(int(limit_s * 10) + 1):
        if cluster.leader is not None:
            return tenth / 10
        cluster.advance(0.1)
    raise AssertionError(f"nobody leads after {limit_s} s\n{cluster.history()}")


@pytest.mark.share(3)
@pytest.mark.parametrize("phase_s", [tenth / 10 for tenth in range(10)])
def test_a_step_of_redis_clock_gives_a_newcomer_nobodys_lease(phase_s: float) -> None:
    """By that clock the record is an hour over; its holder renews within a second, and the newcomer looks twice."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=2)
        cluster.advance(20.1)
        leader = cluster.leader
        (other,) = set(cluster.replicas) - {leader}
        cluster.kill(other)
        cluster.advance(2 + phase_s)
        cluster._world.server_offset_ms += HOUR_MS
        cluster.restart(other)
        cluster.advance(2 * LEASE_S)

        assert cluster.leader == leader
        assert cluster.history().count("leader_acquired") == 1


@pytest.mark.parametrize("away_s", [0.5, 3.0, 4.9, 6.0, 600.0])
def test_after_a_crash_of_every_replica_somebody_leads_within_a_lease(away_s: float) -> None:
    """The rest of the lease is waited out; where it is over, as long as a living leader would take to renew."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=3)
        cluster.advance(20.1)
        for name in cluster.replicas:
            cluster.kill(name)
        cluster.advance(away_s)
        for name in cluster.replicas:
            cluster.restart(name)

        rest_s = LEASE_S - away_s if away_s < LEASE_S else 0.0
        assert leads_after_s(cluster, 2 * LEASE_S) <= max(rest_s, RENEWAL_S) + FIRST_LOOK_S
