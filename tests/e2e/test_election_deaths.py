"""A scheduler that dies, once and again, and a Redis that forgets while a person is to look: with whole trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.clusters import Cluster
from tests.e2e.pairs import ELECTION, RENEWALS
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, tenure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
HOLD = ELECTION.replace("}", ", on_data_loss: hold}")
SLOW_S = 4.0


@pytest.fixture
def make_cluster(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> Callable[..., Cluster]:
    """Start two replicas."""

    def make(**options: str) -> Cluster:
        return Cluster(start, short_directory, redis_url, store, **options)

    return make


def _runs(tree: Tree) -> int:
    return sum(each["slot"] == "scheduler" for each in tree.events("child_ready"))


@pytest.mark.long
def test_a_scheduler_that_dies_once_is_followed_by_one_with_a_later_term(make_cluster: Callable[..., Cluster]) -> None:
    """The leader promotes its own term: what the dead one sent late is refused, and nobody else comes to lead."""
    cluster = make_cluster()
    leader, _ = cluster.roles()
    before, runs = cluster.view(), _runs(leader)
    leader.kill("scheduler")
    leader.wait_for("leader_promoted")
    wait_until(lambda: _runs(leader) > runs, what="the next scheduler")
    cluster.prove()

    after = cluster.view()
    assert after.epoch > before.epoch
    assert (after.holder, after.transitions) == (before.holder, before.transitions)


@pytest.mark.long
def test_a_replica_whose_scheduler_keeps_dying_says_so_and_works_on(make_cluster: Callable[..., Cluster]) -> None:
    """Three deaths within a minute: another leads, /readyz says why, and the run in its worker is not disturbed."""
    cluster = make_cluster()
    leader, standby = cluster.roles()
    path = _occupy(cluster)
    worker = leader.slot_pid("worker-cpu-0")
    assert str(worker) in path.read_text().split()
    for _ in range(3):
        runs = _runs(leader)
        leader.kill("scheduler")
        wait_until(lambda known=runs: _runs(leader) > known or cluster.leader() is standby, what="the next scheduler")

    assert cluster.wait_for_other_leader(leader) is standby
    assert [each.reason for each in cluster.events() if each.kind == "released"] == ["scheduler_crashes"]
    status, body = wait_until(lambda: _unready(leader, "its scheduler keeps failing"), what="/readyz to say why")
    assert status == 503, body
    wait_until(lambda: path.read_text().count("end") == 2, what="both runs to end")
    assert path.read_text().count("start") == 2, "a run was interrupted and began again"
    assert leader.slot_pid("worker-cpu-0") == worker
    cluster.prove()


@pytest.mark.long
def test_after_a_loss_of_data_nothing_fires_until_a_person_says_so(
    make_cluster: Callable[..., Cluster], server: Server
) -> None:
    """With election.on_data_loss: hold, the lease is kept and renewed, /readyz says why, and one command ends it."""
    cluster = make_cluster(election=HOLD)
    before = cluster.view()
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        client.flushall()
    wait_until(lambda: cluster.view().hold and cluster.leader(), what="a leader that holds")
    leader, _ = cluster.roles()
    status, body = wait_until(lambda: _unready(leader, "holds every fire"), what="/readyz to say why")
    assert status == 503, body
    held = cluster.view()
    wait_until(lambda: cluster.view().seq >= held.seq + RENEWALS, what="renewals for longer than a lease")
    assert (cluster.view().epoch, cluster.history().fired) == (held.epoch, [])
    assert held.epoch > before.epoch

    done = tenure(
        cluster.directory, "leader", "clear-hold", "--yes", "--config", "tenure.yaml",
        environ={"E2E_FAULTS": str(cluster.directory)},
    )  # fmt: skip
    assert done.returncode == os.EX_OK, done.stderr
    cluster.wait_for_fires(4)
    wait_until(lambda: leader.get("/readyz")[0] == 200, what="/readyz to be well again")


def _occupy(cluster: Cluster) -> Path:
    """Give both replicas' synchronous workers a slow run; return the file in which they write."""
    path = cluster.directory / "slow.txt"
    template = Template(job="e2e.slow", kind=Kind.SYNC, args={"path": str(path), "seconds": SLOW_S}, timeout_s=60)
    envelopes = [Envelope(id=name, template=template) for name in ("slow-one", "slow-two")]
    cluster.store.run(Queues(Keys("e2e")).enqueue(nonce="slow", envelopes=envelopes))
    wait_until(lambda: path.exists() and path.read_text().count("\n") == 2, what="both runs to begin")
    return path


def _unready(tree: Tree, why: str) -> tuple[int, str] | None:
    answer = tree.get("/readyz")
    return answer if why in answer[1] else None
