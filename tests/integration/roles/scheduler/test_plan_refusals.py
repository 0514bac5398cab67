"""Foreign keys in queues and beside schedules: what concerns one schedule stops no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.testing.cluster import Cluster, ClusterFactory

PARTS = [
    "data", "run", "att", "later", "dead", "err", "hist", "stat", "limits", "blocked", "woken", "paused", "stale",
    "cancel", "ready:s:1", "suspect:s", "bell:s",
]  # fmt: skip


@pytest.fixture
def factory() -> Iterator[ClusterFactory]:
    with ClusterFactory() as made:
        yield made


def schedules(overlap: str) -> dict[str, dict[str, str]]:
    """Return three schedules that are well, and one in a queue of its own for each key of a queue."""
    well = {f"well-{n}": {"job": "probe.tick", "every": "10s", "overlap": overlap} for n in range(3)}
    bad = {
        f"bad-{n}": {"job": "probe.tick", "every": "20s", "overlap": overlap, "queue": f"q{n}"}
        for n in range(len(PARTS))
    }
    return well | bad


def fired_well(cluster: Cluster) -> int:
    """Return how often those that are well fired."""
    return len([fired for fired in cluster.fired() if fired.schedule.startswith("well")])


def told(cluster: Cluster, event: str) -> list[list[str]]:
    """Return the schedules that each ``event`` names."""
    return [line.fields["schedules"] for line in cluster._world.history if line.event == event]


@pytest.mark.share(2)
@pytest.mark.parametrize("overlap", ["allow", "terminate_other"])
def test_a_foreign_key_in_a_queue_delays_no_schedule_of_another(factory: ClusterFactory, overlap: str) -> None:
    """Each key of a queue in turn, all at once: the others fire within a second, and the leader stays."""
    cluster = factory(replicas=2, schedules=schedules(overlap), lease="20s")
    cluster.advance("25s")
    server, leader = cluster._world.server, cluster.leader
    for n, part in enumerate(PARTS):
        key = server.keys.queue(f"q{n}").prefix + part
        server.store.raw.delete(key)
        server.store.raw.set(key, "another program's")
    cluster.advance("6s")  # the third time of all was due a second ago
    for due in range(3, 21):
        assert fired_well(cluster) == 3 * due
        cluster.advance("10s")

    assert cluster.leader == leader
    refused = {name for names in told(cluster, "schedules_put_off") for name in names}
    assert {f"bad-{PARTS.index(part)}" for part in ("data", "ready:s:1", "stat")} <= refused
    assert not any(name.startswith("well") for name in refused)


def test_a_refused_schedule_is_told_once_and_goes_on_when_the_key_is_gone(factory: ClusterFactory) -> None:
    """It is tried again each minute; a log line each time would drown the log."""
    bad = {"bad": {"job": "probe.tick", "every": "30s", "overlap": "allow", "queue": "reports", "missed": "all"}}
    cluster = factory(replicas=1, schedules=bad, lease="20s")
    cluster.advance("35s")
    server = cluster._world.server
    server.store.raw.set(server.keys.queue("reports").dead, "another program's")
    server.store.raw.set(server.keys.queue("reports").later, "another program's")
    cluster.advance("5m")
    assert len(cluster.fired("bad")) == 1
    assert told(cluster, "schedules_put_off") == [["bad"]]
    server.store.raw.delete(server.keys.queue("reports").dead, server.keys.queue("reports").later)
    cluster.advance("65s")

    assert told(cluster, "schedules_accepted_again") == [["bad"]]
    cluster.assert_no_gap("bad")


def test_replicas_that_meet_the_same_refusal_do_not_pass_the_lease_around(factory: ClusterFactory) -> None:
    """Each gives way once, because its rights or its version may be to blame; then the leader stays."""
    cluster = factory(
        replicas=2, schedules={"s": {"job": "probe.tick", "every": "10s", "overlap": "allow"}}, lease="5s"
    )
    server = cluster._world.server
    cluster.advance("15s")
    server.store.raw.delete(server.keys.schedule_wait)
    server.store.raw.set(server.keys.schedule_wait, "another program's")
    cluster.advance("10m")
    resigned = [line for line in cluster._world.history if line.event == "refusals_resigned"]
    assert len({line.who for line in resigned}) == len(resigned) == 2
    server.store.raw.delete(server.keys.schedule_wait)
    before = len(cluster.fired("s"))
    cluster.advance("75s")

    assert len(cluster.fired("s")) > before
