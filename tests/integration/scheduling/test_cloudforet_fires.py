"""The published configurations under a driven clock: what fires, and at which instants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import supervisor.compat.cloudforet.tasks.runtime  # noqa: F401 - loaded before the first test, which would leave it behind
from supervisor.app.configuration import load
from supervisor.settings.schedules.complete import import_jobs
from supervisor.testing.cluster import Cluster

DATA = Path(__file__).resolve().parent.parent.parent / "data" / "cloudforet"
START = datetime(2025, 1, 1, 10, 20, tzinfo=UTC)
QUEUES = "QUEUES: {q: {backend: spaceone.core.queue.redis_queue.RedisQueue, host: redis, port: 6379, channel: c}}\n"


def schedules(*files: Path) -> Mapping[str, Any]:
    """Return what the files become, as a cluster takes it."""
    loaded = load(files=files, environ={}, flags={}, compat="cloudforet")
    assert import_jobs(loaded.settings.jobs) == []
    assert loaded.conversion is not None
    root = loaded.conversion.root
    found: Mapping[str, Any] = root.value["schedules"].plain()
    return found


def fired(cluster: Cluster) -> dict[str, list[datetime]]:
    found: defaultdict[str, list[datetime]] = defaultdict(list)
    for each in cluster.fired():
        found[each.schedule].append(each.nominal)
    return dict(found)


def hourly(minute: int, *, hours: int) -> list[datetime]:
    """Return the instants at which the original fires an hourly schedule that started at START."""
    first = START.replace(minute=minute)
    first += timedelta(hours=0 if first > START else 1)
    return [first + timedelta(hours=hour) for hour in range(hours)]


def cluster_of(found: Mapping[str, Any], *, replicas: int = 1) -> Cluster:
    """Return a cluster that renews its lease seldom: two days take seconds."""
    return Cluster(replicas=replicas, schedules=found, start=START.isoformat(), lease="300s")


def live(cluster: Cluster, *, halves: int) -> None:
    """Let so many half hours pass, with a worker that runs what is planned at their ends."""
    for _ in range(halves):
        cluster.advance("30m")
        cluster.run_pending()


@pytest.mark.parametrize("hours", [16, pytest.param(48, marks=pytest.mark.long)])
def test_the_published_files_fire_at_the_instants_of_the_original(hours: int) -> None:
    """Unchanged, started at 10:20, past midnight: every schedule of both files, every instant, nothing else."""
    both = {**schedules(DATA / "identity-values.yaml"), **schedules(DATA / "inventory-values.yaml")}
    minutes = {
        "trusted_account_sync_scheduler": 0,
        "dormancy_scheduler": 30,
        "expiring_app_check_scheduler": 0,
        "hourly_scheduler": 0,
        "cleanup_scheduler": 10,
        "stats_scheduler": 30,
        "metric_scheduler": 30,
    }
    with closing(cluster_of(both)) as cluster:
        live(cluster, halves=2 * hours)
        assert fired(cluster) == {schedule: hourly(minute, hours=hours) for schedule, minute in minutes.items()}


@pytest.mark.parametrize(
    ("interval", "halves", "due"),
    [
        (3, 2, datetime(2025, 1, 1, 12, 30, tzinfo=UTC)),
        pytest.param(24, 10, datetime(2025, 1, 2, 0, 30, tzinfo=UTC), marks=pytest.mark.long),
    ],
)
def test_x10_a_restart_and_a_new_leader_move_no_interval(
    tmp_path: Path, interval: int, halves: int, due: datetime
) -> None:
    """The original's hours began anew with every start; with a leader killed more often than that they still come."""
    file = tmp_path / "application.yaml"
    file.write_text(f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: {interval}, minute: ':30'}}}}\n")
    with closing(cluster_of(schedules(file), replicas=2)) as cluster:
        for _ in range(3):
            live(cluster, halves=halves)
            leader = cluster.leader
            cluster.kill(leader)
            cluster.advance("10m")
            cluster.restart(leader)
        assert fired(cluster) == {"s": [due]}


@pytest.mark.parametrize(("before", "after"), [(1, 5), pytest.param(7, 20, marks=pytest.mark.long)])
def test_phase_start_counts_from_the_first_start_and_a_fail_over_does_not_move_it(
    tmp_path: Path, before: int, after: int
) -> None:
    """As the original on its first day: 24 hours at :30 after 10:20 are 10:30 on the next day, for good."""
    file = tmp_path / "application.yaml"
    file.write_text(
        f"{QUEUES}phase: start\nSCHEDULERS:\n"
        "  day: {backend: a.B, queue: q, interval: 24, minute: ':30'}\n"
        "  two: {backend: a.B, queue: q, interval: 2, minute: ':00'}\n"
        "  six: {backend: a.B, queue: q, interval: 6, minute: ':00'}\n"
        "  one: {backend: a.B, queue: q, interval: 1, minute: ':30'}\n"
    )
    with closing(cluster_of(schedules(file), replicas=2)) as cluster:
        live(cluster, halves=2 * before)
        cluster.kill(cluster.leader)
        live(cluster, halves=2 * after)
        found = fired(cluster)
    midnight, hours = START.replace(hour=0, minute=0), before + after
    assert found["two"] == [midnight + timedelta(hours=hour) for hour in range(12, 11 + hours, 2)]
    assert found["six"] == [midnight + timedelta(hours=hour) for hour in range(16, 11 + hours, 6)]
    assert found["one"] == hourly(30, hours=hours)
    assert found.get("day", []) == [midnight + timedelta(days=1, hours=10, minutes=30)] * (hours > 24)


def test_after_an_hour_without_any_replica_one_run_catches_up(tmp_path: Path) -> None:
    """As the original after a pause: exactly one, then the grid again."""
    file = tmp_path / "application.yaml"
    file.write_text(f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 600}}}}\n")
    with closing(cluster_of(schedules(file))) as cluster:
        live(cluster, halves=1)
        leader = cluster.leader
        cluster.kill(leader)
        cluster.advance("1h")
        before = len(cluster.fired())
        cluster.restart(leader)
        cluster.advance("6m")
        assert len(cluster.fired()) == before + 1
